"""A route with subscriptions on a cluster of two workers that do not have the driver's folder."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_cluster_nats import SOURCE, SPARK, Cluster

from turnout.conditions import kiwi
from turnout.embedded import NatsServer
from turnout.subscriptions import Subscription, open_store
from turnout.wire import Connection, Publisher, create_stream, subject_counts

ROUTE = """
name: cluster
source: {{format: nats, servers: "{url}", stream: IN, maxRecordsPerTrigger: 20000, partitions: 2}}
value: {{format: json}}
subscriptions: {{store: "{store}", metadata: {{town: value.town}}}}
sink: {{format: nats, servers: "{url}", stream: OUT}}
"""

JOB = """
import collections, dataclasses, json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.addPyFile(sys.argv[3])
from turnout import Route
from turnout.spark.index.place import IndexPlace
from turnout.spark.index.server import IndexServer
from turnout.spark.running.job import run

# The workers are on this machine as well: they are to take it for another one.
here, given, fetched = IndexPlace.at, IndexServer._file, collections.Counter()
def elsewhere(folder, url=None):
    return dataclasses.replace(here(folder, url), folder="/not/on/this/host")
def counted(self, revision, name):
    if name:
        fetched[name] += 1
    return given(self, revision, name)
IndexPlace.at, IndexServer._file = staticmethod(elsewhere), counted
revisions = []
result = run(Route.load(sys.argv[1]), spark, once=True, checkpoint=sys.argv[2],
    on_progress=lambda progress: revisions.append(progress.revision))
print("DONE", json.dumps({"counts": result.counts.as_dict(), "fetched": fetched, "revisions": revisions}))
"""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"), workers=2)
    yield started
    started.stop()


def test_the_index_reaches_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    """Each worker's host fetches a revision's files once, however many tasks it runs; every message arrives."""
    archive = shutil.make_archive(str(tmp_path / "turnout"), "zip", SOURCE, "turnout")
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    store = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    opened = open_store(store)
    opened.create_many(Subscription(destinations=(f"out.{n}",), condition=kiwi("town", f"T{n}")) for n in range(4))
    opened.close()
    count = 60_000
    with NatsServer() as server, Connection.open(server.url) as connection:
        for name in ("IN", "OUT"):
            create_stream(connection, {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"})
        with Connection.open(server.url) as filling:
            publisher = Publisher(filling)
            for n in range(count):
                publisher.publish("in.x", b'{"town":"T%d"}' % (n % 5))
            publisher.flush()
        (tmp_path / "route.yaml").write_text(ROUTE.format(url=server.url, store=store), encoding="utf-8")
        command = [
            str(SPARK / "bin" / "spark-submit"), "--master", cluster.url,
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
            "--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=600m",
            "--conf", f"spark.pyspark.python={cluster.environment['PYSPARK_PYTHON']}",
            # The process that plans a stream runs beside the driver and sees no file that was added to the session.
            "--conf", f"spark.executorEnv.PYTHONPATH={archive}",
            str(tmp_path / "job.py"), str(tmp_path / "route.yaml"), str(tmp_path / "checkpoint"), archive,
        ]  # fmt: skip
        job = subprocess.run(
            command, env=cluster.environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )

        assert job.returncode == 0, job.stderr[-4000:]
        told = json.loads(next(line for line in job.stdout.splitlines() if line.startswith("DONE ")).split(" ", 1)[1])
        assert told["counts"]["read"] == count
        assert told["counts"]["unmatched"] == count // 5
        assert subject_counts(connection, "OUT") == {f"out.{n}": count // 5 for n in range(4)}
        assert len(told["revisions"]) == 3
        assert len(set(told["revisions"])) == 1
        assert told["fetched"]
        assert set(told["fetched"].values()) == {2}, "a host has fetched a file twice, or not at all"
