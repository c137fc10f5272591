"""Origins of records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from turnout.engine.message_ids import (
    dead_suffix,
    ids_of_listed,
    message_ids,
    origins,
    origins_of_topics,
    record_ids,
    suffix,
)
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire.records import with_stream
from turnout.records.listed import STREAM_ID, TOPIC_ID, ListedRecords

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
        label,
        ["a"] * count,
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
