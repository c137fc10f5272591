"""The process that workers are forked from: it has imported, and what it has imported bears a fork."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from turnout.conditions import kiwi
from turnout.demo.flights import messages
from turnout.embedded import NatsServer
from turnout.nats.wire.records import record_batch, row, with_stream
from turnout.routes import Route
from turnout.runtime.task_index import IndexLocation
from turnout.spark.columns import map_in_arrow
from turnout.spark.session.daemon import IMPORTS, ROUTES_ONLY
from turnout.spark.stage import SparkStage
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index.index_writer import IndexFolder

LOOK = """
import os, sys, turnout.spark.session.daemon as daemon
daemon.preload()
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
import gc
print(len(names) - names.count("jemalloc_bg_thd"), "pandas" in sys.modules, gc.get_freeze_count() > 10_000)
"""

STORED = "2026-01-01T00:00:00Z"

FIRST_RECORDS = """
import pickle, sys, turnout.spark.session.daemon as daemon
daemon.preload()
loaded = set(sys.modules)
stage, records, revision = pickle.load(sys.stdin.buffer)
results = list(stage.outcomes(records, revision))
stage._recorder()
publishers = [sink.publisher() for sink in stage.sinks]
print(sum(len(result.messages) for result in results), *(set(sys.modules) - loaded))
"""


def test_what_workers_need_can_be_imported() -> None:
    """A name that is wrong would be passed over in silence, and cost every worker a second."""
    for name in IMPORTS:
        importlib.import_module(name)


def test_no_thread_is_lost_by_a_fork() -> None:
    """Only the thread of Arrow's allocator is lost, and restarts itself; pandas is not imported; all is frozen."""
    environment = {"OPENBLAS_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "PYTHONWARNINGS": "ignore"}
    completed = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, env=environment, cwd="/"
    )

    assert completed.stdout.split() == ["1", "False", "True"]


def test_workers_are_forked_from_it(spark: SparkSession) -> None:
    """Workers are forked by default on this machine; arrow and numpy work in them."""

    # Within the test: Spark sends it by value, and a worker may be unable to import tests.
    def look(batches: Any) -> Any:
        had = "turnout.spark.stage" in sys.modules
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict(
            {"had": [had], "parent": [parent], "one": [os.environ["OPENBLAS_NUM_THREADS"]]}
        )

    rows = map_in_arrow(spark.range(4, numPartitions=2), look, "had boolean, parent string, one string").collect()

    assert all(row.had for row in rows)
    assert all("turnout.spark.session.daemon" in row.parent for row in rows)
    assert {row.one for row in rows} == {"1"}


def test_workers_import_nothing_of_the_example_route(nats_server: NatsServer, tmp_path: Path) -> None:
    """All modules of the example route's program, its index and its publisher are loaded before the first fork."""
    store = open_store("memory://")
    store.create(Subscription(["d"], kiwi("carrier", "U*", partial=True)))
    route = Route.load(Path("examples/flights.yaml"), {"NATS_URL": nats_server.url})
    stage = SparkStage.of(route, splits=True).with_index(IndexLocation.at(tmp_path), stores_matches=True)
    rows = [
        row(message.subject, 1 + at, message.payload, [(name, text.encode()) for name, text in message.headers], STORED)
        for at, message in enumerate(messages(100))
    ]
    records = with_stream(record_batch(rows), "FLIGHTS")

    with IndexFolder(tmp_path, store) as folder:
        completed = subprocess.run(
            [sys.executable, "-c", FIRST_RECORDS],
            input=pickle.dumps((stage, records, folder.revision)),
            stdout=subprocess.PIPE,
            check=True,
            env={**os.environ, ROUTES_ONLY: "1"},
        )
    delivered, *imported = completed.stdout.decode().split()

    assert int(delivered) > 0
    assert imported == []
