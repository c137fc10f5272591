"""The same reads and writes on a cluster that has never heard of turnout."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks._cluster import StandaloneCluster
from tests.integration.spark_cluster import SOURCE, submission, without_turnout

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, stream_info, subject_counts

pytestmark = pytest.mark.heavy

JOB = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.addPyFile(sys.argv[3])
from turnout.spark.formats.nats.source import register
register(spark)
options = {"servers": sys.argv[1], "stream": "IN", "includeStream": "true", "partitions": "2"}
loaded = spark.readStream.format("nats").options(**options).option("maxRecordsPerTrigger", "10000").load()
(loaded.withColumn("topic", F.regexp_replace("topic", "^in", "out")).drop("key")
    .writeStream.format("nats").options(servers=sys.argv[1], stream="OUT")
    .option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start().awaitTermination())
parts = spark.read.format("nats").options(**options).load().selectExpr("spark_partition_id()").distinct().count()
def executor(_):
    import os
    import turnout
    yield os.environ.get("SPARK_EXECUTOR_DIRS", "local"), os.path.abspath(turnout.__file__)
executors = set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(executor).collect())
print("PARTITIONS", parts, "EXECUTORS", len(executors))
print("FROM", *{file for _, file in executors})
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with without_turnout(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


def test_a_stream_on_two_workers(cluster: StandaloneCluster, tmp_path: Path) -> None:
    """turnout reaches the executors as a zip; both read and write, one is killed at it; every message arrives once."""
    archive = shutil.make_archive(str(tmp_path / "turnout"), "zip", SOURCE, "turnout")
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    count = 60_000
    with NatsServer() as server, Connection.open(server.url) as connection:
        for name in ("IN", "OUT"):
            create_stream(connection, {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"})
        with Connection.open(server.url) as opened:
            publisher = Publisher(opened)
            for n in range(count):
                publisher.publish(f"in.{n % 4}", str(n).encode())
            publisher.flush()
        command = submission(cluster, archive, tmp_path / "job.py", server.url, str(tmp_path / "checkpoint"), archive)
        log = tmp_path / "job.log"
        with log.open("wb") as file:
            job = subprocess.Popen(command, env=cluster.environment, cwd=tmp_path, stdout=file, stderr=file)
        try:
            # In the middle of the second micro-batch. A cluster takes minutes where other tests build their peers.
            deadline = time.monotonic() + 300
            while (before := stored(connection)) < 11_000 and job.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            killed = cluster.kill_an_executor()
            ended = job.wait(180)
        finally:
            job.kill()
            job.wait(30)
        log_text = log.read_text(errors="replace")

        assert ended == 0, _first_error(log_text)
        assert 11_000 <= before < count
        assert "Lost executor" in log_text, f"process {killed} was killed without being missed"
        assert "PARTITIONS 2 EXECUTORS 2" in log_text
        files = next(line for line in log_text.splitlines() if line.startswith("FROM ")).split()[1:]
        # Each executor has it from its own working folder, not from ours.
        assert all(Path(file).is_relative_to(cluster.work) for file in files), files
        assert subject_counts(connection, "OUT") == {f"out.{n}": count // 4 for n in range(4)}


def stored(connection: Connection) -> int:
    return int(stream_info(connection, "OUT")["state"]["messages"])


def _first_error(log: str) -> str:
    """Return the first error of a log, and the lines after it."""
    at = max(0, min((place for word in ("Error", "Exception") if (place := log.find(word)) >= 0), default=0) - 500)
    return log[at : at + 4000]


def test_without_turnout_it_would_not_run(cluster: StandaloneCluster) -> None:
    """The workers' Python has pyspark and pyarrow, and not turnout: the test above ships it."""
    completed = subprocess.run(
        [cluster.environment["PYSPARK_PYTHON"], "-c", "import pyspark, pyarrow, turnout"],
        capture_output=True, text=True, check=False, env=cluster.environment, cwd="/",
    )  # fmt: skip

    assert "No module named 'turnout'" in completed.stderr
