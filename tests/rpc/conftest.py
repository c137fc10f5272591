"""Servers on loopback for the tests of this folder."""

from __future__ import annotations

import pytest

from turnout.rpc.client import Channel, MatchingClient
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import ServerSettings, subscriptions_server
from turnout.subscriptions import open_store


@pytest.fixture
def settings():
    return ServerSettings(host="127.0.0.1", port=0, grace_seconds=2.0, log_level="error")


@pytest.fixture
def backing(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
        yield store


@pytest.fixture
def server(backing, settings):
    with subscriptions_server(backing, settings) as server:
        yield server


@pytest.fixture
def channel(server):
    return Channel(f"127.0.0.1:{server.port}", timeout=10)


@pytest.fixture
def store(channel):
    with RemoteStore(channel) as store:
        yield store


@pytest.fixture
def client(channel):
    client = MatchingClient(channel)
    yield client
    client.close()
