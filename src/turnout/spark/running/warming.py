"""Starting Python's workers while the driver still prepares a run."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

from turnout.spark.stage import COUNTS, SparkStage
from turnout.spark.workers.map_in_arrow import map_in_arrow

_warmed: set[str] = set()


def warm_up(spark: SparkSession, stage: SparkStage) -> None:
    """Start the process that forks workers, and two workers with the route: on a thread, once per application.

    It takes a second and more, in which the first micro-batch would wait, and the driver's own second of reading
    subscriptions and planning continues in parallel. Nothing depends on it: a failure here repeats where it is
    reported.
    """
    context = getattr(spark, "sparkContext", None)
    name = getattr(context, "applicationId", None)
    if name is None or name in _warmed:
        return
    _warmed.add(name)

    def work() -> None:
        with suppress(Exception):
            map_in_arrow(spark.range(2, numPartitions=2), _Ready(stage), COUNTS).collect()

    threading.Thread(target=work, name="turnout-warm-up", daemon=True).start()


class _Ready:
    """A task that does nothing but make its worker's program of the route.

    Args:
        stage: stage of the route.
    """

    def __init__(self, stage: SparkStage) -> None:
        self._stage = stage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield from self._stage.nothing()
