"""One run for one checkpoint."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from turnout.errors import RunError
from turnout.runtime.checkpoint import claimed

HOLD = """
import sys
from pathlib import Path
from turnout.runtime.checkpoint import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_run_learns_of_the_first(tmp_path: Path) -> None:
    """By process, host and time; after kill -9 of the first the folder is free, whatever the file says."""
    checkpoint = tmp_path / "new" / "checkpoint"
    command = [sys.executable, "-c", HOLD, str(checkpoint)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(RunError) as refused, claimed(checkpoint):
            pass
        first.kill()
        first.wait(30)

    for part in (str(checkpoint), f"process {first.pid} on {socket.gethostname()}, since 20"):
        assert part in str(refused.value)
    with claimed(checkpoint):
        assert json.loads((checkpoint / "run.lock").read_text())["pid"] == os.getpid()
    with claimed(checkpoint):
        pass


def test_two_runs_of_one_process(tmp_path: Path) -> None:
    """Threads of a server exclude each other as processes do."""
    with (
        claimed(tmp_path),
        pytest.raises(RunError, match=f"another run has .*: process {os.getpid()} "),
        claimed(tmp_path),
    ):
        pass


def test_a_first_run_that_says_nothing(tmp_path: Path) -> None:
    """A full disk takes the lock and not the words."""
    with claimed(tmp_path):
        (tmp_path / "run.lock").write_text("")
        with pytest.raises(RunError, match="a process that has not said which it is"), claimed(tmp_path):
            pass


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """The sentence names it, and why."""
    (tmp_path / "file").touch()

    with (
        pytest.raises(RunError, match="file/checkpoint cannot be written: Not a directory"),
        claimed(tmp_path / "file" / "checkpoint"),
    ):
        pass


def test_a_checkpoint_elsewhere() -> None:
    """Nothing guards it."""
    with claimed(None):
        pass
