"""The process that Spark's Python workers are forked from, with everything imported that they need.

Spark starts it by ``spark.python.daemon.module``. PySpark's own daemon imports nothing before it forks, because an
import may start threads, which a fork loses. The imports here start two kinds: those of numpy's OpenBLAS, which the
session disables, and the one in which Arrow's jemalloc returns memory; both know of forks.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
from contextlib import suppress

ROUTES_ONLY = "TURNOUT_ROUTES_ONLY"
"""The environment variable that says that workers run nothing but routes, which have no use for pandas."""

IMPORTS = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.datasource",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.worker.plan_data_source_read",
    "turnout.spark.formats.nats.source",
    "turnout.spark.stage",
    "turnout.engine",
    "turnout.subscriptions.index",
    "msgspec",
    "regex",
    "xxhash",
)
"""Modules that workers import, the most common first."""


def preload() -> None:
    """Import what workers use, and take it out of the garbage collector's sight.

    What cannot be imported is left to the worker that needs it, where the error belongs.
    """
    with suppress(Exception):
        if os.environ.get(ROUTES_ONLY):
            importlib.import_module("turnout.startup").block_pandas_import()
    for name in IMPORTS:
        with suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    from pyspark.daemon import manager

    # A service manager signals all processes of a service. The run finishes its micro-batch with its workers, and the
    # JVM ends this process by closing its input.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    manager()
