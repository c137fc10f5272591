"""A range read filter by filter, and put back into the order of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from turnout.nats.wire.connection import Connection
from turnout.nats.wire.direct import DirectReader
from turnout.nats.wire.pull import PullReader, Range, hole
from turnout.nats.wire.read_strategy import ONE_CONSUMER, ReadStrategy, cover
from turnout.nats.wire.records import SCHEMA
from turnout.records.types import ArrowBatch
from turnout.subjects.pattern import SourceIndex, matches
from turnout.subjects.tokens import FULL, PARTIAL


class SubjectFilter:
    """Test of subjects against *filters*, with the server's rules for consumers; results are cached."""

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = tuple(filters)
        # To a mapping's source a token like *x is a wildcard, to a consumer's filter it is text.
        plain = all(
            token in (PARTIAL, FULL) or token[:1] != PARTIAL for filter_ in filters for token in filter_.split(".")
        )
        self._index = SourceIndex.build(filters) if plain else None
        self._known: dict[str, bool] = {}

    def of(self, batch: ArrowBatch) -> ArrowBatch:
        """Return the rows of a `turnout.nats.wire.records.SCHEMA` record batch whose topic matches, in order."""
        topics = batch.column("topic").dictionary_encode()
        passing = np.fromiter((self.passes(topic) for topic in topics.dictionary.to_pylist()), dtype=np.bool_)
        if passing.all():
            return batch
        return batch.filter(pa.array(passing[topics.indices.to_numpy()]))

    def passes(self, subject: str) -> bool:
        """Return True if one of the filters matches *subject*."""
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= _MAX_SUBJECTS:
                self._known.clear()
            known = self._known[subject] = self._matches(subject)
        return known

    def _matches(self, subject: str) -> bool:
        if self._index is None:
            return any(matches(filter_, subject) for filter_ in self._filters)
        tokens = subject.split(".")
        # A subject with an empty token, which only a stream's own transform makes, is matched by no filter.
        return "" not in tokens and self._index.first(subject, tokens) is not None


_MAX_SUBJECTS = 100_000
"""This many subjects are remembered; a stream where each message has its own would fill the memory."""


_BATCH_BYTES = 2 << 20


class RangeReader(Protocol):
    """Reader of one `Range`, usable once; same attributes as `turnout.nats.wire.pull.PullReader`."""

    @property
    def hole(self) -> int | None:
        """The lowest sequence that the last record batch steps over."""
        ...

    @property
    def next(self) -> int:
        """Sequence after the last message received."""
        ...

    def batches(self) -> Iterator[ArrowBatch]:
        """The record batches in the order of the stream."""
        ...


def reader_of(
    connection: Connection, range_: Range, strategy: ReadStrategy = ONE_CONSUMER, partition: int = 0
) -> RangeReader:
    """Return the reader of a range for a read strategy; all strategies read the same messages."""
    if strategy.kind == "by_sequence":
        return _sequence_reader(connection, range_)
    if strategy.kind == "wider_filter":
        wider = replace(range_, filters=strategy.cover)
        return FilteringReader(PullReader(connection, wider, partition, stream_end=strategy.stream_end), range_.filters)
    if strategy.kind == "per_filter":
        return PerFilterReader(connection, range_, strategy, partition)
    return PullReader(connection, range_, partition)


def _sequence_reader(connection: Connection, range_: Range) -> RangeReader:
    """Return a reader by sequence; several filters are read through their cover, as the server accepts only one."""
    if len(range_.filters) < 2:
        return DirectReader(connection, range_)
    return FilteringReader(DirectReader(connection, replace(range_, filters=(cover(range_.filters),))), range_.filters)


class FilteringReader:
    """Filters the output of another reader by *filters*; a batch may have no rows."""

    def __init__(self, reader: RangeReader, filters: Sequence[str]) -> None:
        self._reader = reader
        self._filter = SubjectFilter(filters)

    @property
    def hole(self) -> int | None:
        """First missing sequence, as in `PullReader`; messages filtered out here are not missing."""
        return self._reader.hole

    @property
    def next(self) -> int:
        """Sequence after the last message received, including filtered messages."""
        return self._reader.next

    def batches(self) -> Iterator[ArrowBatch]:
        """The record batches; raises as `turnout.nats.wire.pull.PullReader.batches`."""
        for batch in self._reader.batches():
            yield self._filter.of(batch)


class PerFilterReader:
    """Reads each filter with its own consumer, one after the other, for each step of the range.

    Attributes:
        hole: as with `turnout.nats.wire.pull.PullReader`.
        next: the sequence behind the last received one.
    """

    def __init__(self, connection: Connection, range_: Range, strategy: ReadStrategy, partition: int = 0) -> None:
        self._connection = connection
        self._range = range_
        self._strategy = strategy
        self._partition = partition
        self._begun = False
        self.hole: int | None = None
        self.next = max(1, range_.start)

    def batches(self) -> Iterator[ArrowBatch]:
        """The record batches; raises as `turnout.nats.wire.pull.PullReader.batches`."""
        step = self._strategy.step or self._range.end - self._range.start
        for start in range(self._range.start, self._range.end, step):
            for batch in self._read_step(start, min(self._range.end, start + step)):
                sequences = batch.column("offset").to_numpy()
                self.hole, self.next = hole(sequences, self.next), int(sequences[-1]) + 1
                yield batch

    def _read_step(self, start: int, end: int) -> Iterator[ArrowBatch]:
        batches: list[ArrowBatch] = []
        for filter_ in self._range.filters:
            part = replace(self._range, start=start, end=end, filters=(filter_,))
            reader = PullReader(
                self._connection, part, self._partition, stream_end=self._strategy.stream_end, begun=self._begun
            )
            batches += reader.batches()
            self._begun = True
        return _in_order(batches)


def _in_order(batches: list[ArrowBatch]) -> Iterator[ArrowBatch]:
    """Yield the rows of the batches in sequence order, in batches of about the usual read size."""
    if not any(batch.num_rows for batch in batches):
        return
    sequences = np.concatenate([batch.column("offset").to_numpy() for batch in batches])
    table = pa.Table.from_batches(batches, schema=SCHEMA)
    batches.clear()
    whole = table.combine_chunks().to_batches()[0]
    del table
    # The parts are ascending runs, which this sorting algorithm merges.
    order = np.argsort(sequences, kind="stable")
    # Filters may overlap without covering each other; the server does not refuse them.
    order = order[np.diff(sequences[order], prepend=-1) != 0]
    rows = max(1, int(len(order) * _BATCH_BYTES / max(1, whole.nbytes)))
    for first in range(0, len(order), rows):
        yield whole.take(pa.array(order[first : first + rows]))
