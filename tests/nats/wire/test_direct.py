"""Reading by sequence, and letting go of what is processed: for work queues and interest streams."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nats.wire.proxy import CuttingProxy
from tests.nats.wire.samples import PATTERNS, TOKENS, fill, sparse_stream

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
from turnout.nats.wire.direct import (
    BY_SEQUENCE,
    ONE_CONSUMER,
    WHOLE_STREAM,
    RangeReader,
    ReadCost,
    ReadStrategy,
    SubjectFilter,
    choose_strategy,
    cover,
    reader_of,
)
from turnout.nats.wire.pull import hole
from turnout.nats.wire.streams import count_exactly, resolve, state_of
from turnout.subjects.pattern import is_subset, matches


@pytest.fixture
def stream(connection: Connection) -> Iterator[str]:
    with sparse_stream(connection) as name:
        yield name


@pytest.mark.jetstream
def test_a_way_for_a_real_range(connection: Connection, stream: str) -> None:
    """Little of much is read by filters, most of it whole, a small range whole; a filter within another is refused."""
    rare = tuple(f"{stream}.a.{n}" for n in range(2))

    assert choose_strategy(connection, stream, 1, 6002, (f"{stream}.a.*",)) == ONE_CONSUMER
    assert choose_strategy(connection, stream, 1, 6002, (f"{stream}.none", f"{stream}.no.*")) == ONE_CONSUMER
    letters = tuple(f"{stream}.{letter}.*" for letter in "abc")
    assert choose_strategy(connection, stream, 1, 6002, letters) == WHOLE_STREAM
    assert choose_strategy(connection, stream, 1, 1000, rare) == WHOLE_STREAM
    assert choose_strategy(connection, stream, 1, 1, rare) == ONE_CONSUMER
    with pytest.raises(StreamError, match="overlap"):
        choose_strategy(connection, stream, 1, 6002, (f"{stream}.a.*", f"{stream}.a.1"))


def test_what_costs_least() -> None:
    """The order of the ways that was measured, at 100,000 messages of 300 bytes."""
    cost = ReadCost(100_000, 300)

    # 30 filters, 112 messages: 0.02 s against 0.15 s and 0.6 s.
    assert cost.one_consumer(112) < min(cost.per_filter(112, 30), cost.whole())
    # 10 filters, 10,055 messages: 3.0 s against 0.47 s and 0.6 s.
    assert cost.per_filter(10_055, 10) < cost.whole() < cost.one_consumer(10_055)
    # 30 filters, 30,022 messages: 11 s against 1.5 s and 0.6 s.
    assert cost.whole() < cost.per_filter(30_022, 30) < cost.one_consumer(30_022)


@given(st.lists(PATTERNS, min_size=1, max_size=5))
def test_a_cover_is_wide_enough(filters: list[str]) -> None:
    """It is a superset of each filter, and one filter is its own."""
    wider = cover(filters)

    assert all(is_subset(filter_, wider) for filter_ in filters)
    assert cover(filters[:1]) == filters[0]


def test_covers() -> None:
    """Tokens that are the same stay, also before what differs in length."""
    assert cover(["a.JFK.*.UA", "a.JFK.*.B6"]) == "a.JFK.*.*"
    assert cover(["a.b.c", "a.b.>"]) == cover(["a.b.c", "a.b.d.e"]) == "a.b.>"
    assert cover(["a.b", "a.b.c"]) == "a.>"
    assert cover(["a", "b.c"]) == ">"


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


SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)


def read(connection: Connection, part: Range, way: ReadStrategy) -> list[dict[str, Any]]:
    """The rows; the holes that the reader tells are those of what it gives."""
    reader = reader_of(connection, part, way)
    batches, expected = [], part.start
    for batch in reader.batches():
        if way.kind != "wider_filter" and batch.num_rows:
            sequences = batch.column("offset").to_numpy()
            assert reader.hole == hole(sequences, expected)
            expected = reader.next
        batches.append(batch)
    assert connection.api(f"STREAM.INFO.{part.stream}")["state"]["consumer_count"] == 0
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@pytest.mark.jetstream
@pytest.mark.parametrize("bounds", [(1, 6002), (1, 2000), (2500, 2600), (5990, 6002), (40, 41)])
def test_each_way_gives_the_same(connection: Connection, stream: str, bounds: tuple[int, int]) -> None:
    """Same messages, same order, at every edge of pieces, with holes, to the end of the stream and before it."""
    whole = list(PullReader(connection, Range(stream, *bounds)).batches())
    rows = pa.Table.from_batches(whole).to_pylist() if whole else []
    for tokens in (["a.1", "b.*"], ["a.*", "*.2", "*.3", "*.4"], ["c.7", "none.*", "end"], ["never", "no.>"]):
        filters = tuple(f"{stream}.{token}" for token in tokens)
        expected = [row for row in rows if any(matches(filter_, row["topic"]) for filter_ in filters)]
        part = Range(stream, *bounds, filters)
        for way in (
            ONE_CONSUMER,
            WHOLE_STREAM,
            ReadStrategy("wider_filter", (f"{stream}.>",), 0, 6002),
            ReadStrategy("per_filter", (), 10_000, 6002),
            ReadStrategy("per_filter", (), 700, 6002),
        ):
            assert read(connection, part, way) == expected, (filters, way)


@pytest.mark.jetstream
def test_many_filters_in_the_order_of_the_stream(connection: Connection, stream: str) -> None:
    """There is one consumer per filter, one after the other, and no message of one in another."""
    filters = tuple(f"{stream}.{letter}.{n}" for letter in "abcd" for n in range(10))

    rows = read(connection, Range(stream, 1, 6001, filters), ReadStrategy("per_filter", (), 3000, 6002))

    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    assert len(rows) == 5400


@pytest.mark.jetstream
def test_large_messages_behind_the_range(connection: Connection) -> None:
    """Partly received messages beyond the end do not affect the next consumers."""
    name = f"WAYS{secrets.token_hex(4)}"
    create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
    try:
        for n in range(60):
            connection.request(f"{name}.{n % 3}", b"%d" % n * 150_000)
        filters = tuple(f"{name}.{n}" for n in range(3))

        server = connection.server
        rows = read(connection, Range(name, 1, 11, filters), ReadStrategy("per_filter", (), 4))

        assert [row["offset"] for row in rows] == list(range(1, 11))
        assert connection.server is server
    finally:
        delete_stream(connection, name)


@given(st.lists(PATTERNS, min_size=1, max_size=5), st.lists(SUBJECTS | st.just("a..b"), max_size=20))
def test_the_filter_matches_as_a_consumer_does(filters: list[str], subjects: list[str]) -> None:
    """Row by row as `turnout.subjects.pattern.matches`, wildcards and tokens that only begin with a star included."""
    batch = pa.RecordBatch.from_pydict({"topic": pa.array(subjects, pa.string())})

    left = SubjectFilter(filters).of(batch).column("topic").to_pylist()

    assert left == [subject for subject in subjects if any(matches(filter_, subject) for filter_ in filters)]
