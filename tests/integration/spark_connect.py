"""A Spark Connect server as a process of its own, on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark

import turnout
from turnout.embedded import free_port
from turnout.runtime.java import find_java

__all__ = ["ConnectServer"]

_SPARK = Path(pyspark.__file__).parent


class ConnectServer:
    """A server that has turnout installed, as its PYTHONPATH.

    Args:
        work: the folder for what it writes.
    """

    def __init__(self, work: Path) -> None:
        port = free_port()
        self.url = f"sc://127.0.0.1:{port}"
        self.log = work / "server.log"
        command = [
            str(_SPARK / "bin" / "spark-submit"), "--master", "local[2]",
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--conf", f"spark.connect.grpc.binding.port={port}",
            "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
            "--conf", "spark.ui.enabled=false",
        ]  # fmt: skip
        environment = {
            **{key: value for key, value in os.environ.items() if key != "SPARK_HOME"},
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(turnout.__file__).parent.parent),
        }
        with self.log.open("wb") as file:
            self._process = subprocess.Popen(command, env=environment, cwd=work, stdout=file, stderr=file)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + 180
        while b"Spark Connect server started" not in self.log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the server did not start: " + self.log.read_text(errors="replace")[-3000:])
            time.sleep(0.2)

    def stop(self) -> None:
        """End it, and wait until it is gone."""
        self._process.terminate()
        self._process.wait(30)
