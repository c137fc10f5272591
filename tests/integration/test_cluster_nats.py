"""The same reads and writes on a cluster that has never heard of turnout."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

import turnout
from turnout.embedded import NatsServer
from turnout.embedded.nats_server import free_port
from turnout.spark.session.java import find_java
from turnout.wire import Connection, Publisher, create_stream, stream_info, subject_counts

SOURCE = Path(turnout.__file__).parent.parent
SPARK = Path(pyspark.__file__).parent


class Cluster:
    """A Spark master and its workers, each a process of its own, with a Python that lacks turnout."""

    def __init__(self, work: Path, workers: int) -> None:
        self.work = work
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.environment = {
            **{key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_HOME")},
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(bare_python(work)),
        }
        self.processes = [
            self._start(
                "master", "org.apache.spark.deploy.master.Master", "--port", str(self.port), "--webui-port", "0"
            )
        ]
        for number in range(workers):
            arguments = (
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "-d",
                str(work / f"w{number}"),
                self.url,
            )
            self.processes.append(self._start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *arguments))
        self._wait(workers)

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.work / f"{name}.log").open("wb")
        command = [str(SPARK / "bin" / "spark-class"), main, "--host", "127.0.0.1", *arguments]
        with log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def _wait(self, workers: int) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            logs = [path.read_text(errors="replace") for path in self.work.glob("worker*.log")]
            if sum("Successfully registered with master" in log for log in logs) == workers:
                return
            time.sleep(0.2)
        raise AssertionError("the cluster did not come up: " + "\n".join(logs))

    def kill_an_executor(self) -> int:
        """kill -9 of one executor's JVM; its process id."""
        for worker in self.processes[1:]:
            for child in psutil.Process(worker.pid).children(recursive=True):
                # Some of them end while they are looked at.
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                        child.kill()
                        return child.pid
        raise AssertionError("there is no executor")

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(30)


def bare_python(work: Path) -> Path:
    """A Python that finds everything that is installed beside this one, but not turnout.

    turnout is installed here by a ``.pth`` file, which Python without ``site`` does not read.
    """
    script = work / "python"
    packages = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


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
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"), workers=2)
    yield started
    started.stop()


def test_a_stream_on_two_workers(cluster: Cluster, tmp_path: Path) -> None:
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
        command = [
            str(SPARK / "bin" / "spark-submit"), "--master", cluster.url,
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
            "--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=600m",
            "--conf", f"spark.pyspark.python={cluster.environment['PYSPARK_PYTHON']}",
            # The process that plans a stream runs beside the driver and sees no file that was added to the session.
            "--conf", f"spark.executorEnv.PYTHONPATH={archive}",
            str(tmp_path / "job.py"), server.url, str(tmp_path / "checkpoint"), archive,
        ]  # fmt: skip
        log = tmp_path / "job.log"
        with log.open("wb") as file:
            job = subprocess.Popen(command, env=cluster.environment, cwd=tmp_path, stdout=file, stderr=file)
        try:
            # In the middle of the second micro-batch.
            deadline = time.monotonic() + 120
            while (before := stored(connection)) < 11_000 and job.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            killed = cluster.kill_an_executor()
            ended = job.wait(180)
        finally:
            job.kill()
            job.wait(30)
        told = log.read_text(errors="replace")

        assert ended == 0, _first_error(told)
        assert 11_000 <= before < count
        assert "Lost executor" in told, f"process {killed} was killed without being missed"
        assert "PARTITIONS 2 EXECUTORS 2" in told
        files = next(line for line in told.splitlines() if line.startswith("FROM ")).split()[1:]
        # Each executor has it from its own working folder, not from ours.
        assert all(Path(file).is_relative_to(cluster.work) for file in files), files
        assert subject_counts(connection, "OUT") == {f"out.{n}": count // 4 for n in range(4)}


def stored(connection: Connection) -> int:
    return int(stream_info(connection, "OUT")["state"]["messages"])


def _first_error(log: str) -> str:
    """Where the first error of a log stands, and what follows."""
    at = max(0, min((place for word in ("Error", "Exception") if (place := log.find(word)) >= 0), default=0) - 500)
    return log[at : at + 4000]


def test_without_turnout_it_would_not_run(cluster: Cluster) -> None:
    """The workers' Python has pyspark and pyarrow, and not turnout: the test above ships it."""
    told = subprocess.run(
        [cluster.environment["PYSPARK_PYTHON"], "-c", "import pyspark, pyarrow, turnout"],
        capture_output=True, text=True, check=False, env=cluster.environment, cwd="/",
    )  # fmt: skip

    assert "No module named 'turnout'" in told.stderr
