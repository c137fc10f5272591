"""Planners of streams, forked from one process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.routes import wait_for

from turnout.runtime import planners

TELL = "import json, os, sys; print(json.dumps([os.getpid(), os.getppid(), sys.argv[1:], os.environ['OWN'], __name__]))"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The process, and its socket."""
    path = tmp_path_factory.mktemp("planners") / "socket"
    process = subprocess.Popen([sys.executable, "-m", planners.__name__, str(path)], stdin=subprocess.PIPE)
    wait_for(path.exists, 60)
    yield process, path
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(10) == 0


def asking(path: Path, folder: Path, program: str, **own: str) -> subprocess.Popen[str]:
    """Start what Spark starts, with a module that runs *program*."""
    (folder / "asked.py").write_text(program)
    environment = {**os.environ, **own, planners.PLANNERS: str(path), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-I", "-S", planners.__file__, "-m", "asked", "one"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_planner_is_forked(server: tuple[subprocess.Popen[bytes], Path], tmp_path: Path) -> None:
    """It runs the module as a program, with the arguments, the environment and the streams of who asks."""
    process, path = server
    out, err = asking(path, tmp_path, TELL, OWN="mine \udcff").communicate(timeout=30)

    pid, parent, arguments, own, name = json.loads(out)
    assert (parent, arguments, own, name, err) == (process.pid, ["one"], "mine \udcff", "__main__", "")
    assert pid != process.pid


def test_signals_to_all_processes_are_ignored(server: tuple[subprocess.Popen[bytes], Path], tmp_path: Path) -> None:
    """Spark's own processes ignore them too: a server that is asked to end finishes its micro-batches."""
    process, path = server
    program = "import os, signal, sys\nfor number in (signal.SIGINT, signal.SIGTERM): os.kill(os.getpid(), number)\n"
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
    out, _ = asking(path, tmp_path, program + TELL, OWN="").communicate(timeout=30)

    assert json.loads(out)[1] == process.pid


def test_errors_come_to_who_asks(server: tuple[subprocess.Popen[bytes], Path], tmp_path: Path) -> None:
    """And the process goes on."""
    process, path = server
    _, err = asking(path, tmp_path, "raise ValueError('no plan')").communicate(timeout=30)
    assert "ValueError: no plan" in err

    out, _ = asking(path, tmp_path, TELL, OWN="").communicate(timeout=30)
    assert json.loads(out)[1] == process.pid


def test_a_planner_ends_with_who_asked(server: tuple[subprocess.Popen[bytes], Path], tmp_path: Path) -> None:
    """Spark ends the process that it has started, and knows of no other."""
    _, path = server
    asked = asking(path, tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    assert asked.stdout is not None
    pid = int(asked.stdout.readline())
    asked.kill()
    asked.communicate()

    wait_for(lambda: not Path(f"/proc/{pid}").exists(), 10)


def test_a_request_that_breaks_off(server: tuple[subprocess.Popen[bytes], Path], tmp_path: Path) -> None:
    """The next one is answered."""
    process, path = server
    for begun in (b"", b"\x00", b"\x00\x00\x00\x09[", b"\x00\x00\x00\x01x", b"\x00\x00\x00\x07[[], 1]"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(begun)
    out, _ = asking(path, tmp_path, TELL, OWN="").communicate(timeout=30)
    assert json.loads(out)[1:3] == [process.pid, ["one"]]


def test_without_the_process_python_starts(tmp_path: Path) -> None:
    """A server whose planners' process has ended runs on."""
    asked = asking(tmp_path / "none", tmp_path, TELL, OWN="x")
    out, err = asked.communicate(timeout=30)

    assert (json.loads(out)[0], json.loads(out)[2], err) == (asked.pid, ["one"], "")


def test_a_process_that_cannot_fork(tmp_path: Path) -> None:
    """Without memory for another one, say: it closes the connection, and Python starts."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        asked = asking(tmp_path / "socket", tmp_path, TELL, OWN="x")
        listener.accept()[0].close()
        out, err = asked.communicate(timeout=30)

    assert (json.loads(out)[0], json.loads(out)[2], err) == (asked.pid, ["one"], "")


def test_the_process_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Whatever ends it: that is logged, and the next planners are forked. The server is as ready as it was."""
    monkeypatch.setattr(planners, "_backgrounds", {})
    monkeypatch.setenv(planners.PLANNERS, "")
    planners.start_planners()
    path = Path(os.environ[planners.PLANNERS])

    def forked_from() -> int:
        out, _ = asking(path, tmp_path, TELL, OWN="").communicate(timeout=30)
        return int(json.loads(out)[1])

    wait_for(lambda: path.exists() and forked_from() != os.getpid(), 60)
    first = forked_from()
    os.kill(first, signal.SIGKILL)

    wait_for(lambda: forked_from() not in (first, os.getpid()), 60)
    assert "the process of planners ended (-9)" in caplog.text
    assert planners._backgrounds[str(path)].status().problem == ""


def test_the_process_ends_with_its_starter(tmp_path: Path) -> None:
    """Also if that one is killed."""
    path = tmp_path / "socket"
    program = (
        "import subprocess, sys\n"
        f"process = subprocess.Popen([sys.executable, '-m', {planners.__name__!r}, {str(path)!r}],"
        " stdin=subprocess.PIPE)\n"
        "print(process.pid, flush=True)\nprocess.wait()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    wait_for(path.exists, 60)
    starter.kill()
    starter.communicate()

    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
