"""Files that hold a record's columns, as a source and as a sink of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from turnout.codecs import Codec, Format, codec_of
from turnout.codecs.avro.connect_schema import connect_schema_of
from turnout.codecs.avro.object_file import AvroObjectFile
from turnout.codecs.codec import EncodeErrors
from turnout.errors import ConfigError, Mistake, RecordError
from turnout.records import Schema, group
from turnout.records.types import NewColumn
from turnout.routes.endpoints import FileSink, FileSource
from turnout.spark.endpoints import RECORD_COLUMNS, ReadOptions, SparkEndpoint
from turnout.spark.frames.columns import HEADERS, as_texts, from_texts, with_record_names
from turnout.spark.map_in_arrow import map_in_arrow

if TYPE_CHECKING:
    from turnout.routes.endpoints import FileSource
    from turnout.spark.history.diff import RecordSpan


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
        if source.format == "parquet":
            return from_texts(loaded if source.stream else _as_records(loaded))
        return from_texts(_with_problems(loaded, has_json_headers=self._is_csv))

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
    columns = ", ".join(_TYPES)
    line = F.col(_CORRUPT)
    reason = F.when(line.isNotNull(), f"the line does not fit the columns of a record: {columns}")
    reason = reason.when(
        F.forall(F.array(*(F.col(name).isNull() for name in _TYPES)), lambda one: one),
        f"the row has none of the columns of a record: {columns}",
    )
    headers = F.col("headers")
    if has_json_headers:
        headers = F.from_json("headers", HEADERS)
        wrong = F.col("headers").isNotNull() & headers.isNull()
        reason = reason.when(wrong, "the headers are no JSON of a list of names and values")
    read = loaded.withColumns({"problem": reason, "value": F.coalesce(line, "value"), "headers": headers})
    return read.select(*RECORD_COLUMNS, "problem")


def _as_records(loaded: DataFrame) -> DataFrame:
    """Return a file's rows with record columns; missing ones are null."""
    loaded = with_record_names(loaded)
    missing = {name: F.lit(None).cast(type_) for name, type_ in _TYPES.items() if name not in loaded.columns}
    return loaded.withColumns(missing).select(*RECORD_COLUMNS)
