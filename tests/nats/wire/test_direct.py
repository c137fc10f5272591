"""Reading by sequence, and letting go of what is processed: for work queues and interest streams."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.nats.wire.proxy import CuttingProxy
from tests.nats.wire.samples import fill

from turnout.embedded import NatsServer
from turnout.errors import StreamError
from turnout.nats.wire import (
    Acknowledger,
    Connection,
    DirectReader,
    Publisher,
    PullReader,
    Range,
    create_stream,
    delete_stream,
    stream_info,
)
from turnout.nats.wire.per_filter_reader import RangeReader, reader_of
from turnout.nats.wire.positions import count_exactly, resolve, state_of
from turnout.nats.wire.read_strategy import BY_SEQUENCE


def rows(reader: RangeReader) -> list[dict[str, Any]]:
    batches = list(reader.batches())
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_both_readers_give_the_same_records(nats_server: NatsServer, connection: Connection) -> None:
    """By sequence or through a consumer: same columns, same values, with holes, filters and ends."""
    name = f"SAME{secrets.token_hex(4)}"
    create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "allow_direct": True})
    fill(nats_server, name, 12_000)
    for sequence in (1, 7, 8, 12_000):
        connection.api(f"STREAM.MSG.DELETE.{name}", {"seq": sequence})

    for expected in (
        Range(name, 1, 12_001), Range(name, 5, 9), Range(name, 7, 9), Range(name, 11_990, 99_999),
        Range(name, 3, 9_001, (f"{name}.1",)),
    ):  # fmt: skip
        with Connection.open(nats_server.url) as one, Connection.open(nats_server.url) as two:
            direct, pulled = rows(DirectReader(one, expected)), rows(PullReader(two, expected))
        assert [row["offset"] for row in direct] == [row["offset"] for row in pulled]
        assert direct == pulled
    delete_stream(connection, name)


def test_a_direct_read_over_a_connection_that_is_cut(nats_server: NatsServer, queue: str) -> None:
    """It continues after the last returned message."""
    fill(nats_server, queue, 9000)
    with CuttingProxy(nats_server.port, 300_000, 70_001) as proxy, Connection.open(proxy.url) as cut:
        read = rows(DirectReader(cut, Range(queue, 1, 9001)))

        assert proxy.cuts == 2
    assert [row["offset"] for row in read] == list(range(1, 9001))


def test_a_work_queue_takes_no_second_consumer(nats_server: NatsServer, connection: Connection, queue: str) -> None:
    """Which is why it is read by sequence: the pull reader is refused."""
    fill(nats_server, queue, 3)
    Acknowledger(connection, queue, "spark")

    with pytest.raises(StreamError):
        rows(PullReader(connection, Range(queue, 1, 4)))


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_who_looks_is_no_consumer(nats_server: NatsServer, connection: Connection, retention: str) -> None:
    """Places, times, counts and messages on several subjects are found, and the one consumer has everything to get."""
    name = f"LOOK{secrets.token_hex(4)}"
    config = {"name": name, "subjects": [f"{name}.*"], "storage": "memory", "allow_direct": True}
    create_stream(connection, {**config, "retention": retention})
    Acknowledger(connection, name, "run")
    middle = datetime.now(UTC)
    for n in range(6):
        middle = datetime.now(UTC) if n == 4 else middle
        with Connection.open(nats_server.url) as opened, Publisher(opened) as publisher:
            publisher.publish(f"{name}.{n % 3}", b"%d" % n)

    state = state_of(connection, name)
    filters = (f"{name}.0", f"{name}.2")
    read = rows(reader_of(connection, Range(name, 1, 7, filters), BY_SEQUENCE))

    assert state.consumed
    assert resolve(connection, name, middle) == 5
    assert resolve(connection, name, datetime.now(UTC)) == 7
    assert [row["offset"] for row in read] == [1, 3, 4, 6]
    assert count_exactly(connection, name, 2, 7) == 5
    assert count_exactly(connection, name, 2, 7, filters) is None
    consumer = connection.api(f"CONSUMER.INFO.{name}.run")
    held = stream_info(connection, name)["state"]
    assert (held["messages"], held["consumer_count"]) == (6, 1)
    assert (consumer["num_pending"], consumer["num_ack_pending"]) == (6, 0)
    delete_stream(connection, name)


def test_other_streams_have_no_such_consumers(connection: Connection) -> None:
    """Consumers may read streams with limits retention."""
    name = f"LIMITS{secrets.token_hex(4)}"
    create_stream(connection, {"name": name, "subjects": [name], "storage": "memory"})

    assert not state_of(connection, name).consumed
    delete_stream(connection, name)


def test_a_stream_without_direct_access(nats_server: NatsServer, connection: Connection) -> None:
    """The cure is named."""
    name = f"NODIRECT{secrets.token_hex(4)}"
    create_stream(connection, {"name": name, "subjects": [name], "storage": "memory"})

    with pytest.raises(StreamError, match="needs allow_direct"):
        rows(DirectReader(connection, Range(name, 1, 2)))
    delete_stream(connection, name)
