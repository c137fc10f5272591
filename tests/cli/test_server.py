"""``turnout serve`` before it starts anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "turnout", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "no such folder"),
        ([".", "--listen", "8090"], "expected host:port"),
        ([".", "--listen", "0.0.0.0:8090"], "needs tls, or --insecure"),
        ([".", "--config", "missing.yaml"], "no such file"),
        ([".", "--tokens", "empty"], "has no tokens"),
        ([".", "--log-format", "xml"], "logFormat"),
    ],
)
def test_a_wrong_request_ends_with_2_and_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    """No JVM is started for it, and no trace is printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("")

    done = serve(*arguments)

    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
