"""Streams and publishers of the tests of the blocking client."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream


@pytest.fixture
def queue(connection: Connection) -> Iterator[str]:
    name = f"QUEUE{secrets.token_hex(4)}"
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "retention": "workqueue"}
    create_stream(connection, {**config, "allow_direct": True})
    yield name
    delete_stream(connection, name)


@pytest.fixture
def publisher(nats_server: NatsServer) -> Iterator[Publisher]:
    with Connection.open(nats_server.url) as opened:
        yield Publisher(opened, window=200)
