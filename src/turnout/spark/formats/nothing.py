"""A source without rows, whose plan makes Spark start its planning processes before a run needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def plan_read(spark: SparkSession) -> None:
    """Have Spark plan a read of a Python source, for which it starts one process for each of three steps."""
    spark.dataSource.register(_NothingDataSource)
    spark.read.format(_NothingDataSource.name()).load().collect()


class _NothingDataSource(DataSource, DataSourceReader):
    """Source without rows, and its own reader; its module imports little, as its processes do the same."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "turnout-nothing"

    def schema(self) -> str:
        """Return a column."""
        return "nothing int"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there are no rows
        """Return the reader."""
        return self

    def partitions(self) -> Sequence[InputPartition]:
        """Return no partitions: PySpark plans an empty one then."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:  # noqa: ARG002 - there are no rows
        """Return no rows."""
        return iter(())
