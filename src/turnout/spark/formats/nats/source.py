"""The format ``nats``: streams of NATS JetStream as a batch and a streaming source, and as a sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from turnout.nats.protocol.identity import Position, StreamIdentity, replaced_error
from turnout.nats.wire import Connection
from turnout.nats.wire.positions import resolve, state_of
from turnout.records.listed import STREAM_ID
from turnout.runtime.nats.source import SourceOptions
from turnout.runtime.nats.stream import HoleCounter
from turnout.runtime.splits import SPLIT_COLUMNS
from turnout.spark.formats.nats.reading import Split, by_sequence, planned, split
from turnout.spark.formats.nats.rows import Rows
from turnout.spark.formats.nats.sink import NatsStreamWriter, NatsWriter
from turnout.spark.formats.nats.stream import NatsStreamReader

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
