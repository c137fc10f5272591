"""Examples of differences: of each kind the first few by sequence, however the records were split among tasks."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from turnout.history.outcome_comparison import ABSENT
from turnout.history.text_report import plain
from turnout.records.types import ArrowBatch, RowIds

_MAX_VALUE_CHARACTERS = 300
"""Maximum number of characters shown of a value."""


class RecordPosition(NamedTuple):
    """Stored position of a record; positions sort by sequence.

    Attributes:
        offset: the sequence in a stream, or the offset in a partition; -1 where it is not known.
        stream: the stream, or Kafka's topic.
        partition: 0 for streams.
    """

    offset: int
    stream: str
    partition: int


class Example(NamedTuple):
    """Record that shows a difference.

    Attributes:
        place: its position.
        topic: topic of the record.
        old: the old version's side, as text; None for nothing.
        new: likewise.
    """

    position: RecordPosition
    topic: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples by kind.

    Attributes:
        limit: how many of each kind are kept.
        by_kind: (kind, what of it: a field, a header …) → the first by sequence.
    """

    limit: int = 5
    by_kind: Mapping[tuple[str, str], tuple[Example, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, limit: int, by_kind: Mapping[tuple[str, str], Sequence[Example]]) -> Examples:
        """Return the first of these."""
        return cls(limit, {kind: _first(examples, limit) for kind, examples in by_kind.items()})

    def __add__(self, others: Examples) -> Examples:
        limit = max(self.limit, others.limit)
        together = dict(self.by_kind)
        for kind, examples in others.by_kind.items():
            before = together.get(kind)
            together[kind] = examples if before is None else _first((*before, *examples), limit)
        return Examples(limit, together)


def _first(examples: Sequence[Example], limit: int) -> tuple[Example, ...]:
    return tuple(heapq.nsmallest(limit, examples, key=_order))


def _order(example: Example) -> tuple[RecordPosition, str, str]:
    return example.position, example.old or "", example.new or ""


class RecordPositions:
    """Stored positions of a batch's records; columns are read only for records with something to show.

    Args:
        batch: as it was read.
    """

    def __init__(self, batch: ArrowBatch) -> None:
        names = batch.schema.names
        self._batch = batch
        self._named = "stream" if "stream" in names else "topic"
        self._offsets = _numbers(batch, "offset", -1)
        self._partitions = _numbers(batch, "partition", 0)
        self._columns: dict[str, list[str | None]] = {}

    def of(self, row: int) -> RecordPosition:
        """Return the place of one record."""
        return RecordPosition(int(self._offsets[row]), self._texts(self._named)[row] or "", int(self._partitions[row]))

    def topic(self, row: int) -> str:
        """Return the source topic of one record."""
        return self._texts("topic")[row] or ""

    def _texts(self, name: str) -> list[str | None]:
        texts = self._columns.get(name)
        if texts is None:
            texts = self._columns[name] = self._batch.column(name).to_pylist()
        return texts

    def first(self, rows: RowIds, limit: int) -> list[int]:
        """Return the indices into *rows* of the first *limit* by sequence; items of one record keep their order."""
        if len(rows) <= limit or not limit:
            return list(range(len(rows)))[:limit]
        offsets = self._offsets[rows]
        # All with the last offset are compared: records of several topics may have it.
        first_indices = np.flatnonzero(offsets <= np.partition(offsets, limit - 1)[limit - 1]).tolist()
        return sorted(first_indices, key=lambda at: (self.of(int(rows[at])), at))[:limit]


def _numbers(batch: ArrowBatch, name: str, unknown: int) -> RowIds:
    if name not in batch.schema.names:
        return np.full(batch.num_rows, unknown, np.int64)
    column = batch.column(name).cast(pa.int64())
    numbers: RowIds = column.fill_null(unknown).to_numpy(zero_copy_only=False)
    return numbers


def text_of(value: object) -> str | None:
    """Return a value as JSON, truncated if it is long; None if the value is absent."""
    if value is ABSENT:
        return None
    text = json.dumps(plain(value), ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"
