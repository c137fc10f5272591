"""What batch and streaming reads of NATS share: places in streams, splitting, and reading one split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from turnout.errors import ConfigError, Mistake
from turnout.spark.formats.nats.holes import LossWatch
from turnout.spark.formats.nats.options import SourceOptions
from turnout.spark.formats.nats.packed import not_read_row, pack
from turnout.spark.workers.garbage import spare_collections
from turnout.wire import Connection, Range
from turnout.wire.apart import reader_of
from turnout.wire.places import StreamState, resolve, state_of
from turnout.wire.records import SCHEMA
from turnout.wire.ways import BESIDE, TOGETHER, WHOLE, Way, way_of

__all__ = [
    "ArrowColumns",
    "Columns",
    "Split",
    "StreamState",
    "beside",
    "columns_of",
    "planned",
    "read_split",
    "resolve",
    "split",
    "state_of",
]

_SMALLEST_SPLIT = 10_000


class Split(InputPartition):
    """A part of one stream that one task reads; nothing at all where *end* is not above *start*.

    Attributes:
        filters: the subjects to read, none for nothing; None for all that the options name.
        way: how to read several filters; it changes nothing of what is read.
        counted: of how many messages, those of other splits included, what is read here is to be taken off to say
            how many are not read. The splits of a range share its number: one has it, the others 0.
    """

    filters: tuple[str, ...] | None = None
    way: Way = TOGETHER
    counted: int = 0

    def __init__(self, stream: str, start: int, end: int, partition: int = 0, revision: int | None = None) -> None:
        super().__init__(None)
        self.stream = stream
        self.partition = partition
        self.start = start
        self.end = end
        self.revision = revision

    def __repr__(self) -> str:
        return f"{self.stream}[{self.start}, {self.end})"


def planned(splits: Sequence[Split], connection: Connection, filters: Sequence[str]) -> Sequence[Split]:
    """The splits of one range, with the way in which they are read on *filters*."""
    if splits:
        way = way_of(connection, splits[0].stream, splits[0].start, splits[-1].end, filters)
        for one in splits:
            one.way = way
    return splits


def beside(splits: Sequence[Split]) -> Sequence[Split]:
    """The splits of a range that is read beside a stream's consumers, and acknowledged by nobody."""
    for one in splits:
        one.way = BESIDE
    return splits


def split(options: SourceOptions, stream: str, start: int, end: int, revision: int | None = None) -> list[Split]:
    """The range as one split for each subject partition, or in pieces of nearly one length, fewer if it is small."""
    length = max(0, end - start)
    if length and options.subject_partitions:
        return [Split(stream, start, end, number, revision) for number in range(options.subject_partitions)]
    parts = options.partitions // len(options.streams)
    count = max(1, min(parts, length // _SMALLEST_SPLIT))
    edges = [start + length * index // count for index in range(count + 1)]
    return [Split(stream, low, high, revision=revision) for low, high in pairwise(edges)] if length else []


class Columns(Protocol):
    """What a split's record batches become for Spark."""

    def of(self, batch: Any, part: Split) -> Any:
        """The record batch that Spark gets for one of the wire's."""
        ...


class PackedColumns:
    """Each record batch as one row, with the revision of its split."""

    def of(self, batch: Any, part: Split) -> Any:
        """See `turnout.spark.formats.nats.packed`."""
        return pack(batch, part.stream, part.revision)


def columns_of(options: SourceOptions, schema: StructType) -> Columns:
    """What the options and Spark's schema ask for.

    Raises:
        ConfigError: when the schema asks for what cannot be.
    """
    return PackedColumns() if options.packed else ArrowColumns(schema)


class ArrowColumns:
    """Turns what the wire brings into the columns that were asked for.

    Raises:
        ConfigError: when the schema asks for a column that there is not, or for a type that cannot be.
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        known = {*SCHEMA.names, "stream"}
        mistakes = [
            Mistake(f"schema.{name}", f"is no column of a NATS record; there are {', '.join(sorted(known))}")
            for name in schema.fieldNames()
            if name not in known
        ]
        if mistakes:
            raise ConfigError(mistakes, what="NATS source")

    def of(self, batch: Any, part: Split) -> Any:
        """The record batch in the schema's columns and types."""
        columns = []
        for field in self._schema:
            if field.name == "stream":
                columns.append(pa.repeat(pa.scalar(part.stream), batch.num_rows).cast(field.type))
                continue
            column = batch.column(SCHEMA.get_field_index(field.name))
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def read_split(options: SourceOptions, columns: Columns, part: InputPartition) -> Iterator[Any]:
    """The record batches of one split, over a connection of its own.

    Raises:
        StreamError: when messages of the range are gone and ``failOnDataLoss`` is on.
    """
    spare_collections()
    # Spark makes an InputPartition of its own where a reader plans none.
    if not isinstance(part, Split) or part.end <= part.start:
        return
    if part.filters is not None and not part.filters:
        yield not_read_row(part.counted)
        return
    with Connection(options.connection) as connection:
        # A task may begin while the server restarts: it waits as long as a task that is under way.
        connection.reconnect()
        filters = options.filters_of(part.partition) if part.filters is None else part.filters
        span = Range(part.stream, part.start, part.end, filters)
        # Its consumer acknowledges what is committed: what is read here must not count.
        way = part.way if options.ack_consumer is None else BESIDE
        reader = reader_of(connection, span, way, part.partition)
        left = part.counted
        # What a run acknowledges while others look at its stream is done, and not lost.
        watched = part.way != BESIDE
        with LossWatch(options, part.stream, part.end, passing_by=bool(filters) and part.way != WHOLE) as watch:
            for batch in reader.batches():
                if watched and reader.hole is not None:
                    watch.note(reader.hole)
                left -= batch.num_rows
                if batch.num_rows:
                    yield columns.of(batch, part)
            if watched and reader.next < part.end:
                watch.note(reader.next)
            watch.look()
        if part.filters is not None:
            yield not_read_row(left)
