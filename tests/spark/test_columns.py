"""Rows of a frame as Arrow batches, without pandas."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from turnout.spark.columns import map_in_arrow


def test_through_is_mapinarrow_without_pandas(spark: SparkSession) -> None:
    """The rows of a frame, as the function gives them back."""

    def doubled(batches: Any) -> Any:
        import pyarrow.compute as pc

        for batch in batches:
            yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], names=["id"])

    assert sorted(row.id for row in map_in_arrow(spark.range(3), doubled, "id bigint").collect()) == [0, 2, 4]
