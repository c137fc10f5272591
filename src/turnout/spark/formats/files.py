"""Files that hold a record's columns, as a source and as a sink of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from turnout.errors import ConfigError, Mistake
from turnout.routes.endpoints import FileSink, FileSource
from turnout.spark.endpoints import RECORD_COLUMNS, ReadOptions, SparkEndpoint
from turnout.spark.formats.avro_files import avro_records
from turnout.spark.frames.columns import with_record_names

if TYPE_CHECKING:
    from turnout.spark.history.recorded import RecordSpan

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "key": "string",
    "value": "string",
    "headers": _HEADERS,
    "timestamp": "timestamp",
}


class FileEndpoint(SparkEndpoint):
    """Folder of files; a CSV file has texts alone, so that headers are the JSON of their list, the bytes in Base64."""

    endpoint: FileSource | FileSink

    @property
    def _is_csv(self) -> bool:
        return self.endpoint.format == "csv"

    def read(self, spark: SparkSession, options: ReadOptions) -> DataFrame:  # noqa: ARG002 - files cannot wait
        """Return the records of the files, or of new files."""
        source = cast("FileSource", self.endpoint)
        if source.format == "avro":
            return avro_records(spark, source)
        types = {**_TYPES, "headers": "string"} if self._is_csv else _TYPES
        schema = ", ".join(f"{name} {type_}" for name, type_ in types.items())
        if source.stream:
            reader = spark.readStream.format(source.format).schema(schema).options(**source.options())
            loaded = reader.load(source.path)
        else:
            declared = {} if source.format == "parquet" else {"schema": schema}
            loaded = spark.read.format(source.format).options(**source.options()).load(source.path, **declared)
        if self._is_csv:
            loaded = loaded.withColumn("headers", F.from_json("headers", _HEADERS))
        return loaded if source.stream else _as_records(loaded)

    def recorded(self, spark: SparkSession, span: RecordSpan) -> DataFrame:
        """Return the rows in a span; a bound excludes rows without its offset or timestamp."""
        once = self.endpoint.model_copy(update={"stream": False, "max_files_per_trigger": None})
        rows = FileEndpoint(once).read(spark, ReadOptions())
        for bound, name in ((span.start, "from"), (span.end, "to")):
            if isinstance(bound, str):
                continue
            if isinstance(bound, Mapping):
                problem = "files have no streams: give an offset or a time"
                raise ConfigError([Mistake(name, problem)], what="bad range")
            column = F.col("timestamp") if isinstance(bound, datetime) else F.col("offset")
            rows = rows.where(column >= F.lit(bound) if name == "from" else column < F.lit(bound))
        return rows

    def write(self, messages: DataFrame, message_id: str) -> None:  # noqa: ARG002 - files have no ids
        """Append the messages; people and other programs read these files, so text is text."""
        sink = cast("FileSink", self.endpoint)
        readable = {"key": _as_text(messages, "key"), "value": F.col("value").cast("string")}
        messages = messages.withColumns(readable).select(*RECORD_COLUMNS)
        if self._is_csv:
            messages = messages.withColumn("headers", F.to_json("headers"))
        writer = messages.write.format(sink.format).options(**sink.options()).mode("append")
        writer = writer.partitionBy(sink.partition_by) if sink.partition_by else writer
        writer.save(sink.path)


def _as_records(loaded: DataFrame) -> DataFrame:
    """Return a file's rows with record columns; missing ones are null."""
    loaded = with_record_names(loaded)
    missing = {name: F.lit(None).cast(type_) for name, type_ in _TYPES.items() if name not in loaded.columns}
    return loaded.withColumns(missing).select(*RECORD_COLUMNS)


def _as_text(messages: DataFrame, name: str) -> Column:
    """Return a column for a sink of bytes: structs and variants as JSON."""
    kind = messages.schema[name].dataType
    if isinstance(kind, StructType | MapType | ArrayType | VariantType):
        return F.to_json(name).alias(name)
    return F.col(name).cast("string").alias(name)
