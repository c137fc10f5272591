"""Processes of servers and their ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from turnout.embedded import start_server


def test_a_session_of_its_own(tmp_path: Path) -> None:
    """Ctrl-C at the terminal does not reach it; its output is in the log."""
    with (tmp_path / "log").open("wb") as log:
        process = start_server([sys.executable, "-c", "print('listening', flush=True); input()"], log)

    assert process.wait(10) == 1, "its input is empty"
    assert "listening" in (tmp_path / "log").read_text(encoding="utf-8")
    with (tmp_path / "log").open("wb") as log:
        process = start_server(["sleep", "600"], log)
    try:
        assert os.getsid(process.pid) == process.pid != os.getsid(0)
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """Also after kill -9."""
    code = (
        "import sys, time; from turnout.embedded import start_server\n"
        "print(start_server(['sleep', '600'], open(sys.argv[1], 'wb')).pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path / "log"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()

    gone, _ = psutil.wait_procs([child], timeout=10)
    assert gone or child.status() == psutil.STATUS_ZOMBIE
