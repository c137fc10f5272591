"""The command line as tests run it, in their own process."""

from __future__ import annotations

import io
import sys

import pytest

from turnout.cli import main


@pytest.fixture
def turnout(tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own: its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    for name in ("DB_URI", "DB_NAME", "DB_TABLE_NAME"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["turnout", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        told = capsys.readouterr()
        return int(code or 0), told.out, told.err

    return run
