"""Requests to the driver's index server: revisions, and the files of one."""

from __future__ import annotations

import errno
import select
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
from tests.runtime.conftest import Folder
from tests.runtime.fakes import FakeRevisions, read

from turnout.errors import ConnectionLostError, RunError
from turnout.runtime.driver import AskedRevisions, IndexServer, OpenSession, OpenSplitServer, ask_plan
from turnout.runtime.open_splits import OpenProgress, OpenSplits, Plan, ProgressFolder, position_after


def test_the_source_asks_for_revisions(folder: Folder, server: IndexServer) -> None:
    """The newest, one that is kept, and for one that is not kept its replacement."""
    folder.put(4, a="one")
    folder.put(9, a="")
    asked = AskedRevisions(server.url)

    assert [asked.newest(), asked.usable(4), asked.usable(3)] == [9, 4, 9]


@pytest.mark.parametrize("path", ["", "1", "TOKEN", "TOKEN/x", "TOKEN/2", "TOKEN/1/b", "TOKEN/1/../.place", "WRONG/1"])
def test_only_the_files_of_a_revision_are_served(folder: Folder, server: IndexServer, path: str) -> None:
    """Without the token, or for anything else, the answer is 404."""
    folder.put(1, a="one")
    (folder.path / "b").write_text("another run's")
    base, token = server.url.rsplit("/", 1)

    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        urllib.request.urlopen(f"{base}/{path.replace('TOKEN', token)}")
    refused.value.close()
    with urllib.request.urlopen(f"{server.url}/1/a") as answer:
        assert answer.read() == b"one"


def test_all_workers_of_a_cluster_connect_at_once(folder: Folder) -> None:
    """Before the first is answered: none is turned away to connect again seconds later."""
    waiting = IndexServer(folder)
    address = urlsplit(waiting.url)
    with ExitStack() as workers:
        for _ in range(300):
            workers.enter_context(socket.create_connection((address.hostname, address.port), timeout=5))
    with waiting:
        pass


@pytest.fixture
def splits(tmp_path: Path) -> OpenSplits:
    made = OpenSplits(tmp_path, FakeRevisions(3))
    made.seconds = 30.0
    return made


@pytest.fixture
def address(splits: OpenSplits) -> Iterator[str]:
    with OpenSplitServer(splits) as server:
        yield server.address


def wait_for(session: OpenSession, condition: Callable[[], bool]) -> None:
    """Listen until *condition* is true; the socket signals new messages."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it was not said within 120 s"
        select.select([session.socket], [], [], 1)
        session.listen()


def test_a_task_reports_and_is_told(splits: OpenSplits, address: str, tmp_path: Path) -> None:
    """It gets its position, each new revision, and the end; what it reports is recorded."""
    revisions = splits._revisions
    assert isinstance(revisions, FakeRevisions)
    assert ask_plan(address, None) == Plan(None, 1, opens=True)
    with OpenSession(address) as session:
        assert session.begin(1, 7, 3) == OpenProgress(7, revision=3)
        assert (session.seconds, session.revision, session.closing) == (30.0, 3, False)
        session.record(OpenProgress(9, read(2), 3), wait=True)
        assert position_after(tmp_path, 1) == 9
        revisions.now = 4
        wait_for(session, lambda: session.revision == 4)
        session.record(OpenProgress(12, read(5), 4))
        splits.close()
        wait_for(session, lambda: session.closing)
        session.record(OpenProgress(13, read(6), 4), final=True)
    assert ask_plan(address, 1) == Plan(13, 2, opens=False)
    assert splits.counts() == {1: read(6)}


def test_the_next_attempt_ends_the_one_before(address: str) -> None:
    """This includes an attempt that only listens, because its process may still be alive."""
    with OpenSession(address) as first, OpenSession(address) as second:
        first.begin(1, 1, 3)
        second.begin(1, 1, 3)
        with pytest.raises(ConnectionLostError, match="the driver has ended this attempt to read an open split"):
            wait_for(first, lambda: False)
        second.record(OpenProgress(2, read(1), 3), final=True)


def test_a_driver_that_ends(splits: OpenSplits) -> None:
    """Its tasks are notified immediately, and can no longer report."""
    with OpenSplitServer(splits) as server:
        address = server.address
        session = OpenSession(address)
        session.begin(1, 1, 3)
    with session, pytest.raises(ConnectionLostError):
        session.record(OpenProgress(2, read(1), 3), final=True)
    with pytest.raises(ConnectionLostError, match="the driver does not answer"):
        ask_plan(address, None)


def test_a_disk_that_is_full(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task ends with the reason."""
    with OpenSession(address) as session:
        session.begin(1, 1, 3)
        monkeypatch.setattr(ProgressFolder, "write", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(RunError, match="cannot be recorded: No space left on device"):
            session.record(OpenProgress(2, read(1), 3), wait=True)


@pytest.mark.parametrize(
    "said",
    [
        b'{"token": "wrong", "plan": 1}\n',
        b"no json\n",
        b"[1, 2]\n",
        b'{"plan": 1}\n',
        b"\xff" * (3 << 20),
        b'{"token": TOKEN, "begin": -1, "start": 1, "revision": null}\n',
        b'{"token": TOKEN, "begin": 1, "start": 1, "revision": null}\n{"progress": 1}\n',
    ],
)
def test_nonsense_ends_the_connection(splits: OpenSplits, address: str, said: bytes) -> None:
    """Other connections are served, and nothing is recorded."""
    host, port, token = address.split(" ")
    with socket.create_connection((host, int(port)), timeout=30) as other:
        try:
            other.sendall(said.replace(b"TOKEN", f'"{token}"'.encode()))
            while other.recv(1 << 16):
                pass
        except ConnectionError:
            pass
    assert ask_plan(address, 1) == Plan(None, 2, opens=True)
