"""Records of dead letters, as their partitions of Kafka still have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pyarrow as pa

from turnout.base.deferred import pc
from turnout.base.untrusted import JsonObject
from turnout.engine.sample_records import SampleRecord
from turnout.routes.endpoints import KafkaSource
from turnout.runtime.endpoints.kafka_history import KafkaHistory
from turnout.runtime.endpoints.record_rows import record_of, rows_of

_FAR = 10_000
"""Maximum distance of offsets that one connection reads."""


def kafka_originals(
    source: KafkaSource, opens: Callable[[], AbstractContextManager[KafkaHistory]], records: Sequence[SampleRecord]
) -> list[SampleRecord]:
    """Return records as their partitions have them; as given are deleted ones, and those of other or earlier topics.

    Args:
        source: source of the records.
        opens: opens its history.
        records: the records; each has its topic, its partition and its offset.
    """
    offsets: dict[str, set[int]] = {}
    for record in records:
        if record.offset is not None and source.reads(record.topic):
            offsets.setdefault(f"{record.topic}:{record.partition}", set()).add(record.offset)
    found: dict[tuple[str, int], JsonObject] = {}
    ids: dict[str, str | None] = {}
    if not offsets:
        return list(records)
    with opens() as history:
        ids |= history.topic_ids
        for stream in offsets.keys() & set(history.streams):
            bounds = history.bounds(stream)
            for start, end in _runs(offset for offset in offsets[stream] if bounds.first <= offset < bounds.next):
                for batch in history.read(stream, start, end):
                    chosen = batch.filter(pc.is_in(batch.column("offset"), value_set=pa.array(list(offsets[stream]))))
                    found |= {(stream, row["offset"]): row for row in rows_of(chosen)}
    rows = [
        found.get((f"{record.topic}:{record.partition}", record.offset or 0))
        if record.identity in ("", ids.get(record.topic) or record.identity)
        else None
        for record in records
    ]
    return [
        record if row is None else replace(record_of(row, None), identity=record.identity)
        for record, row in zip(records, rows, strict=True)
    ]


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges that have these offsets, without the larger gaps between them."""
    start = last = None
    for offset in sorted(offsets):
        if start is None or last is None or offset - last > _FAR:
            if start is not None and last is not None:
                yield start, last + 1
            start = offset
        last = offset
    if start is not None and last is not None:
        yield start, last + 1
