"""The format nats over Spark Connect: a server process of its own, and a client that knows nothing of turnout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.spark_connect import ConnectServer

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, subject_counts

pytestmark = pytest.mark.heavy

pytest.importorskip("grpc_status", reason='Spark Connect needs "pyspark[connect]"')

CLIENT = """
import sys
sys.modules["turnout"] = None
from pyspark.sql import SparkSession
from pyspark.sql.functions import regexp_replace
url, servers, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
options = {"servers": servers, "stream": "IN", "includeStream": "true"}
print("READ", spark.read.format("nats").options(**options).load().where("topic = 'in.0'").count())
read = spark.readStream.format("nats").options(**options).load()
copied = read.withColumn("topic", regexp_replace("topic", "in", "out")).drop("key")
query = (copied.writeStream.format("nats").options(servers=servers, stream="OUT")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
query.awaitTermination()
print("FAILED", query.exception())
rows = spark.range(10).selectExpr("'more.x' topic", "cast(id as string) value")
rows.write.format("nats").options(servers=servers, stream="MORE").mode("append").save()
spark.stop()
"""


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Connect server."""
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    yield server.url
    server.stop()


def test_batch_and_stream_over_connect(connect: str, tmp_path: Path) -> None:
    """If the server has turnout, a client reads, streams and writes by the format's name alone."""
    count = 20_000
    with NatsServer() as server, Connection.open(server.url) as connection:
        for name in ("IN", "OUT", "MORE"):
            create_stream(connection, {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"})
        with Connection.open(server.url) as opened, Publisher(opened) as publisher:
            for n in range(count):
                publisher.publish(f"in.{n % 4}", str(n).encode())
        command = [sys.executable, "-c", CLIENT, connect, server.url, str(tmp_path / "checkpoint")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, cwd=tmp_path)

        assert done.returncode == 0, done.stderr[-3000:]
        assert f"READ {count // 4}" in done.stdout
        assert "FAILED None" in done.stdout
        assert subject_counts(connection, "OUT") == {f"out.{n}": count // 4 for n in range(4)}
        assert subject_counts(connection, "MORE") == {"more.x": 10}
