"""Routes and DataFrames of records through a Spark Connect server that is a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.spark_connect import ConnectServer

import turnout
from turnout.conditions import kiwi
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, stream_info, subject_counts
from turnout.subscriptions import Subscription, open_store

pytestmark = pytest.mark.heavy

pytest.importorskip("grpc_status", reason='Spark Connect needs "pyspark[connect]"')

ROUTE = """
name: connect
source: {{format: nats, servers: "{url}", stream: IN, maxRecordsPerTrigger: {batch}}}
value: {{format: json}}
transforms:
  - {{name: seen, type: "InsertField$Value", static.field: seen, static.value: "yes"}}
subscriptions: {{store: "{store}", metadata: {{town: value.town}}}}
sink: {{format: nats, servers: "{url}", stream: OUT}}
spark: {{spark.driver.memory: 2g}}
"""

FRAMES = """
import json, sys
from pyspark.sql import SparkSession, functions as F
from turnout import MappingTable, SubjectTransform, spark as ts
from turnout.conditions import kiwi
from turnout.subscriptions import Subscription, open_store
from turnout.transforms import Chain

url, servers, folder = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
rows = spark.createDataFrame([("in.a", '{"n":1}'), ("in.b", "broken")], "topic string, value string")
swap = SubjectTransform.parse("*.*", "{{wildcard(2)}}.{{wildcard(1)}}")
table = MappingTable.from_config({"in.a": "mapped.a"})
chain = Chain.from_config({
    "transforms": "r,c", "transforms.r.type": "RegexRouter", "transforms.r.regex": "in(.*)",
    "transforms.r.replacement": "out$1", "transforms.c.type": "Cast$Value", "transforms.c.spec": "int32",
})
store = open_store("memory://")
store.create(Subscription(destinations=("d",), condition=kiwi("topic", "*.b")))
applied = ts.apply_chain(chain, rows.withColumn("value", F.when(F.col("topic") == "in.a", "7").otherwise("x")), "all")
print(json.dumps({
    "transform_subject": [row.t for row in rows.select(ts.transform_subject(swap, "topic").alias("t")).collect()],
    "map_subject": [row.t for row in rows.select(ts.map_subject(table, "topic").alias("t")).collect()],
    "map_subjects": [row.into for row in ts.map_subjects(rows, table, into="into").collect()],
    "subject_matches": [row.topic for row in rows.where(ts.subject_matches("*.b", "topic")).collect()],
    "records": [[row.topic, row.value] for row in applied.records.collect()],
    "dead_letters": [[row.topic, row._error.stage] for row in applied.dead_letters.collect()],
    "match": [[row.topic, row.destination] for row in ts.match(rows, store).collect()],
    "subscriptions_table": [row.condition for row in ts.subscriptions_table(spark, store).collect()],
}))
spark.stop()
"""


@dataclass
class Setting:
    """A NATS server with two streams, subscriptions to four of five towns, and a route over them."""

    server: NatsServer
    connection: Connection
    work: Path
    connect: str

    def publish(self, start: int, end: int) -> None:
        with Connection.open(self.server.url) as connection, Publisher(connection) as publisher:
            for number in range(start, end):
                publisher.publish("in.x", b'{"town":"T%d","n":%d}' % (number % 5, number))

    def begin(self, *options: str, batch: int = 5_000) -> subprocess.Popen[str]:
        """`turnout run`, as a person starts it."""
        store = f"sqlite:///{self.work / 'subscriptions.db'}"
        route = self.work / "route.yaml"
        route.write_text(ROUTE.format(url=self.server.url, store=store, batch=batch), encoding="utf-8")
        command = [
            sys.executable, "-m", "turnout", "run", str(route), "--master", self.connect,
            "--checkpoint", str(self.work / "checkpoint"), "--json", *options,
        ]  # fmt: skip
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment(), cwd=self.work
        )

    def run(self, *options: str) -> dict[str, Any]:
        process = self.begin("--once", *options)
        printed, errors = process.communicate(timeout=180)

        assert process.returncode == 0, errors[-3000:]
        return json.loads(printed)

    def stored(self) -> int:
        return int(stream_info(self.connection, "OUT")["state"]["messages"])

    def await_stored(self, least: int, process: subprocess.Popen[str]) -> int:
        deadline = time.monotonic() + 120
        while (stored := self.stored()) < least and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return stored


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(turnout.__file__).parent.parent)}


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    yield server.url
    server.stop()


@pytest.fixture
def setting(connect: str, tmp_path: Path) -> Iterator[Setting]:
    store = open_store(f"sqlite:///{tmp_path / 'subscriptions.db'}")
    store.create_many(Subscription(destinations=(f"out.{n}",), condition=kiwi("town", f"T{n}")) for n in range(4))
    store.close()
    with NatsServer() as server, Connection.open(server.url) as connection:
        for name in ("IN", "OUT"):
            config = {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"}
            create_stream(connection, {**config, "duplicate_window": 3600 * 10**9})
        yield Setting(server, connection, tmp_path, connect)


def test_a_route_with_subscriptions(setting: Setting) -> None:
    """The server's tasks transform, match and publish; the client has the counts, and a later run goes on."""
    setting.publish(0, 20_000)

    first = setting.run()
    setting.publish(20_000, 25_000)
    second = setting.run()

    assert first["conserved"]
    assert (first["counts"]["read"], first["counts"]["unmatched"]) == (20_000, 4_000)
    assert first["batches"] == 4
    assert second["conserved"]
    assert second["counts"]["read"] == 5_000
    assert subject_counts(setting.connection, "OUT") == {f"out.{n}": 5_000 for n in range(4)}


def test_a_client_that_is_killed(setting: Setting) -> None:
    """kill -9 in the middle of a micro-batch: the next client goes on from the checkpoint, and nothing comes twice."""
    setting.publish(0, 60_000)
    process = setting.begin("--once", batch=3_000)
    stored = setting.await_stored(4_000, process)
    process.kill()
    process.communicate(timeout=30)

    setting.run()

    assert 4_000 <= stored < 48_000
    assert subject_counts(setting.connection, "OUT") == {f"out.{n}": 12_000 for n in range(4)}


def test_a_stop_and_a_new_subscription(setting: Setting) -> None:
    """SIGTERM ends an endless run between micro-batches; what is created while it runs is matched from then on."""
    setting.publish(0, 10_000)
    process = setting.begin()
    setting.await_stored(8_000, process)
    store = open_store(f"sqlite:///{setting.work / 'subscriptions.db'}")
    store.create(Subscription(destinations=("out.new",), condition=kiwi("town", "T4")))
    store.close()
    setting.publish(10_000, 15_000)
    setting.await_stored(13_000, process)
    process.send_signal(signal.SIGTERM)
    printed, errors = process.communicate(timeout=240)

    assert process.returncode == 0, errors[-3000:]
    result = json.loads(printed)
    assert result["stopped"]
    assert result["conserved"]
    assert result["counts"]["read"] == 15_000
    assert "spark.driver.memory is set where the Spark Connect server is started" in errors
    counts = subject_counts(setting.connection, "OUT")
    assert counts == {**{f"out.{n}": 3_000 for n in range(4)}, "out.new": 1_000}


def test_functions_for_frames(connect: str, tmp_path: Path) -> None:
    """Each function for DataFrames gives what it gives in a classic session."""
    done = subprocess.run(
        [sys.executable, "-c", FRAMES, connect, "", str(tmp_path)],
        capture_output=True, text=True, timeout=150, check=False, cwd=tmp_path, env=_environment(),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "transform_subject": ["a.in", "b.in"],
        "map_subject": ["mapped.a", "in.b"],
        "map_subjects": ["mapped.a", "in.b"],
        "subject_matches": ["in.b"],
        "records": [["out.a", 7]],
        "dead_letters": [["in.b", "TRANSFORMATION"]],
        "match": [["in.b", "d"]],
        "subscriptions_table": ["topic:*.b"],
    }


def test_no_server(tmp_path: Path) -> None:
    """An address where nothing answers is one line, not a trace."""
    with NatsServer() as server, Connection.open(server.url) as connection:
        for name in ("IN", "OUT"):
            create_stream(connection, {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"})
        open_store(f"sqlite:///{tmp_path / 'subscriptions.db'}").close()
        process = Setting(server, connection, tmp_path, "sc://127.0.0.1:9").begin("--once")
        _, errors = process.communicate(timeout=120)

    assert process.returncode == 1
    assert "the Spark Connect server at sc://127.0.0.1:9 does not answer" in errors
    assert "Traceback" not in errors
