"""Records as their partitions still have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from turnout.engine.sample_records import SampleRecord
from turnout.kafka.reader import SCHEMA
from turnout.routes.endpoints import KafkaSource
from turnout.runtime.endpoints.adapter import StreamEnd
from turnout.runtime.endpoints.kafka.history import kafka_originals

SOURCE = KafkaSource.model_validate({"format": "kafka", "servers": "localhost:9092", "topics": ["a", "b"]})


class Partitions:
    """Partitions with the offsets 10 to 59,999, whose records have their offset as value."""

    streams = ("a:0", "a:1")
    topic_ids: ClassVar[dict[str, str | None]] = {"a": "second"}

    def __init__(self) -> None:
        self.reads: list[tuple[str, int, int]] = []

    def bounds(self, _stream: str) -> StreamEnd:
        return StreamEnd(10, 60_000)

    def read(self, stream: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        self.reads.append((stream, start, end))
        topic, _, number = stream.partition(":")
        rows = [
            {"topic": topic, "partition": int(number), "offset": offset, "value": b"%d" % offset, "timestamp": 5}
            for offset in range(start, end)
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def originals(partitions: Partitions, *positions: tuple[str, int, int]) -> list[bytes | None]:
    @contextmanager
    def opens() -> Iterator[Any]:
        yield partitions

    records = [SampleRecord(topic, b"old", None, (), number, offset, None) for topic, number, offset in positions]
    return [record.value for record in kafka_originals(SOURCE, opens, records)]


def test_positions() -> None:
    """Records that were deleted, or are in another topic or partition, stay as they are."""
    found = originals(Partitions(), ("a", 0, 12), ("a", 1, 12), ("a", 0, 9), ("a", 7, 12), ("c", 0, 12), ("a", 0, 15))

    assert found == [b"12", b"12", b"old", b"old", b"old", b"15"]


def test_records_of_an_earlier_topic() -> None:
    """A topic that was made anew gives its offsets to other records: those of the earlier one stay as they are."""

    @contextmanager
    def opens() -> Iterator[Any]:
        yield Partitions()

    records = [SampleRecord("a", b"old", None, (), 0, 12, None, None, id_) for id_ in ("first", "second", "")]
    found = kafka_originals(SOURCE, opens, records)

    assert [(record.value, record.identity) for record in found] == [(b"old", "first"), (b"12", "second"), (b"12", "")]


def test_records_that_are_far_apart() -> None:
    """What is near is read at once; large gaps are not read."""
    partitions = Partitions()

    assert originals(partitions, ("a", 0, 20), ("a", 0, 50_000), ("a", 0, 5_000)) == [b"20", b"50000", b"5000"]
    assert partitions.reads == [("a:0", 20, 5_001), ("a:0", 50_000, 50_001)]


def test_no_position_of_the_source() -> None:
    """Nothing is opened."""
    partitions = Partitions()

    assert originals(partitions, ("c", 0, 12)) == [b"old"]
    assert partitions.reads == []
