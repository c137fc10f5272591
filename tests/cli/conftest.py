"""The command line as tests run it, in their own process."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from turnout.cli import main


@contextmanager
def root_log_kept() -> Iterator[None]:
    """A command that sets the process's log up writes to this test's standard error, which ends with the test."""
    handlers, level, hook = logging.root.handlers[:], logging.root.level, threading.excepthook
    try:
        yield
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
        logging.captureWarnings(False)
        threading.excepthook = hook


@pytest.fixture
def turnout(tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own: its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    for name in ("DB_URI", "DB_NAME", "DB_TABLE_NAME"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["turnout", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code: str | int | None = 0
        with root_log_kept():
            try:
                main()
            except SystemExit as ended:
                code = ended.code
        output = capsys.readouterr()
        return int(code or 0), output.out, output.err

    return run
