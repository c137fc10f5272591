"""A route with subscriptions on a cluster of two workers that do not have the driver's folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks._cluster import StandaloneCluster
from tests.integration.spark_cluster import SOURCE, submission, without_turnout

from turnout.conditions import kiwi
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, stream_info, subject_counts
from turnout.subscriptions import Subscription, open_store

pytestmark = pytest.mark.heavy

ROUTE = """
name: cluster
source: {{format: nats, servers: "{url}", stream: IN, maxRecordsPerTrigger: {batch}, partitions: 2}}
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
from turnout.runtime.task_index import IndexLocation
from turnout.runtime.driver import IndexServer
from turnout.spark.running.job import run

# The workers are on this machine as well: they are to take it for another one.
here, given, fetched = IndexLocation.at, IndexServer._file, collections.Counter()
def elsewhere(folder, url=None):
    return dataclasses.replace(here(folder, url), folder="/not/on/this/host")
def counted(self, revision, name):
    if name:
        fetched[name] += 1
        with open("fetched", "w") as file:
            file.write(str(min(fetched.values())))
    return given(self, revision, name)
IndexLocation.at, IndexServer._file = staticmethod(elsewhere), counted
revisions = []
result = run(Route.load(sys.argv[1]), spark, once=True, checkpoint=sys.argv[2],
    on_progress=lambda progress: revisions.append(progress.revision))
print("DONE", json.dumps({"counts": result.counts.as_dict(), "fetched": fetched, "revisions": revisions}))
"""


@dataclass
class Setting:
    """A cluster, a NATS server with two streams, and a job that runs a route over them."""

    cluster: StandaloneCluster
    server: NatsServer
    connection: Connection
    work: Path

    def command(self, *, count: int, batch: int) -> list[str]:
        """Return the command that submits the job, with all files in place."""
        archive = shutil.make_archive(str(self.work / "turnout"), "zip", SOURCE, "turnout")
        (self.work / "job.py").write_text(JOB, encoding="utf-8")
        store = f"sqlite:///{self.work / 'subscriptions.db'}"
        opened = open_store(store)
        opened.create_many(Subscription(destinations=(f"out.{n}",), condition=kiwi("town", f"T{n}")) for n in range(4))
        opened.close()
        with Connection.open(self.server.url) as filling, Publisher(filling) as publisher:
            for n in range(count):
                publisher.publish("in.x", b'{"town":"T%d"}' % (n % 5))
        route = self.work / "route.yaml"
        route.write_text(ROUTE.format(url=self.server.url, store=store, batch=batch), encoding="utf-8")
        return submission(
            self.cluster, archive, self.work / "job.py", str(route), str(self.work / "checkpoint"), archive
        )

    def both_at_it(self) -> bool:
        """Whether both hosts have fetched the index, and messages have come."""
        fetched = self.work / "fetched"
        return fetched.exists() and fetched.read_text() == "2" and self.stored() >= 5_000

    def stored(self) -> int:
        return int(stream_info(self.connection, "OUT")["state"]["messages"])


def result_of(printed: str) -> dict[str, Any]:
    """Return the job's final output."""
    done = next(line for line in printed.splitlines() if line.startswith("DONE "))
    return json.loads(done.split(" ", 1)[1])


@pytest.fixture
def setting(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with (
        without_turnout(tmp_path_factory.mktemp("cluster"), workers=2) as cluster,
        NatsServer() as server,
        Connection.open(server.url) as connection,
    ):
        for name in ("IN", "OUT"):
            create_stream(connection, {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"})
        yield Setting(cluster, server, connection, tmp_path)


def test_the_index_reaches_the_workers(setting: Setting) -> None:
    """Each worker's host fetches a revision's files once, however many tasks it runs; every message arrives."""
    count = 60_000
    job = subprocess.run(
        setting.command(count=count, batch=20_000), env=setting.cluster.environment, cwd=setting.work,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert job.returncode == 0, job.stderr[-4000:]
    result = result_of(job.stdout)
    assert result["counts"]["read"] == count
    assert result["counts"]["unmatched"] == count // 5
    assert subject_counts(setting.connection, "OUT") == {f"out.{n}": count // 5 for n in range(4)}
    assert len(result["revisions"]) == 3
    assert len(set(result["revisions"])) == 1
    assert result["fetched"]
    assert set(result["fetched"].values()) == {2}, "a host has fetched a file twice, or not at all"


def test_a_worker_is_gone(setting: Setting) -> None:
    """kill -9 of one worker with its executor, in the middle: the other does the rest; each message is there once."""
    count = 60_000
    log = setting.work / "job.log"
    with log.open("wb") as errors:
        job = subprocess.Popen(
            setting.command(count=count, batch=4_000), env=setting.cluster.environment, cwd=setting.work,
            stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 240
        while not setting.both_at_it() and job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        before = setting.stored()
        killed = setting.cluster.kill_a_worker()
        printed, _ = job.communicate(timeout=240)
    finally:
        job.kill()
        job.wait(30)

    assert job.returncode == 0, log.read_text(errors="replace")[-4000:]
    assert killed >= 3, "a worker, its executor and the executor's Python"
    assert 5_000 <= before < count * 4 // 5
    assert "Lost executor" in log.read_text(errors="replace")
    result = result_of(printed)
    # What the lost tasks had counted is not counted twice, and what they had sent not stored twice.
    assert result["counts"]["read"] == count
    assert result["counts"]["unmatched"] == count // 5
    assert subject_counts(setting.connection, "OUT") == {f"out.{n}": count // 5 for n in range(4)}
    assert set(result["fetched"].values()) == {2}, "both hosts have had the index"
