"""Acknowledging what was read by sequence."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest

from turnout.embedded import NatsServer
from turnout.nats.wire import (
    Acknowledger,
    Connection,
    Publisher,
    create_stream,
    delete_stream,
    stream_info,
)


@pytest.fixture
def queue(connection: Connection) -> Iterator[str]:
    name = f"QUEUE{secrets.token_hex(4)}"
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "retention": "workqueue"}
    create_stream(connection, {**config, "allow_direct": True})
    yield name
    delete_stream(connection, name)


def fill(server: NatsServer, stream: str, count: int) -> None:
    with Connection.open(server.url) as opened:
        publisher = Publisher(opened)
        for n in range(count):
            publisher.publish(f"{stream}.{n % 2}", b"%d" % n, [("A", "b")] if n % 5 == 0 else (), f"{n}")
        publisher.flush()


def test_what_is_acknowledged_goes_and_nothing_else(
    nats_server: NatsServer, connection: Connection, queue: str
) -> None:
    """Up to the sequence, in batches of any size; again is nothing; the rest is there for the next call."""
    fill(nats_server, queue, 3000)

    first = Acknowledger(connection, queue, "spark")
    assert [first.acknowledge(end) for end in (11, 12, 700, 1201)] == [10, 1, 688, 501]
    assert left(connection, queue, 1800) == 1800
    with Connection.open(nats_server.url) as another:
        acknowledger = Acknowledger(another, queue, "spark")
        assert acknowledger.floor == 1201
        assert acknowledger.acknowledge(1201) == 0
        assert acknowledger.acknowledge(99_999) == 1800
    assert left(connection, queue, 0) == 0


def left(connection: Connection, queue: str, expected: int) -> int:
    """What the stream holds: the server confirms an acknowledgement of many before it has taken all of them off."""
    deadline = time.monotonic() + 10
    while (left := stream_info(connection, queue)["state"]["messages"]) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(left)
