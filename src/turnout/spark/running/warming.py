"""Starting Python's processes while the driver still prepares a run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from turnout.base.background import run_once
from turnout.loops import fill_cache
from turnout.runtime.publishing import TALLY
from turnout.spark.endpoints import activate
from turnout.spark.formats.nothing import plan_read
from turnout.spark.stage import SparkStage
from turnout.spark.workers.map_in_arrow import map_in_arrow

_warmed: set[str] = set()


def warm_up(spark: SparkSession, stage: SparkStage) -> None:
    """Start the processes that plan reads of sources, the one that forks workers, and two workers with the route.

    It is done on threads, once per application. It takes a second and more, in which the first micro-batch would wait,
    and the driver's own second of reading subscriptions and planning continues in parallel. Nothing depends on it: a
    failure here repeats where it is reported.
    """
    context = getattr(spark, "sparkContext", None)
    name = getattr(context, "applicationId", None)
    if name is None or name in _warmed:
        return
    _warmed.add(name)
    # The process that forks workers loads the loops from it.
    fill_cache()
    tasks = map_in_arrow(spark.range(2, numPartitions=2), _Ready(stage), TALLY)
    run_once("warm-up of workers", tasks.collect, level=logging.DEBUG)
    if stage.splits:
        run_once("warm-up of plans", lambda: _plan_read(spark), level=logging.DEBUG)


def _plan_read(spark: SparkSession) -> None:
    activate(spark)
    plan_read(spark)


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
