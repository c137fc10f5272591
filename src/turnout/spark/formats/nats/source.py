"""The format ``nats``: streams of NATS JetStream as a batch and a streaming source, and as a sink."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from turnout.base.deferred import pc
from turnout.base.startup import freeze_gc
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.nats.protocol.positions import Position, StreamIdentity, replaced_error
from turnout.nats.wire import Connection, Publisher
from turnout.nats.wire.packing import header_lines, id_lines
from turnout.nats.wire.positions import resolve, state_of
from turnout.records.listed import STREAM_ID
from turnout.records.published import Published
from turnout.runtime.nats.sink import IdSample, SinkOptions, TaskIds
from turnout.runtime.nats.source import SourceOptions
from turnout.runtime.nats.stream import HoleCounter
from turnout.runtime.offsets import SPLIT_COLUMNS
from turnout.spark.formats.nats.reading import Rows, Split, by_sequence, planned, split
from turnout.spark.formats.nats.stream import NatsStreamReader

_NAMES = ("topic", "value", "key", "headers", "stream", "offset")
_log = logging.getLogger(__name__)


class _Columns:
    """Roles of a batch's columns; built once from the schema, sent to the tasks."""

    def __init__(self, schema: StructType, message_id: str) -> None:
        mistakes: list[Mistake] = []
        # The process that plans a sink does not know spark.sql.caseSensitive: names in any case are those of a record.
        own = [name.lower() if name.lower() in _NAMES else name for name in schema.names]
        schema = StructType([StructField(name, field.dataType) for name, field in zip(own, schema, strict=True)])
        for name in _NAMES:
            if schema.names.count(name) > 1:
                problem = "several columns have this name, in upper or lower case: rename or drop all but one"
                mistakes.append(Mistake(name, problem))
        self._indexes = {field.name: index for index, field in enumerate(schema.fields)}
        mistakes += [
            *self._check(schema, "topic", (StringType,), required=True),
            *self._check(schema, "value", (BinaryType, StringType), required=True),
            *self._check(schema, "key", (BinaryType, StringType)),
            *self._check(schema, "headers", (ArrayType,)),
        ]
        by_offset = {"stream", "offset"} <= self._indexes.keys()
        if message_id == "offset" and not by_offset:
            mistakes.append(Mistake("messageId", "'offset' needs the columns 'stream' and 'offset'"))
        if message_id == "key" and "key" not in self._indexes:
            mistakes.append(Mistake("messageId", "'key' needs the column 'key'"))
        if by_offset and message_id in ("auto", "offset"):
            mistakes += self._check(schema, "stream", (StringType,))
            mistakes += self._check(schema, STREAM_ID, (StringType,))
            mistakes += self._check(schema, "offset", (IntegralType,))
        if mistakes:
            raise ConfigError(mistakes, what="NATS sink")
        self._by_key = message_id in ("auto", "key")
        self._by_offset = by_offset and message_id in ("auto", "offset")

    def _check(
        self, schema: StructType, name: str, types: tuple[type[DataType], ...], *, required: bool = False
    ) -> list[Mistake]:
        if name not in self._indexes:
            return [Mistake(name, "the column is missing")] if required else []
        type_ = schema[name].dataType
        if isinstance(type_, types) or (name == "key" and type_.typeName() == "void"):
            return []
        expected = " or ".join(kind.typeName() for kind in types)
        hint = f": use to_json({name})" if isinstance(type_, (StructType, VariantType)) else ""
        return [Mistake(name, f"the column is {type_.simpleString()}, not {expected}{hint}")]

    def messages(
        self, batch: pa.RecordBatch, withholds: Callable[[str], bool], task_ids: TaskIds
    ) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return the subjects, the payloads and the header lines of a record batch; None if it has no header lines.

        Args:
            batch: as Spark hands it over.
            withholds: whether headers of a name are left out.
            task_ids: ids of the task's earlier rows.

        Raises:
            StreamError: when a row has no topic.
        """
        topics = batch.column(self._indexes["topic"])
        if topics.null_count:
            raise StreamError("a row has no topic: there is no subject to publish it on", code=400)
        payloads = batch.column(self._indexes["value"]).cast(pa.binary()).fill_null(b"")
        ids = self._ids(batch, topics)
        ids = task_ids.add(ids) if ids is not None else None
        parts = [] if ids is None else [id_lines(ids)]
        index = self._indexes.get("headers")
        if index is not None and batch.column(index).null_count < batch.num_rows:
            parts.append(header_lines(batch.column(index), withholds))
        if len(parts) == 2:
            parts = [pc.binary_join_element_wise(*parts, pa.scalar(b"", type=pa.binary()))]
        return topics, payloads, parts[0] if parts else None

    def _ids(self, batch: pa.RecordBatch, topics: pa.Array) -> pa.Array:
        """Return the message ids of the rows, with nulls; None if no row has one."""
        ids = None
        if self._by_offset:
            # With the stream's identity, where the source gave it: see `turnout.engine.message_ids`.
            stream = batch.column(self._indexes.get(STREAM_ID, self._indexes["stream"]))
            offset = batch.column(self._indexes["offset"]).cast(pa.string())
            ids = pc.binary_join_element_wise(stream, offset, topics, ":").cast(pa.binary())
        if self._by_key and "key" in self._indexes:
            keys = batch.column(self._indexes["key"]).cast(pa.binary())
            ids = keys if ids is None else pc.coalesce(keys, ids)
        return None if ids is None or ids.null_count == len(ids) else ids


@dataclass(frozen=True)
class _TaskCommit(WriterCommitMessage):
    """Counts of one task, and what is known of its ids."""

    stored: int
    duplicates: int
    ids: IdSample


class _SinkTask:
    """Shared part of both writers: the options, the columns, and the work of one task."""

    def __init__(self, options: SinkOptions, columns: _Columns) -> None:
        self._options = options
        self._columns = columns

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """Return a writer for *schema*.

        Raises:
            ConfigError: when an option or a column is wrong, or the stream is to be overwritten.
        """
        freeze_gc()
        parsed = SinkOptions.from_mapping(options)
        if overwrite:
            raise ConfigError([Mistake("mode", "a stream cannot be overwritten: use mode('append')")])
        return cls(parsed, _Columns(schema, parsed.message_id))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of one task, and wait until each is stored.

        Raises:
            StreamError: one was refused; stored messages stay, and a retry with ids does no harm.
        """
        freeze_gc()
        total = Published()
        task_ids = TaskIds(distinct=self._options.message_id == "auto")
        publisher: Publisher | None = None
        connection = Connection(self._options.connection)
        with connection:
            for batch in iterator:
                if publisher is None:
                    connection.reconnect()
                    publisher = Publisher(connection, self._options.window, self._options.stream, self._options.allow)
                try:
                    publisher.publish_columns(*self._columns.messages(batch, self._options.withholds, task_ids))
                except UnicodeDecodeError as wrong:
                    raise StreamError(f"a topic or the name of a header is no UTF-8: {wrong.object[:200]!r}") from wrong
            if publisher is not None:
                total = publisher.flush()
        return _TaskCommit(total.stored, total.duplicates, task_ids.sample())

    def report(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the counts of all tasks, if any message is a duplicate.

        Raises:
            StreamError: messages were taken for duplicates of others of the same job.
        """
        freeze_gc()
        written = [message for message in messages if isinstance(message, _TaskCommit)]
        stored, duplicates = sum(task.stored for task in written), sum(task.duplicates for task in written)
        if not duplicates:
            return
        if not IdSample.have_equal(task.ids for task in written):
            cause = "from an earlier attempt or job, if no other rows have their ids"
            _log.warning("%d messages stored, %d were known to the stream already: %s", stored, duplicates, cause)
            return
        way = self._options.message_id
        text = (
            f"{duplicates:,} of {stored + duplicates:,} rows were not stored: the stream has messages with their ids, "
            "and several rows of this job have one id, as rows of one record have after a union or a join. "
        )
        if way == "auto":
            cure = (
                "Give each row a key of its own, or write messageId=none; messageId=key or offset keeps one row of each"
            )
            raise StreamError(text + cure, code=409)
        _log.warning("%sThat is what messageId=%s asks for; with messageId=none all are stored", text, way)


class NatsWriter(_SinkTask, DataSourceArrowWriter):
    """Writes a batch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the duplicates of all tasks."""
        self.report(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep the stored messages: a stream cannot undo a publish."""


class NatsStreamWriter(_SinkTask, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's signature
        """Report the duplicates of all tasks."""
        self.report(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's signature
        """Keep the stored messages: the batch is written again, under the same ids."""


_COLUMNS = (
    "topic string, partition int, offset bigint, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>, timestamp timestamp"
)


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("nats")`` and its three siblings work in this session."""
    spark.dataSource.register(NatsDataSource)


class NatsDataSource(DataSource):
    """Spark data source for the format ``nats``. The options are described in docs/nats.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "nats"

    def schema(self) -> str:
        """Return the record's seven columns, and those of its stream if requested; or those of splits to read later."""
        if str(self.options.get("splits", "false")).lower() == "true":
            return SPLIT_COLUMNS
        with_stream = str(self.options.get("includeStream", "false")).lower() == "true"
        return _COLUMNS + (f", stream string, {STREAM_ID} string" if with_stream else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of one batch."""
        return NatsReader(SourceOptions.from_mapping(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of micro-batches."""
        return NatsStreamReader(SourceOptions.from_mapping(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of one batch."""
        return NatsWriter.of(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a writer of micro-batches."""
        return NatsStreamWriter.of(self.options, schema, overwrite=overwrite)


class NatsReader(DataSourceReader):
    """Reads the messages of the streams between two positions."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._rows = Rows.of(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return ranges of sequences; one empty range if nothing is to be read."""
        options = self._options
        parts: list[InputPartition] = []
        with Connection.open(options.connection) as connection:
            for stream in options.streams:
                start = resolve(connection, stream, options.start)
                state = state_of(connection, stream)
                end = min(state.next, resolve(connection, stream, options.end))
                HoleCounter().count(connection, stream, max(start, state.first), end, state.deleted)
                present = StreamIdentity.adopted if options.is_anonymous else StreamIdentity.of
                identity = options.identity or present(state.created)
                if identity.created != state.created:
                    raise replaced_error(stream, Position(identity, start), state.created)
                splits = split(options, stream, start, end, identity=identity)
                parts += by_sequence(splits) if state.consumed else planned(splits, connection, options.filters)
        return parts or [Split(options.streams[0], 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one range as Arrow record batches."""
        return self._rows.read(partition)
