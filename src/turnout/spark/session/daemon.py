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
import sys
from contextlib import suppress
from zipimport import zipimporter

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
    "turnout.spark.running.executors",
    "turnout.engine.program",
    "turnout.engine.replay",
    "turnout.runtime.nats.sink",
    "turnout.runtime.task_index",
    "turnout.subscriptions.index.index",
    "turnout.transforms.kafka.cast",
    "turnout.transforms.kafka.headers",
    "turnout.transforms.kafka.insert_field",
    "turnout.transforms.kafka.mask_field",
    "turnout.transforms.predicates",
    "turnout.transforms.kafka.replace_field",
    "turnout.transforms.kafka.timestamp_converter",
    "encodings.ascii",
    "encodings.idna",
    "encodings.utf_16_be",
    "mmap",
    "msgspec",
    "numpy.ma",
    "regex",
    "xxhash",
)
"""Modules that workers import: packages whose names are loaded at first use are listed by these names' modules."""


def preload() -> None:
    """Import what workers use, and take it out of the garbage collector's sight.

    What cannot be imported is left to the worker that needs it, where the error belongs.
    """
    with suppress(Exception):
        if os.environ.get(ROUTES_ONLY):
            importlib.import_module("turnout.base.startup").block_pandas_import()
    for name in IMPORTS:
        with suppress(Exception):
            importlib.import_module(name)
    with suppress(Exception):
        # The run has filled the cache, so this loads; forked workers share what is loaded.
        importlib.import_module("turnout.loops").compile_loops()
    _forget_archives()
    gc.collect()
    gc.freeze()


def _forget_archives() -> None:
    """Drop the finders of zip files, PySpark's among them: each task would read their directories again (20 ms)."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    preload()
    from pyspark.daemon import manager

    # A service manager signals all processes of a service. The run finishes its micro-batch with its workers, and the
    # JVM ends this process by closing its input.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    manager()
