"""Origins of records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.engine.batches import DEAD, ROUTE, SINK, WANTED, batch, program, sent
from turnout.conditions import kiwi
from turnout.engine.messages import (
    REVISION,
    SOURCE,
    dead_suffix,
    ids_of_listed,
    message_ids,
    origins,
    origins_of_topics,
    record_ids,
    suffix,
)
from turnout.engine.messages import ROUTE as ROUTE_HEADER
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire.records import with_stream
from turnout.records.batch import STREAM_ID, TOPIC_ID, ListedRecords
from turnout.routes import digest_of
from turnout.subscriptions import Snapshot, Subscription
from turnout.subscriptions.index import Index

PRESENT = StreamIdentity.of("2026-11-28T15:10:45.5Z")


@pytest.mark.parametrize("count", [3, 100])
def test_few_and_many_records_have_the_same_origins(count: int) -> None:
    """A stream's sequence, a topic's partition and offset; null where the offset is unknown."""
    offsets = pa.array([None, *range(1, count)], pa.int64())
    of_stream = pa.RecordBatch.from_pydict({"stream": pa.array(["S"] * count), "offset": offsets})
    of_topic = pa.RecordBatch.from_pydict(
        {"topic": pa.array(["t"] * count), "partition": pa.array([2] * count, pa.int32()), "offset": offsets}
    )

    assert origins(of_stream).to_pylist() == [None, *(f"S:{number}" for number in range(1, count))]
    assert origins(of_topic).to_pylist() == [None, *(f"t:2:{number}" for number in range(1, count))]


def test_suffixes_of_different_parts_differ() -> None:
    """This holds even if the joined parts are the same text, and between a delivery and its dead letter."""
    assert len({suffix("ab", "c"), suffix("a", "bc"), suffix("abc"), dead_suffix("ab", "c"), dead_suffix("ab")}) == 5
    assert suffix("ab", "c") == suffix("ab", "c")


def records(count: int) -> pa.RecordBatch:
    times = pa.array(range(1_000_000, 1_000_000 + count), pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_pydict({"offset": pa.array(range(1, count + 1), pa.int64()), "timestamp": times})


@pytest.mark.parametrize("count", [3, 100])
@pytest.mark.parametrize("identity", [PRESENT, StreamIdentity.adopted(PRESENT.created), None])
def test_ids_name_the_stream_and_the_time_of_the_record(count: int, identity: StreamIdentity | None) -> None:
    """Few, many and listed records have the same; those of a checkpoint of an earlier release have neither."""
    batch = with_stream(records(count), "S", identity)
    label = "S" if identity is None else identity.label("S")
    listed = ListedRecords(
        record_ids(batch).to_pylist(),
        ["a"] * count,
        [0] * count,
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        [None] * count,
        [b""] * count,
        [()] * count,
        lambda: batch,
    )
    ends = [":A", None, ":B"]

    ids = message_ids(batch, np.array([0, 1, 2]), pa.array(ends)).to_pylist()

    known = identity is PRESENT
    assert origins(batch).to_pylist()[:2] == [f"{label}:1", f"{label}:2"]
    assert ids == ([f"{label}:1:1000000:A", None, f"{label}:3:1000002:B"] if known else ["S:1:A", None, "S:3:B"])
    assert ids_of_listed(listed, [0, 1, 2], ends) == ids


@pytest.mark.parametrize("count", [3, 100])
def test_ids_name_the_topic_of_kafka(count: int) -> None:
    """Behind the position are the topic's id and the record's time, which are others in another topic of its name and
    after a restoration; origins have none, and those of letters no time."""
    offsets = pa.array([None, *range(1, count)], pa.int64())
    batch = pa.RecordBatch.from_pydict(
        {"topic": pa.array(["t"] * count), "partition": pa.array([2] * count, pa.int32()), "offset": offsets}
    )
    times = pa.array([None if row == 2 else row for row in range(count)], pa.timestamp("us", tz="UTC"))
    batch = batch.append_column("timestamp", times)
    identified = batch.append_column(TOPIC_ID, pa.array([None if row == 1 else "x" for row in range(count)]))

    assert origins(identified).to_pylist() == origins(batch).to_pylist()
    assert record_ids(identified.slice(0, 3)).to_pylist() == [None, "t:2:1", "t:2:2:x"]
    assert record_ids(identified).to_pylist()[-1] == f"t:2:{count - 1}:x" + ("" if count == 3 else f":{count - 1}")
    assert origins_of_topics(identified).to_pylist()[:3] == [None, "t:2:1", "t:2:2:x"]


def test_letters_of_two_releases_in_one_batch() -> None:
    """Each record has the id that its own release gave it."""
    batch = records(2).append_column("stream", pa.array(["S", "S"]))
    batch = batch.append_column(STREAM_ID, pa.array([PRESENT.label("S"), None], pa.string()))

    assert record_ids(batch).to_pylist() == [f"{PRESENT.label('S')}:1:1000000", "S:2"]


SAYS = 'sink: {format: nats, servers: "nats://127.0.0.1:4222", lineage: true}\n'
TWO = (
    'sinks:\n  first: {format: nats, servers: "nats://127.0.0.1:4222"}\n'
    '  second: {format: json, path: "out", lineage: true}\n'
)
OULU = {"n": 1, "city": "Oulu"}
LOST = {"value": b"{"}


def test_a_delivery_says_where_it_is_from() -> None:
    """Route, revision and record; what an earlier route said of itself is replaced; dead letters have none."""
    index = Index.of(Snapshot((Subscription(("out",), kiwi("town", "*"), id="s"),), 7))
    ran = program(SAYS, DEAD, WANTED)
    earlier = [("Kind", "odd"), (SOURCE, "OTHER:9"), (REVISION, "1")]

    result = ran.run(batch([LOST, {"value": OULU, "headers": earlier}, {"value": OULU}]), index)

    first, second, letter = (headers for _, _, _, headers in sent(result.messages))
    route = f"test@{digest_of(ROUTE + SAYS + DEAD + WANTED)}".encode()
    assert first == [("Kind", b"odd"), (ROUTE_HEADER, route), (REVISION, b"7"), (SOURCE, b"S:2")]
    assert second == [(ROUTE_HEADER, route), (REVISION, b"7"), (SOURCE, b"S:3")]
    assert not {ROUTE_HEADER, SOURCE} & {name for name, _ in letter}


def test_without_subscriptions_and_from_kafka() -> None:
    """There is no revision then, and a record's place is its topic, partition and offset."""
    result = program(SAYS, DEAD).run(batch([{"value": OULU}], stream=None))

    ((_, _, _, headers),) = sent(result.messages)
    assert [name for name, _ in headers] == [ROUTE_HEADER, SOURCE]
    assert dict(headers)[SOURCE] == b"in.a.b:0:1"


def test_only_where_it_is_asked_for() -> None:
    """A sink that does not ask gets the records as they are, from the same batch."""
    subscription = Subscription(("first:a", "second:b"), kiwi("town", "*"), id="s")
    result = program(TWO, DEAD.replace("dead}", "first:dead}"), WANTED).run(
        batch([{"value": OULU, "headers": [("Kind", "odd")]}, LOST]), Index.of([subscription])
    )

    names = {topic: [name for name, _ in headers] for topic, _, _, headers in sent(result.messages)}
    assert (names["a"], names["b"]) == (["Kind"], ["Kind", ROUTE_HEADER, REVISION, SOURCE])
    assert SOURCE not in names["dead"]


def test_off_is_off() -> None:
    """Without the option nothing is added."""
    result = program(SINK, DEAD).run(batch([{"value": OULU}]))

    assert [headers for _, _, _, headers in sent(result.messages)] == [[]]
