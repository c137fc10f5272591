"""Shared parts of batch and streaming reads of NATS: stream positions, splitting, and reading one split."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from turnout.base.startup import freeze_gc, pc
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, Range
from turnout.nats.wire.direct import (
    BY_SEQUENCE,
    ONE_CONSUMER,
    WHOLE_STREAM,
    RangeReader,
    ReadStrategy,
    choose_strategy,
    reader_of,
)
from turnout.nats.wire.records import SCHEMA, with_stream
from turnout.nats.wire.streams import count_exactly
from turnout.records.batch import STREAM_ID
from turnout.runtime.nats.source import LossWatch, SourceOptions, opened, until_replaced
from turnout.runtime.offsets import even_spans, task_rows

if TYPE_CHECKING:
    from turnout.runtime.open_task import OpensRecords


@dataclass(frozen=True)
class Split(InputPartition):
    """A part of one stream that one task reads; nothing at all where *end* is not above *start*.

    Attributes:
        stream: stream of the messages.
        start: the first sequence.
        end: the sequence behind the last.
        partition: the subject partition, if the options define some.
        revision: revision of the subscriptions that the messages are matched with; None without.
        filters: the subjects to read, none for nothing; None for all of the options'.
        way: read strategy of several filters; the records are the same.
        identity: identity of the stream, which another one of its name does not have; None for any.
        counted: of how many messages, those of other splits included, what is read here is to be taken off to say
            how many are not read. The splits of a range share its number: one has it, the others 0.
    """

    stream: str
    start: int
    end: int
    partition: int = 0
    revision: int | None = None
    filters: tuple[str, ...] | None = None
    way: ReadStrategy = ONE_CONSUMER
    counted: int = 0
    identity: StreamIdentity | None = None

    def __repr__(self) -> str:
        return f"{self.stream}[{self.start}, {self.end})"

    def reader(self, options: SourceOptions) -> SplitReader:
        """Return a reader for this split."""
        return SplitReader(options, self)


@dataclass(frozen=True)
class OpenSplit(InputPartition):
    """A stream from a sequence on, which one task reads until it gets a request to stop.

    Attributes:
        stream: stream of the messages.
        start: the first sequence, unless the driver knows the position of an earlier task.
        number: number of the split, among the open ones of a checkpoint.
        revision: revision of the subscriptions at the beginning; None without.
        identity: identity of the stream, which another one of its name does not have; None for any.
        time: when the message before *start* was stored, in microseconds since 1970; None if that is unknown.
    """

    stream: str
    start: int
    number: int
    revision: int | None = None
    identity: StreamIdentity | None = None
    time: int | None = None

    def __repr__(self) -> str:
        return f"{self.stream}[{self.start}, …)"

    @property
    def label(self) -> str:
        """The stream, with its identity if it is known."""
        return self.stream if self.identity is None else self.identity.label(self.stream)

    @property
    def group(self) -> int:
        """The number: a stream is the only split of its micro-batch."""
        return self.number

    def opens(self, options: SourceOptions) -> OpensRecords:
        """Return what opens the stream."""
        return partial(opened, options, self.stream, identity=self.identity)


def planned(splits: Sequence[Split], connection: Connection, filters: Sequence[str]) -> list[Split]:
    """Return the splits of one range, each with the way in which it is read on *filters*."""
    if not splits:
        return []
    strategy = choose_strategy(connection, splits[0].stream, splits[0].start, splits[-1].end, filters)
    return [replace(part, way=strategy) for part in splits]


def by_sequence(splits: Sequence[Split]) -> list[Split]:
    """Return the splits for a range that is read beside a stream's consumers, without acknowledgements."""
    return [replace(part, way=BY_SEQUENCE) for part in splits]


def split(
    options: SourceOptions,
    stream: str,
    start: int,
    end: int,
    tasks: int,
    revision: int | None = None,
    identity: StreamIdentity | None = None,
) -> list[Split]:
    """The range as one split for each subject partition, or for so many tasks, fewer if it is small."""
    whole = Split(stream, start, end, revision=revision, identity=identity)
    if start < end and options.subject_partitions:
        return [replace(whole, partition=number) for number in range(options.subject_partitions)]
    spans = even_spans(start, end, tasks)
    return [replace(whole, start=low, end=high) for low, high in spans]


class ArrowColumns:
    """Converts received record batches to the requested columns.

    Raises:
        ConfigError: the schema has an unknown column, or an unsupported type.
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        columns = {*SCHEMA.names, "stream", STREAM_ID}
        mistakes = [
            Mistake(f"schema.{name}", f"is no column of a NATS record; there are {', '.join(sorted(columns))}")
            for name in schema.fieldNames()
            if name.lower() not in columns
        ]
        # Spark compares the names of columns by the session's rule, so that a query finds them as it declares them.
        self._names = [name.lower() for name in schema.fieldNames()]
        if mistakes:
            raise ConfigError(mistakes, what="NATS source")

    def of(self, batch: pa.RecordBatch, part: Split) -> pa.RecordBatch:
        """Return the record batch in the schema's columns and types."""
        columns = []
        for name, field in zip(self._names, self._schema, strict=True):
            if name in ("stream", STREAM_ID):
                is_label = name == STREAM_ID and part.identity is not None
                text = part.identity.label(part.stream) if is_label and part.identity else part.stream
                columns.append(pa.repeat(pa.scalar(text), batch.num_rows).cast(field.type))
                continue
            column = batch.column(SCHEMA.get_field_index(name))
            columns.append(column if column.type.equals(field.type) else _converted(column, field, batch, part))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _converted(column: pa.Array, field: pa.Field, batch: pa.RecordBatch, part: Split) -> pa.Array:
    """Return a column in the type of the schema; bytes that are no UTF-8 become a string as in Spark's own cast.

    Raises:
        StreamError: a value does not fit the type; names its message.
    """
    options = pc.CastOptions(field.type, allow_invalid_utf8=True)
    try:
        return pc.cast(column, options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        for row in range(len(column)):
            try:
                pc.cast(column.slice(row, 1), options=options)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as first:
                topic, sequence = batch.column("topic")[row].as_py(), batch.column("offset")[row].as_py()
                message = f"message {part.stream}:{sequence} on {topic!r}"
                problem = f"the column {field.name} of {message} cannot be {field.type}, as the schema has it: {first}"
                raise StreamError(problem, code=422) from first
        raise StreamError(f"the column {field.name} cannot be {field.type}: {wrong}", code=422) from wrong


class SplitReader:
    """Reads one split, once, over its own connection.

    Attributes:
        stream: stream of the messages, with its identity if it is known.
        start: the first sequence.
        end: the sequence behind the last.
        revision: revision of the subscriptions that its records are matched with; None where there are none.
        not_read: once all is read, how many messages of the range, counted here, were left unread.
    """

    def __init__(self, options: SourceOptions, split: Split) -> None:
        self._options = options
        self._split = split
        self.stream = split.stream if split.identity is None else split.identity.label(split.stream)
        self.start, self.end = split.start, split.end
        self.revision = split.revision
        self.not_read = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, of `turnout.nats.wire.records.SCHEMA`, in batches without an empty one.

        Raises:
            StreamError: messages of the range were deleted and ``failOnDataLoss`` is on.
        """
        options, part = self._options, self._split
        if part.filters is not None and not part.filters:
            self.not_read = part.counted
            return
        with Connection(options.connection) as connection:
            # A task may begin while the server restarts: it waits as long as a task that is under way.
            connection.reconnect()
            filters = options.filters_of(part.partition) if part.filters is None else part.filters
            reader = self._reader(connection, Range(part.stream, part.start, part.end, filters, part.identity))
            # Messages that a run acknowledges while an observer reads its stream are done, not lost.
            watched, count = part.way != BY_SEQUENCE, 0
            filtered = bool(filters) and part.way != WHOLE_STREAM
            with LossWatch(options, part.stream, part.end, passing_by=filtered) as watch:
                for batch in until_replaced(reader.batches(), options):
                    if watched and reader.hole is not None:
                        watch.note(reader.hole)
                    count += batch.num_rows
                    if batch.num_rows:
                        yield batch
                if watched and reader.next < part.end:
                    watch.note(reader.next)
                watch.look()
        if part.filters is not None:
            self.not_read = part.counted - count

    def batches_with_stream(self) -> Iterator[pa.RecordBatch]:
        """Yield the same with a column ``stream`` behind the others."""
        for batch in self.batches():
            yield with_stream(batch, self._split.stream, self._split.identity)

    def _reader(self, connection: Connection, range_: Range) -> RangeReader:
        # Its consumer acknowledges committed messages: reads here must not count.
        strategy = self._split.way if self._options.ack_consumer is None else BY_SEQUENCE
        return reader_of(connection, range_, strategy, self._split.partition)


_log = logging.getLogger(__name__)


def only(
    connection: Connection, splits: Sequence[Split], filters: tuple[str, ...], own: Sequence[str]
) -> Sequence[Split]:
    """Return the splits of one range, read on *filters* alone.

    What is not read is what the range holds on the source's own subjects, as it is planned, without what is read of it.
    So a message that is deleted after that, before it is read, counts as not read; one that was deleted before is in
    neither number, as without filters.

    Args:
        connection: connection for counting.
        splits: they follow each other.
        filters: the subjects that can match; empty for none.
        own: the subjects of the source; none for all.

    Returns:
        The unchanged splits, to be read whole, if the server has no exact number of messages.
    """
    if not splits:
        return splits
    first, last = splits[0], splits[-1]
    counted = count_exactly(connection, first.stream, first.start, last.end, own)
    if counted is None:
        whole = "stream %r: sequences %d to %d are read whole: the server gives no exact count of them now"
        _log.info(whole, first.stream, first.start, last.end - 1)
        return splits
    if not filters:
        # One task says so.
        splits = [replace(first, end=last.end)]
    narrowed = [replace(part, filters=filters, counted=0 if number else counted) for number, part in enumerate(splits)]
    return planned(narrowed, connection, filters)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a source.

    Attributes:
        options: how it is read.
        columns: columns of the records; None where each row is a split.
    """

    options: SourceOptions
    columns: ArrowColumns | None

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> Self:
        """Return the rows that the options and Spark's schema require.

        Raises:
            ConfigError: the schema is not supported.
        """
        return cls(options, None if options.splits else ArrowColumns(schema))

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches that Spark gets for one of its partitions.

        Raises:
            StreamError: messages of the range were deleted and ``failOnDataLoss`` is on.
        """
        # Spark makes an InputPartition of its own where a reader plans none.
        split = part if isinstance(part, OpenSplit) or (isinstance(part, Split) and part.end > part.start) else None
        if self.columns is None:
            yield from task_rows(replace(self.options, stage=None), split, self.options.stage)
        elif isinstance(split, Split):
            freeze_gc()
            for batch in SplitReader(self.options, split).batches():
                yield self.columns.of(batch, split)
