"""A trigger's interval is what Spark's own parser takes for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.routes.test_values import INTERVALS, NO_INTERVALS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_takes_the_same_intervals(spark: SparkSession) -> None:
    """Each text of the tests of the route is given to Spark's trigger."""

    def taken(text: str) -> bool:
        try:
            jvm: Any = spark._jvm
            jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(text)
        except (Py4JError, PySparkException):
            return False
        return True

    assert [text for text in [*INTERVALS, *NO_INTERVALS] if taken(text)] == INTERVALS
