"""How many records a query has, learnt from the one before it, and which way to match suits that many."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

__all__ = ["BatchSize"]

_BROADCAST_SECONDS = 5e-6
"""What one subscription adds to a query that broadcasts the index, estimated."""

_RESIDENT_SECONDS = 25e-6
"""What one record adds to a query that matches in Python workers, estimated."""

_WORKER_SECONDS = 0.1
"""What it adds to go through the workers at all, estimated."""


class BatchSize:
    """The number of records that the last query matched; None while that is not known."""

    def __init__(self, spark: SparkSession) -> None:
        # On a cluster the workers cannot read the driver's files, and a Connect session cannot say where they run.
        context = getattr(spark, "_sc", None)
        self._local = context is not None and context.master.startswith("local")
        self._observation: Observation | None = None
        self._last: int | None = None

    def observe(self, rows: DataFrame) -> DataFrame:
        """The same rows; how many there were is known once they have been written."""
        if not self._local or rows.isStreaming:
            return rows
        self._learn()
        self._observation = Observation()
        return rows.observe(self._observation, F.count(F.lit(1)).alias("records"))

    def _learn(self) -> None:
        """Take note of the last query's count, if it has run."""
        jvm = getattr(self._observation, "_jo", None)
        if jvm is None or not jvm.future().isCompleted():
            return
        try:
            assert self._observation is not None
            self._last = self._observation.get["records"]
        except PySparkException:
            self._last = None

    def suits_resident(self, entries: int) -> bool:
        """Whether workers that keep the index are the cheaper way for as many records as last time."""
        if self._last is None:
            return False
        return _WORKER_SECONDS + self._last * _RESIDENT_SECONDS < entries * _BROADCAST_SECONDS
