"""Acknowledging what was read by sequence."""

from __future__ import annotations

import time

from tests.nats.wire.samples import fill

from turnout.embedded import NatsServer
from turnout.nats.wire import Acknowledger, Connection, stream_info


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
    """Return the messages left in the stream: the server confirms an acknowledgement before it has removed them all."""
    deadline = time.monotonic() + 10
    while (left := stream_info(connection, queue)["state"]["messages"]) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(left)
