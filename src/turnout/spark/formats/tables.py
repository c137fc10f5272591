"""Files that hold the columns of a record, and every connector of Spark, as sources of records and as sinks."""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type

from turnout.base.terminal import did_you_mean
from turnout.codecs import Codec, Format, codec_of
from turnout.codecs.arrow_columns import schema_of_arrow
from turnout.codecs.avro.connect_schema import connect_schema_of
from turnout.codecs.avro.object_file import AvroObjectFile
from turnout.codecs.codec import EncodeErrors
from turnout.errors import ConfigError, Mistake, RecordError, RunError, StreamError
from turnout.records import Schema, group
from turnout.records.types import NewColumn
from turnout.routes.endpoints import FileSink, FileSource, SparkSink, SparkSource
from turnout.routes.endpoints.tables import topic_pieces
from turnout.routes.rows import ColumnRule, RowPlan, plan_rows
from turnout.routes.values import listed
from turnout.runtime.endpoints import EndpointProbe
from turnout.spark.columns import HEADERS, as_texts, case_rule, foreign, from_texts, map_in_arrow, with_record_names
from turnout.spark.endpoints import RECORD_COLUMNS, BatchId, ReadOptions, SparkEndpoint

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

    from turnout.spark.history.diff import RecordSpan


_log = logging.getLogger(__name__)

_LIMITED_TEXTS: Final = frozenset({1, 12, -15, -9})
"""The numbers of Java's types CHAR, VARCHAR, NCHAR and NVARCHAR."""
_NO_LIMIT: Final = 2**31 - 1

_PACKAGES: Final = "spark.jars.packages"
_NAME: Final = re.compile(r'(?:"[^"]+"|[A-Za-z_]\w*)(?:\.(?:"[^"]+"|[A-Za-z_]\w*))*')


class SparkProvider(SparkEndpoint):
    """Source or sink of a provider, whose options go to Spark as they are."""

    endpoint: SparkSource | SparkSink

    def needs(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the connector's packages, beside those that the properties have."""
        known = [name.strip() for name in properties.get(_PACKAGES, "").split(",") if name.strip()]
        missing = [name for name in self.endpoint.packages if name not in known]
        return {_PACKAGES: ",".join([*known, *missing])} if missing else {}

    def lacks(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the packages that an application with *properties* lacks."""
        return self.needs(properties)

    # Source

    def read(self, spark: SparkSession, options: ReadOptions) -> DataFrame:  # noqa: ARG002 - Spark's sources do not wait
        """Return the rows as records.

        Raises:
            ConfigError: a column is not there, or has a type that a record cannot have.
        """
        source = cast("SparkSource", self.endpoint)
        reader = (
            (spark.readStream if source.stream else spark.read).format(source.provider).options(**self.endpoint.texts)
        )
        reader = reader.schema(source.schema_) if source.schema_ is not None else reader
        try:
            records = _records(reader.load(), source)
        except PySparkException as failure:
            raise ConfigError([Mistake("source", _in_words(failure))], what="bad source") from failure
        wrong = [
            Mistake(
                "source.record", f"{path} is {kind.simpleString()}, which Connect has no type for: cast it in value"
            )
            for name in ("key", "value")
            for path, kind in foreign(name, records.schema[name].dataType)
        ]
        if wrong:
            raise ConfigError(wrong, what="bad source")
        return records

    def recorded(self, spark: SparkSession, span: RecordSpan) -> DataFrame:
        """Return the rows in a span of offsets or times; a bound excludes rows without its offset or timestamp."""
        once = self.endpoint.model_copy(update={"stream": False})
        return within(SparkProvider(once).read(spark, ReadOptions()), span)

    def value_schema(self, rows: DataFrame) -> Schema | None:
        """Return the schema of the values; None for bytes and texts, which a format reads."""
        field = rows.schema["value"]
        if field.dataType.typeName() in ("binary", "string"):
            return None
        # As the stage sees them: with the digits of decimals.
        return schema_of_arrow(to_arrow_type(field.dataType, timezone="UTC"))

    # Sink

    def plan(self, spark: SparkSession, value: Schema | None, path: str) -> RowPlan | None:
        """Return the columns of the rows; an existing table of a database has its own types."""
        sink = cast("SparkSink", self.endpoint)
        if not sink.is_typed:
            return None
        existing = self._existing(spark)
        return plan_rows(sink, value, existing, path, self._rules(spark) if existing else None)

    def _existing(self, spark: SparkSession) -> dict[str, Schema]:
        """Return the columns of a table in a database; empty where it is not there, or where Spark does not say."""
        if self.endpoint.provider != "jdbc":
            return {}
        try:
            schema = spark.read.format("jdbc").options(**self.endpoint.texts).load().schema
        except PySparkException:
            # Made by the first write, or refused there with the reason.
            return {}
        known = [field for field in schema if not list(foreign(field.name, field.dataType))]
        # With the digits of decimals.
        return {field.name: schema_of_arrow(to_arrow_type(field.dataType, timezone="UTC")) for field in known}

    def _rules(self, spark: SparkSession) -> dict[str, ColumnRule]:
        """Return what a table of a database refuses in its columns: one row that it refuses ends a run."""
        options, rules = self.endpoint.texts, {}
        refuses_nul = options["url"].startswith("jdbc:postgresql:")
        with _connected(spark, options) as connection:
            columns = connection.prepareStatement(f"SELECT * FROM {options['dbtable']} WHERE 1=0").getMetaData()  # noqa: S608
            for number in range(1, columns.getColumnCount() + 1):
                longest = columns.getPrecision(number) if columns.getColumnType(number) in _LIMITED_TEXTS else _NO_LIMIT
                rules[str(columns.getColumnLabel(number))] = ColumnRule(
                    required=columns.isNullable(number) == 0,
                    longest=longest if 0 < longest < _NO_LIMIT else None,
                    refuses_nul=refuses_nul,
                )
        return rules

    def write(self, messages: DataFrame, message_id: str) -> None:  # noqa: ARG002 - tables have no ids
        """Write the columns of records, their values and keys as texts."""
        self._save(as_texts(messages).select(*RECORD_COLUMNS))

    def write_rows(self, rows: DataFrame, plan: RowPlan, batch: BatchId | None) -> bool:  # noqa: ARG002 - not noted
        """Write the rows, or replace those of the same keys."""
        sink = cast("SparkSink", self.endpoint)
        if sink.upsert_by is None:
            self._save(rows)
        else:
            self._upsert(rows, listed(sink.upsert_by), uuid.uuid4().hex if batch is None else batch.application)
        return True

    def _save(self, rows: DataFrame) -> None:
        sink = cast("SparkSink", self.endpoint)
        writer = rows.write.format(sink.provider).options(**self.endpoint.texts).mode(sink.mode)
        writer = writer.partitionBy(*sink.partition_columns) if sink.partition_columns else writer
        writer.save()

    def _upsert(self, rows: DataFrame, keys: tuple[str, ...], writer: str) -> None:
        """Write the rows to a table beside, and from there in one statement: all of them, or none.

        Of several rows of a micro-batch with one key the last one counts, by the order of their records. Each query has
        a table beside of its own, which it finds again after a kill.
        """
        options = self.endpoint.texts
        table = options["dbtable"]
        unknown = [name for name in keys if name not in rows.columns]
        if unknown or not _NAME.fullmatch(table):
            problem = f"found {unknown or table!r}, expected names of columns, and of a table with its schema"
            raise ConfigError([Mistake("sink.upsertBy", problem)], what="bad sink")
        digest = hashlib.sha256(f"{writer} {table}".encode()).hexdigest()[:12]
        beside = f"{table.rpartition('.')[2].strip(chr(34))[:40]}_turnout_{digest}"
        own = {**options, "dbtable": f'"{beside}"', "truncate": "false"}
        order = "_turnout_order"
        rows.withColumn(order, F.monotonically_increasing_id()).write.format("jdbc").options(**own).mode(
            "overwrite"
        ).save()
        names = [f'"{name}"' for name in rows.columns]
        of_key = ", ".join(f'"{name}"' for name in keys)
        others = [name for name in names if name.strip('"') not in keys]
        action = "UPDATE SET " + ", ".join(f"{name} = EXCLUDED.{name}" for name in others) if others else "NOTHING"
        statement = (
            f"INSERT INTO {table} ({', '.join(names)}) SELECT DISTINCT ON ({of_key}) {', '.join(names)}"  # noqa: S608 - names
            f' FROM "{beside}" ORDER BY {of_key}, "{order}" DESC ON CONFLICT ({of_key}) DO {action}'
        )
        _execute(rows.sparkSession, options, (statement, f'DROP TABLE "{beside}"'))


class ProviderProbe(EndpointProbe):
    """Checks of a provider, in a session of their own: its columns, and a source's first rows."""

    noun = "provider"

    def __init__(self, endpoint: SparkSource | SparkSink) -> None:
        self._provider = SparkProvider(endpoint)

    @cached_property
    def _spark(self) -> SparkSession:
        from turnout.spark.session.build import build_session

        return build_session("turnout check", master="local[1]", conf=self._provider.needs({}))

    def reach(self) -> str:
        """Read the columns of a source, or of a sink's table if Spark can tell."""
        endpoint = self._provider.endpoint
        if isinstance(endpoint, SparkSource):
            rows = self._provider.read(self._spark, ReadOptions())
            return f"{endpoint.provider}: values are {rows.schema['value'].dataType.simpleString()}"
        existing = self._provider._existing(self._spark)  # noqa: SLF001 - of the same module
        if not existing:
            return f"{endpoint.provider}: Spark tells nothing of it before a run writes to it"
        missing = {spec.name for spec in endpoint.specs or ()} - existing.keys()
        if missing:
            raise StreamError(f"the table has no column {', '.join(sorted(missing))}", code=404)
        return f"{endpoint.provider}: the table has the columns {', '.join(existing)}"

    def streams(self) -> Sequence[str]:
        """Return the provider of a source that is read once: of a stream nothing can be read beside its query."""
        endpoint = self._provider.endpoint
        return (endpoint.provider,) if isinstance(endpoint, SparkSource) and not endpoint.stream else ()

    def latest(self, stream: str, count: int) -> tuple[list[pa.RecordBatch], str]:
        """Return the first rows as records."""
        batches = self._provider.read(self._spark, ReadOptions()).limit(count).toArrow().to_batches()
        return batches, f"{sum(batch.num_rows for batch in batches):,} rows of {stream} were read"

    def close(self) -> None:
        """Stop the session."""
        if "_spark" in self.__dict__:
            self._spark.stop()


def _execute(spark: SparkSession, options: Mapping[str, str], statements: tuple[str, ...]) -> None:
    """Run statements in one transaction, over a connection as Spark's writer has it.

    Raises:
        StreamError: the database refuses one; none has an effect then.
    """
    with _connected(spark, options) as connection:
        connection.setAutoCommit(False)
        for statement in statements:
            connection.createStatement().execute(statement)
        connection.commit()


@contextmanager
def _connected(spark: SparkSession, options: Mapping[str, str]) -> Iterator[JavaObject]:
    """Connect to a database as Spark's writer does, and return Java's connection.

    Raises:
        RunError: the session has no driver of its own.
        StreamError: the database refuses something.
    """
    jvm = spark._jvm  # noqa: SLF001 - PySpark has no other way to a JDBC driver
    if jvm is None:
        raise RunError("tables of a database need a classic session, with a driver of its own")
    settings = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(
        jvm.PythonUtils.toScalaMap(dict(options))
    )
    try:
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
        connection = dialect.createConnectionFactory(settings).apply(-1)
        try:
            yield connection
        finally:
            connection.close()
    except Exception as failure:
        java = getattr(failure, "java_exception", None)
        if java is None:
            raise
        raise StreamError(f"the database refuses this: {java.getMessage()}", code=500) from failure


def _records(rows: DataFrame, source: SparkSource) -> DataFrame:
    """Return rows as records."""
    record = source.record

    def column(text: str | None, kind: str) -> Column:
        return F.lit(None).cast(kind) if text is None else F.expr(text).cast(kind)

    pieces = [F.expr(piece).cast("string") if inner else F.lit(piece) for piece, inner in topic_pieces(record.topic)]
    headers = [
        F.struct(F.lit(name).alias("key"), F.expr(text).cast("string").cast("binary").alias("value"))
        for name, text in record.headers.items()
    ]
    key = F.lit(None).cast("binary") if record.key is None else F.expr(record.key)
    value = F.struct("*") if record.value is None else F.expr(record.value)
    return rows.select(
        F.concat(*pieces).alias("topic"),
        column(record.partition, "int").alias("partition"),
        column(record.offset, "bigint").alias("offset"),
        key.alias("key"),
        value.alias("value"),
        (F.array(*headers) if headers else F.lit(None).cast("array<struct<key:string,value:binary>>")).alias("headers"),
        column(record.timestamp, "timestamp").alias("timestamp"),
    )


def _in_words(failure: PySparkException) -> str:
    return str(failure).partition("\n")[0].partition(" SQLSTATE")[0]


AVRO_COLUMNS: Final = (
    "topic string, partition int, offset bigint, key string, value binary,"
    " headers array<struct<key:string,value:binary>>, timestamp timestamp, problem string"
)
"""Columns of a record, two of them for a value, and the reason of a failure to read it."""

_ROWS: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("problem", pa.string()),
    ]
)
_FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"


def avro_records(spark: SparkSession, source: FileSource) -> DataFrame:
    """Return the values of the files, streaming as the source says."""
    options = {name: text for name, text in source.options().items() if name not in ("topic", "schemas")}
    if source.stream:
        files = spark.readStream.format("binaryFile").schema(_FILE).options(**options).load(source.path)
    else:
        files = spark.read.format("binaryFile").options(**options).load(source.path)
    return map_in_arrow(files.select("path", "content"), _Reading(source.topic, bool(source.schemas)), AVRO_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Function from files to records.

    Attributes:
        topic: topic of all records; None for the full name of their schema.
        schemas: true if values are Connect's JSON with their schema.
    """

    topic: str | None
    schemas: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from self._file(path, content)

    def _file(self, path: str, content: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the records of a file, and one with the problem where it cannot be read on."""
        topic = self.topic
        try:
            file = AvroObjectFile(content)
            topic = topic or file.type.name or file.type.kind
            schema = connect_schema_of(file.type)
            codec = codec_of(Format("connect-json" if self.schemas else "json"))
            for values in file.blocks():
                texts, problems = self._texts(path, values, schema, codec)
                yield _rows(topic, texts, problems)
        except (ValueError, RecordError) as wrong:
            yield _rows(topic or "avro", [None], [f"{path}: {wrong}"])

    @staticmethod
    def _texts(
        path: str, values: NewColumn, schema: Schema, codec: Codec
    ) -> tuple[list[bytes | None], list[str | None]]:
        """Return the JSON of each value, and the reason for each that has none."""
        texts: list[bytes | None] = [None] * len(values)
        problems: list[str | None] = [None] * len(values)
        for block in group(np.arange(len(values)), schema, values):
            rows = block.rows.tolist()
            try:
                written, errors = codec.encode(block), {}
            except EncodeErrors as failed:
                written, errors = failed.texts, failed.errors
            for row, text in zip(rows, written, strict=True):
                texts[row] = text
            for index, error in errors.items():
                problems[rows[index]] = f"{path}: {error}"
        return texts, problems


def _rows(topic: str, texts: list[bytes | None], problems: list[str | None]) -> pa.RecordBatch:
    by_name = {"topic": pa.repeat(topic, len(texts)), "value": texts, "problem": problems}
    columns = [
        pa.array(by_name[field.name], field.type) if field.name in by_name else pa.nulls(len(texts), field.type)
        for field in _ROWS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ROWS)


_TYPES: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "key": "string",
    "value": "string",
    "headers": HEADERS.simpleString(),
    "timestamp": "timestamp",
}

_WRITTEN_TIMES: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""Times with all their digits: Spark's own format has three of six."""

_UNTRIMMED: Final = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
_CSV: Final = {
    True: {**_UNTRIMMED, "lineSep": "\n"},
    # An empty text is in quotes, and a null is nothing: both would be null if this were the text of a null.
    # The names in a header have to be those of the columns, in their order.
    False: {**_UNTRIMMED, "enforceSchema": "false", "multiLine": "true", "nullValue": "\x00null\x00"},
}
"""Options of CSV for a sink, and for a source: values may have blanks at their ends, and several lines."""

_PARTS: Final = ", ".join(_TYPES)
_SAMPLED_LINES: Final = 200
_MOST_NAMES: Final = 20
"""Names of which a warning is given."""

_LAST_YEAR: Final = 9999
"""Year of the latest time of ISO 8601; a number of milliseconds, which Spark takes for seconds, is beyond it."""

_CORRUPT: Final = "_corrupt_record"
"""Column in which Spark keeps a line that it cannot read with all its columns; without, what it cannot read is null."""


class FileEndpoint(SparkEndpoint):
    """Folder of files; a CSV file has texts alone, so that headers are the JSON of their list, the bytes in Base64."""

    endpoint: FileSource | FileSink

    @property
    def _is_csv(self) -> bool:
        return self.endpoint.format == "csv"

    @property
    def _options(self) -> dict[str, str]:
        """Options of Spark's format: those that keep what a record has, and the route's own."""
        is_sink = isinstance(self.endpoint, FileSink)
        kept = _WRITTEN_TIMES if is_sink and self.endpoint.format != "parquet" else {}
        return {**kept, **(_CSV[is_sink] if self._is_csv else {}), **self.endpoint.options()}

    def read(self, spark: SparkSession, options: ReadOptions) -> DataFrame:  # noqa: ARG002 - files cannot wait
        """Return the records of the files, or of new files."""
        source = cast("FileSource", self.endpoint)
        if source.format == "avro":
            return avro_records(spark, source)
        types = {**_TYPES, "headers": "string"} if self._is_csv else _TYPES
        kept = self._options
        if source.format != "parquet":
            types = {**types, _CORRUPT: "string"}
            kept["columnNameOfCorruptRecord"] = _CORRUPT
        schema = ", ".join(f"{name} {type_}" for name, type_ in types.items())
        if source.stream:
            loaded = spark.readStream.format(source.format).schema(schema).options(**kept).load(source.path)
        else:
            declared = {} if source.format == "parquet" else {"schema": schema}
            loaded = spark.read.format(source.format).options(**kept).load(source.path, **declared)
        if not self._is_csv:
            self._warn_of_other_names(loaded)
        if source.format == "parquet":
            return from_texts(loaded if source.stream else _as_records(loaded))
        return from_texts(_with_problems(loaded, has_json_headers=self._is_csv))

    def _warn_of_other_names(self, loaded: DataFrame) -> None:
        """Warn of columns, or names in the first lines of JSON, that no part of a record has: Spark reads past them."""
        source, spark = cast("FileSource", self.endpoint), loaded.sparkSession
        path, options = source.path, source.options()
        try:
            if source.format == "parquet":
                # A stream has the columns of a record, whatever its files have.
                names = set((spark.read.options(**options).parquet(path) if source.stream else loaded).columns)
            else:
                lines = spark.read.options(**options).text(path).limit(_SAMPLED_LINES)
                rows = lines.select(F.explode(F.json_object_keys("value")).alias("name")).distinct().collect()
                names = {row["name"] for row in rows}
        except PySparkException:
            # The folder of a stream may be empty, and reading reports the mistakes of files.
            return
        # Columns of Parquet are found whatever their case, unless Spark compares it; names of JSON are not.
        rule = case_rule(spark) if source.format == "parquet" else str
        for name in sorted(name for name in names if rule(name) not in _TYPES)[:_MOST_NAMES]:
            _log.warning("%s: %r is not read%s (a record has %s)", path, name, did_you_mean(name, _TYPES), _PARTS)

    def recorded(self, spark: SparkSession, span: RecordSpan) -> DataFrame:
        """Return the rows in a span; a bound excludes rows without its offset or timestamp."""
        once = self.endpoint.model_copy(update={"stream": False, "max_files_per_trigger": None})
        return within(FileEndpoint(once).read(spark, ReadOptions()), span)

    def write(self, messages: DataFrame, message_id: str) -> None:  # noqa: ARG002 - files have no ids
        """Append the messages; people and other programs read these files, so text is text."""
        sink = cast("FileSink", self.endpoint)
        messages = as_texts(messages).select(*RECORD_COLUMNS)
        if self._is_csv:
            messages = messages.withColumn("headers", F.to_json("headers"))
        writer = messages.write.format(sink.format).options(**self._options).mode("append")
        writer = writer.partitionBy(sink.partition_by) if sink.partition_by else writer
        writer.save(sink.path)


def within(rows: DataFrame, span: RecordSpan) -> DataFrame:
    """Return the rows in a span of offsets or times."""
    for bound, name in ((span.start, "from"), (span.end, "to")):
        if isinstance(bound, str):
            continue
        if isinstance(bound, Mapping):
            problem = "files and tables of Spark have no streams: give an offset or a time"
            raise ConfigError([Mistake(name, problem)], what="bad range")
        column = F.col("timestamp") if isinstance(bound, datetime) else F.col("offset")
        rows = rows.where(column >= F.lit(bound) if name == "from" else column < F.lit(bound))
    return rows


def _with_problems(loaded: DataFrame, *, has_json_headers: bool) -> DataFrame:
    """Return rows of texts with the reason of those that are no records, whose value is their line."""
    line = F.col(_CORRUPT)
    reason = F.when(line.isNotNull(), f"the line does not fit the columns of a record: {_PARTS}")
    reason = reason.when(
        F.forall(F.array(*(F.col(name).isNull() for name in _TYPES)), lambda one: one),
        f"the row has none of the columns of a record: {_PARTS}",
    )
    is_late = F.year("timestamp") > _LAST_YEAR
    reason = reason.when(
        is_late, "the timestamp is beyond the year 9999: a number is in seconds, and a text in ISO 8601"
    )
    headers = F.col("headers")
    if has_json_headers:
        headers = F.from_json("headers", HEADERS)
        wrong = F.col("headers").isNotNull() & headers.isNull()
        reason = reason.when(wrong, "the headers are no JSON of a list of names and values")
    time = F.when(~is_late, F.col("timestamp"))
    columns = {"problem": reason, "value": F.coalesce(line, "value"), "headers": headers, "timestamp": time}
    return loaded.withColumns(columns).select(*RECORD_COLUMNS, "problem")


def _as_records(loaded: DataFrame) -> DataFrame:
    """Return a file's rows with record columns; missing ones are null."""
    loaded = with_record_names(loaded)
    missing = {name: F.lit(None).cast(type_) for name, type_ in _TYPES.items() if name not in loaded.columns}
    return loaded.withColumns(missing).select(*RECORD_COLUMNS)
