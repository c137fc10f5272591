"""Runs on a cluster that grants no executors: a master without workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks._cluster import StandaloneCluster

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream

pytestmark = pytest.mark.heavy

SINK = 'sink: {{format: nats, servers: "{url}", stream: OUT}}\n'
STREAM = 'source: {{format: nats, servers: "{url}", stream: IN}}\n'
FILES = "source: {{format: json, path: {files}}}\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), 0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer() as server, Connection.open(server.url) as connection:
        for name in ("IN", "OUT"):
            create_stream(connection, {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"})
        with Publisher(connection) as publisher:
            publisher.publish("in.a", b"{}")
        yield server


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("source", [STREAM, FILES])
def test_a_run_without_executors(
    cluster: StandaloneCluster, server: NatsServer, tmp_path: Path, number: signal.Signals, source: str
) -> None:
    """It is not ready, says what the cluster lacks, and ends at a signal."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.json").write_text('{"topic": "out.a", "value": "1"}\n', encoding="utf-8")
    route = tmp_path / "route.yaml"
    route.write_text(("name: waits\n" + source + SINK).format(url=server.url, files=files), encoding="utf-8")
    command = [sys.executable, "-m", "turnout", "run", str(route), "--master", cluster.url]
    command += ["--checkpoint", str(tmp_path / "checkpoint")]
    errors = tmp_path / "stderr"
    with errors.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=dict(os.environ))
        try:
            deadline = time.monotonic() + 150
            while "has granted Spark no executor" not in errors.read_text(encoding="utf-8"):
                assert process.poll() is None, errors.read_text(encoding="utf-8")
                assert time.monotonic() < deadline, errors.read_text(encoding="utf-8")
                time.sleep(0.2)
            process.send_signal(number)
            code = process.wait(90)
        finally:
            process.kill()
            process.wait()

    text = errors.read_text(encoding="utf-8")
    assert code == 0, text
    assert "is ready" not in text
    assert "spark.executor.memory" in text
