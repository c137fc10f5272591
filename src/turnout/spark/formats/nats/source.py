"""The format ``nats``: streams of NATS JetStream as a batch and a streaming source, and as a sink."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final, Self

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
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from turnout.base.startup import freeze_gc, pc
from turnout.base.untrusted import LARGEST_SEQUENCE
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.nats.protocol.positions import Position, StreamIdentity, replaced_error
from turnout.nats.wire import Connection, Publisher
from turnout.nats.wire.packing import header_lines, id_lines
from turnout.nats.wire.streams import StoredSequences, resolve, state_of
from turnout.records.batch import STREAM_ID
from turnout.records.published import Published
from turnout.runtime.nats.sink import IdSample, SinkOptions, TaskIds
from turnout.runtime.nats.source import HoleCounter, SourceOptions
from turnout.runtime.offsets import SPLIT_COLUMNS, shares
from turnout.spark.formats.nats.reading import Rows, Split, by_sequence, planned, split
from turnout.spark.formats.nats.stream import NatsStreamReader
from turnout.subjects.pattern import FULL, common, is_publishable

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
            row = topics.is_null().to_pylist().index(True)
            raise StreamError(f"{self.origin(batch, row)} has no topic: there is no subject to publish it on", code=400)
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

    def origin(self, batch: pa.RecordBatch, row: int) -> str:
        """Return the name of a row for an error: the message that it is from, if the row has stream and offset."""
        if not {"stream", "offset"} <= self._indexes.keys():
            return f"row {row + 1} of {batch.num_rows}"
        stream, offset = (batch.column(self._indexes[name])[row].as_py() for name in ("stream", "offset"))
        return f"the row of message {stream}:{offset}"

    def origin_of(self, batch: pa.RecordBatch, refusal: str) -> str | None:
        """Return the name of the first row whose subject a refusal names; None without such a row."""
        topics = batch.column(self._indexes["topic"]).to_pylist()
        row = next((row for row, topic in enumerate(topics) if repr(topic) in refusal), None)
        return None if row is None else self.origin(batch, row)

    def _ids(self, batch: pa.RecordBatch, topics: pa.Array) -> pa.Array:
        """Return the message ids of the rows, with nulls; None if no row has one."""
        ids = None
        if self._by_offset:
            # With the stream's identity, where the source gave it: see `turnout.engine.messages`.
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
    """Shared part of both writers: the options, the columns, and the work of one task.

    Attributes:
        overwriting: mistake of a query that would overwrite a stream.
    """

    overwriting: ClassVar[Mistake]

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
            raise ConfigError([cls.overwriting])
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
        batch: pa.RecordBatch | None = None
        with connection:
            try:
                for batch in iterator:
                    if publisher is None:
                        connection.reconnect()
                        publisher = Publisher(
                            connection, self._options.window, self._options.stream, self._options.allow
                        )
                    publisher.publish_columns(*self._columns.messages(batch, self._options.withholds, task_ids))
                if publisher is not None:
                    total = publisher.flush()
            except UnicodeDecodeError as wrong:
                raise StreamError(f"a topic or the name of a header is no UTF-8: {wrong.object[:200]!r}") from wrong
            except StreamError as refusal:
                origin = None if batch is None else self._columns.origin_of(batch, str(refusal))
                if origin is not None:
                    refusal.add_note(f"Its subject is that of {origin}.")
                raise
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

    overwriting = Mistake("mode", "a stream cannot be overwritten: use mode('append')")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the duplicates of all tasks."""
        self.report(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep the stored messages: a stream cannot undo a publish."""


class NatsStreamWriter(_SinkTask, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    overwriting = Mistake(
        "outputMode",
        "'complete' writes all results again with each micro-batch, and a stream cannot be overwritten: use 'append' "
        "with a watermark, or 'update' with foreachBatch and a batch write of the format nats",
    )

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
    # Its tasks are planned in a process that does not know the cluster.
    # Processes of Spark that plan load this module, and no route.
    from turnout.spark.endpoints import register_source, task_slots

    register_source(spark, type("NatsDataSource", (NatsDataSource,), {"task_slots": task_slots(spark)}))


class NatsDataSource(DataSource):
    """Spark data source for the format ``nats``. The options are described in docs/nats.md.

    Attributes:
        task_slots: tasks that the session runs at once; None where `register` was not called.
    """

    task_slots: ClassVar[int | None] = None

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
        options = SourceOptions.from_mapping(self._known_options(), streaming=False, task_slots=self.task_slots)
        return (PushingReader if options.push_filters else NatsReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of micro-batches."""
        return NatsStreamReader(
            SourceOptions.from_mapping(self._known_options(), streaming=True, task_slots=self.task_slots), schema
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of one batch."""
        return NatsWriter.of(self._known_options(), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a writer of micro-batches."""
        return NatsStreamWriter.of(self._known_options(), schema, overwrite=overwrite)

    def _known_options(self) -> Mapping[str, str]:
        """Return the options of the query.

        Raises:
            ConfigError: it has none, as Spark passes those of a table in its catalog to no source in Python.
        """
        if not {"servers", "stream"} & {name.lower() for name in self.options}:
            problem = "is missing; Spark passes the options of a catalog's table to no source in Python"
            raise ConfigError([Mistake("servers", f"{problem}: use CREATE TEMPORARY VIEW … USING nats OPTIONS (…)")])
        return self.options


_CLOCK: Final = timedelta(minutes=1)
"""Disorder of times in a stream that is allowed for: each leader stores the time of its own clock."""

_TIMES: Final = datetime(1970, 1, 2, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""Times between which a server, which counts nanoseconds, finds messages by their time."""

_MOST_FILTERS: Final = 100
"""Maximum number of subjects that are sent to the server as filters."""

_PUSHED: Final[Mapping[str, DataType]] = {
    "topic": StringType(),
    "stream": StringType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
}
"""Columns whose predicates are pushed down, where a schema declares them as they are."""


class _Demand:
    """Part of a read that the predicates of a query leave.

    Attributes:
        streams: streams to read.
        topics: filters of the subjects to read, no two with a subject in common; none for no subject.
        first: the first sequence.
        end: the sequence behind the last.
        since: messages stored before are not read, `_CLOCK` apart; None for all.
        until: messages stored later are not read, `_CLOCK` apart; None for all.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.streams = options.streams
        self.topics = options.filters or (FULL,)
        self.first, self.end = 1, LARGEST_SEQUENCE + 1
        self.since: datetime | None = None
        self.until: datetime | None = None

    def narrow(self, column: str, predicate: Filter) -> bool:
        """Apply a predicate on a column; True if all that is read now satisfies it, so that Spark need not test it."""
        match predicate:
            case IsNotNull():
                return True
            case EqualTo(_, value) | EqualNullSafe(_, value):
                return self._narrow(column, (value,), value, value)
            case In(_, listed) if values := tuple(value for value in listed if value is not None):
                exact = column != "offset" or len(values) == 1
                return self._narrow(column, values, min(values), max(values)) and exact
            case GreaterThan(_, int(value)):
                return self._narrow(column, None, value + 1, None)
            case GreaterThanOrEqual(_, value) | GreaterThan(_, value):
                return self._narrow(column, None, value, None)
            case LessThan(_, int(value)):
                return self._narrow(column, None, None, value - 1)
            case LessThanOrEqual(_, value) | LessThan(_, value):
                return self._narrow(column, None, None, value)
            case StringStartsWith(_, str(text)) if column == "topic" and is_publishable(text.rpartition(".")[0]):
                return self._keep([f"{text.rpartition('.')[0]}.{FULL}"]) and text.endswith(".")
        return False

    def _narrow(self, column: str, values: tuple[object, ...] | None, least: object, most: object) -> bool:
        if column == "offset":
            self.first = max(self.first, least) if isinstance(least, int) else self.first
            self.end = min(self.end, most + 1) if isinstance(most, int) else self.end
            return True
        if column == "timestamp":
            if isinstance(least, datetime) and _TIMES[0] < least < _TIMES[1]:
                self.since = least if self.since is None else max(self.since, least)
            if isinstance(most, datetime) and _TIMES[0] < most < _TIMES[1]:
                self.until = most if self.until is None else min(self.until, most)
            return False
        texts = [str(value) for value in values or ()]
        if column == "stream" and texts:
            self.streams = tuple(name for name in self.streams if name in texts)
        return bool(texts) and (column == "stream" or (all(map(is_publishable, texts)) and self._keep(texts)))

    def _keep(self, filters: Sequence[str]) -> bool:
        """Read only subjects that match one of some filters as well; False if there would be too many filters."""
        kept = {shared for own in self.topics for wanted in filters if (shared := common(own, wanted)) is not None}
        if len(kept) > _MOST_FILTERS:
            return False
        self.topics = tuple(sorted(kept))
        return True


class NatsReader(DataSourceReader):
    """Reads the messages of the streams between two positions."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._demand = _Demand(options)
        self._rows = Rows.of(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return ranges of sequences; one empty range if nothing is to be read."""
        options, demand = self._options, self._demand
        spans: dict[str, tuple[StoredSequences, int, int]] = {}
        parts: list[InputPartition] = []
        if not demand.topics or not demand.streams:
            return [Split(options.streams[0], 0, 0)]
        with Connection.open(options.connection) as connection:
            for stream in demand.streams:
                start = max(resolve(connection, stream, options.start), demand.first)
                state = state_of(connection, stream)
                end = min(state.next, resolve(connection, stream, options.end), demand.end)
                if demand.since is not None:
                    start = max(start, resolve(connection, stream, demand.since - _CLOCK))
                if demand.until is not None:
                    end = min(end, resolve(connection, stream, demand.until + _CLOCK))
                spans[stream] = state, start, end
            tasks = shares({stream: end - start for stream, (_, start, end) in spans.items()}, options.partitions)
            for stream, (state, start, end) in spans.items():
                HoleCounter().count(connection, stream, max(start, state.first), end, state.deleted)
                present = StreamIdentity.adopted if options.is_anonymous else StreamIdentity.of
                identity = options.identity or present(state.created)
                if identity.created != state.created:
                    raise replaced_error(stream, Position(identity, start), state.created)
                splits = split(options, stream, start, end, tasks[stream], identity=identity)
                parts += by_sequence(splits) if state.consumed else planned(splits, connection, options.filters)
        return parts or [Split(options.streams[0], 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one range as Arrow record batches."""
        return self._rows.read(partition)


class PushingReader(NatsReader):
    """Reads only what the predicates of a query leave: subjects, streams, sequences and times.

    Spark 4.3.0 keeps the last plan for all scans of a frame, so that a frame is good for one query: see docs/nats.md.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        declared = {field.name: field.name.lower() for field in schema}
        self._pushed = {name: own for name, own in declared.items() if _PUSHED.get(own) == schema[name].dataType}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Return the predicates that Spark has to test on the rows that are read."""
        left = []
        for one in filters:
            path: tuple[str, ...] = getattr(one, "attribute", ())
            column = self._pushed.get(path[0]) if len(path) == 1 else None
            by_partition = column == "topic" and self._options.partition_subject is not None
            if column is None or by_partition or not self._demand.narrow(column, one):
                left.append(one)
        topics = () if self._demand.topics == (FULL,) else self._demand.topics
        self._options = replace(self._options, filters=topics)
        self._rows = replace(self._rows, options=self._options)
        return left
