"""Spark data source of a route's Kafka topics, whose rows are splits; Spark's own connector has the name ``kafka``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from turnout.runtime.kafka.source import KafkaSourceOptions, planned_between
from turnout.runtime.splits import SPLIT_COLUMNS, decoded
from turnout.spark.formats.kafka.reading import KafkaSplit, rows_of
from turnout.spark.formats.kafka.stream import KafkaStreamReader

FORMAT: Final = "turnout-kafka"
OPTIONS: Final = "encodedSecret"
"""Option with the encoded `KafkaSourceOptions`; Spark redacts the values of such names."""


class KafkaDataSource(DataSource):
    """Splits of Kafka topics, for the stage of a route."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the column of splits."""
        return SPLIT_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is always the same
        """Return a reader of one batch."""
        return KafkaReader(self._decoded)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """Return a reader of micro-batches."""
        return KafkaStreamReader(self._decoded)

    @property
    def _decoded(self) -> KafkaSourceOptions:
        options: KafkaSourceOptions = decoded(self.options[OPTIONS])
        return options


class KafkaReader(DataSourceReader):
    """Reads topics between two positions."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits; an empty one if nothing is to be read."""
        return [KafkaSplit(span) for span in planned_between(self._options)] or [KafkaSplit(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split as a row, or the counts of the stage that reads it."""
        yield from rows_of(self._options, partition)
