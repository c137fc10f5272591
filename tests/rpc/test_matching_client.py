"""Watches of matches: their end with the server, and how many there may be."""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest

from tests.contracts.store import subscription
from turnout.errors import StoreUnavailableError
from turnout.rpc.channel import Channel
from turnout.rpc.matching_client import MatchingClient
from turnout.rpc.server import subscriptions_server


def test_shutdown_ends_watching(backing, settings):
    """A watcher is told that the server stops, and from which revision to continue."""
    server = subscriptions_server(backing, settings).start()
    client = MatchingClient(Channel(f"127.0.0.1:{server.port}"))
    backing.create(subscription())
    watching = client.watch()
    next(watching)
    begun = time.monotonic()
    server.stop()

    with pytest.raises(StoreUnavailableError):
        next(watching)
    assert time.monotonic() - begun < settings.grace_seconds
    client.close()


def test_streams_leave_room(server, channel, store):
    """However many watch, short calls are answered, and one stream too many is refused."""
    clients = [MatchingClient(channel) for _ in range(server.settings.workers * 3 // 4)]
    store.create(subscription())
    streams = [client.watch() for client in clients]
    for stream in streams:
        next(stream)
    one_more = MatchingClient(channel)

    assert len(store.snapshot()) == 1
    with pytest.raises(StoreUnavailableError, match="too many streams"):
        next(one_more.watch())
    for stream in streams:
        assert isinstance(stream, Generator)
        stream.close()
    for client in [*clients, one_more]:
        client.close()
