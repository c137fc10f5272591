"""Requests to the driver's index server: revisions, and the files of one."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from tests.runtime.index.conftest import Folder

from turnout.runtime.driver import AskedRevisions, IndexServer


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
