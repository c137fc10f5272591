"""A Spark standalone cluster of this machine's own, from PySpark's jars, on loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from turnout.embedded import free_port
from turnout.runtime.java import find_java

__all__ = ["SPARK", "StandaloneCluster"]

SPARK = Path(pyspark.__file__).parent

_EXECUTOR = "CoarseGrainedExecutorBackend"
_START_SECONDS = 180


class StandaloneCluster:
    """A master and its workers, each a process of its own.

    Args:
        work: the folder for logs and for what workers write.
        workers: how many.
        python: what the executors start for Python.
        cores: of each worker.
        environment: more variables for all processes.
    """

    def __init__(
        self,
        work: Path,
        workers: int,
        *,
        python: str = sys.executable,
        cores: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.work = work
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": python,
            **(environment or {}),
        }
        self.master = self._start("master", "master.Master", "--port", str(port), "--webui-port", "0")
        self.workers = [
            self._start(
                f"worker{number}", "worker.Worker", "--cores", str(cores), "--memory", "1g", "--webui-port", "0",
                "-d", str(work / f"w{number}"), self.url,
            )
            for number in range(workers)
        ]  # fmt: skip
        try:
            self._await_workers()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(SPARK / "bin/spark-class"), f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", *arguments]
        with (self.work / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def _await_workers(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        logs: list[str] = []
        while time.monotonic() < deadline:
            logs = [path.read_text(errors="replace") for path in sorted(self.work.glob("worker*.log"))]
            if sum("Successfully registered with master" in log for log in logs) == len(self.workers):
                return
            time.sleep(0.2)
        raise RuntimeError("the cluster did not come up: " + "\n".join(logs)[-3000:])

    def _below(self, worker: subprocess.Popen[bytes]) -> Iterator[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield from psutil.Process(worker.pid).children(recursive=True)

    def kill_an_executor(self) -> int:
        """kill -9 of one executor's JVM, of which its worker starts another; its process id."""
        for process in (process for worker in self.workers for process in self._below(worker)):
            # Some of them end while they are looked at.
            with contextlib.suppress(psutil.NoSuchProcess):
                if _EXECUTOR in " ".join(process.cmdline()):
                    process.kill()
                    return process.pid
        raise AssertionError("there is no executor")

    def kill_a_worker(self) -> int:
        """kill -9 of the first worker and of all that it has started, as when its machine is gone; their number."""
        worker = self.workers[0]
        processes = [psutil.Process(worker.pid), *self._below(worker)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return len(processes)

    def stop(self) -> None:
        """End every process, and wait until it is gone."""
        for process in (*self.workers, self.master):
            process.terminate()
        for process in (*self.workers, self.master):
            process.wait(30)
