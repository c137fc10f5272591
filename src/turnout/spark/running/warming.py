"""Starting Python's processes while the driver still prepares a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

from turnout.runtime.count_rows import TALLY
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
    _in_background(lambda: map_in_arrow(spark.range(2, numPartitions=2), _Ready(stage), TALLY).collect())
    if stage.splits:
        _in_background(lambda: _plan_read(spark))


def _in_background(work: Callable[[], object]) -> None:
    def attempt() -> None:
        with suppress(Exception):
            work()

    threading.Thread(target=attempt, name="turnout-warm-up", daemon=True).start()


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
