"""Endpoints of a route in Spark: reading its source, and writing to its sinks."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from turnout.routes.endpoints import Endpoint, FileSink, FileSource, KafkaSink, KafkaSource, NatsSink, NatsSource
from turnout.spark.formats.nats.source import register
from turnout.spark.session.latency import low_latency_source, waiting_source

RECORD_COLUMNS = ("topic", "partition", "offset", "key", "value", "headers", "timestamp")
_HEADERS = "array<struct<key:string,value:binary>>"
_FILE_TYPES = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "key": "string",
    "value": "string",
    "headers": _HEADERS,
    "timestamp": "timestamp",
}


def is_batch(source: Endpoint) -> bool:
    """Return True if the source is bounded, so that the run is one batch without a checkpoint."""
    return isinstance(source, FileSource) and not source.stream


def read(
    spark: SparkSession,
    source: Endpoint,
    *,
    latency: str | None = None,
    wait: bool = False,
    pause_file: str | None = None,
    splits: bool = False,
    more: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the source's records, streaming unless the source `is_batch`.

    With *latency* ``low`` a NATS source waits at the server and is read by one task, unless its own options say else.
    With *wait* it waits there as well: Spark asks a hundred times a second otherwise, of each source that is idle.
    While there is a *pause_file*, it has nothing new. With *splits* its rows are parts of its streams, to be
    read by the next stage. *more* are
    options of a NATS source that are not a route's to set.
    """
    options = source.options()
    if isinstance(source, NatsSource):
        register(spark)
        usual = low_latency_source() if latency == "low" else waiting_source() if wait else {}
        options = {**usual, **options}
        if pause_file is not None:
            options["pauseFile"] = pause_file
        shape = "splits" if splits else "includeStream"
        return spark.readStream.format("nats").options(**options, **(more or {})).option(shape, "true").load()
    if isinstance(source, KafkaSource):
        loaded = spark.readStream.format("kafka").options(**options).option("includeHeaders", "true").load()
        return loaded.select(*RECORD_COLUMNS)
    assert isinstance(source, FileSource)
    return _read_files(spark, source)


def _read_files(spark: SparkSession, source: FileSource) -> DataFrame:
    # A CSV file has texts alone: there headers are the JSON of their list, the bytes in Base64.
    in_csv = source.format == "csv"
    types = {**_FILE_TYPES, "headers": "string"} if in_csv else _FILE_TYPES
    schema = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    options = source.options()
    if source.stream:
        loaded = spark.readStream.format(source.format).schema(schema).options(**options).load(source.path)
    else:
        declared = {} if source.format == "parquet" else {"schema": schema}
        loaded = spark.read.format(source.format).options(**options).load(source.path, **declared)
    if in_csv:
        loaded = loaded.withColumn("headers", F.from_json("headers", _HEADERS))
    return loaded if source.stream else _as_records(loaded)


def _as_records(loaded: DataFrame) -> DataFrame:
    """Return a file's rows with record columns; missing ones are null."""
    missing = {name: F.lit(None).cast(type_) for name, type_ in _FILE_TYPES.items() if name not in loaded.columns}
    return loaded.withColumns(missing).select(*RECORD_COLUMNS)


def write(messages: DataFrame, sink: Endpoint, message_id: str) -> None:
    """Write the messages; after the return the sink has acknowledged them.

    Args:
        messages: with the record's columns, values as bytes.
        sink: where to.
        message_id: the column that a NATS sink takes for the message's id, unless the sink says that it wants none.
    """
    if isinstance(sink, NatsSink):
        activate(messages.sparkSession)
        messages = _nats_columns(messages, sink, message_id)
    elif isinstance(sink, KafkaSink):
        messages = messages.select("topic", "value", "headers", "key")
    else:
        # People and other programs read these files: text where it is text.
        readable = {"key": _as_text(messages, "key"), "value": F.col("value").cast("string")}
        messages = messages.withColumns(readable).select(*RECORD_COLUMNS)
        if sink.format == "csv":
            messages = messages.withColumn("headers", F.to_json("headers"))
    writer = messages.write.format(sink.format).options(**sink.options()).mode("append")
    if isinstance(sink, FileSink):
        writer = writer.partitionBy(sink.partition_by) if sink.partition_by else writer
        writer.save(sink.path)
    else:
        writer.save()


def activate(spark: SparkSession) -> None:
    """Make this the session of the calling thread.

    Spark looks a format up in the thread's active session. A new thread has none until it makes a frame, and one in
    which another session was used has that one. Making a frame would do, but it imports pandas first (half a second).
    """
    java = getattr(spark, "_jsparkSession", None)
    # A session of Spark Connect has its own on the server.
    if java is not None:
        # SparkSession.setActiveSession is public in Scala and Java, not in Python.
        sessions = SparkSession._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
        sessions.setActiveSession(java)


def _nats_columns(messages: DataFrame, sink: NatsSink, message_id: str) -> DataFrame:
    ids = [] if sink.message_id == "none" else [F.col(message_id).alias("key")]
    return messages.select("topic", "value", "headers", *ids)


def _as_text(messages: DataFrame, name: str) -> Column:
    """Return a column for a sink of bytes: structs and variants as JSON."""
    kind = messages.schema[name].dataType
    if isinstance(kind, StructType | MapType | ArrayType | VariantType):
        return F.to_json(name).alias(name)
    return F.col(name).cast("string").alias(name)
