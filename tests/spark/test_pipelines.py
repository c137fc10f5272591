"""The pipeline of docs/pipelines.md, run by Spark's own command, from a stream to a stream and a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as files
import pyspark
import pytest
from tests.documentation import blocks

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection
from turnout.nats.wire.streams import create_stream, delete_stream, sample

STREAMS = ("ORDERS", "DELIVERED")


@pytest.mark.heavy
@pytest.mark.spark
def test_pipeline_of_the_page(nats_server: NatsServer, connection: Connection, tmp_path: Path) -> None:
    """Good records are delivered, and the bad one is in the table of failures with its reason."""
    specification, program = blocks("pipelines.md")
    (tmp_path / "flows").mkdir()
    text = specification.text.replace("/tmp/pipeline/", f"{tmp_path}/")
    (tmp_path / "spark-pipeline.yml").write_text(text)
    (tmp_path / "flows" / "orders.py").write_text(program.text)
    for name in STREAMS:
        create_stream(connection, {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"})
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "NATS_URL": nats_server.url,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
    }
    try:
        for order in (
            {"city": "Oulu", "total": "250"},
            {"city": "Pori", "total": "many"},
            {"city": "Kemi", "total": 9},
        ):
            connection.request("orders.a", json.dumps(order).encode())
        done = subprocess.run(
            [home / "bin" / "spark-pipelines", "run", "--spec", "spark-pipeline.yml"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        delivered = {row["topic"]: json.loads(row["value"]) for row in sample(connection, "DELIVERED", 10).to_pylist()}
    finally:
        for name in STREAMS:
            delete_stream(connection, name)

    assert delivered == {
        "delivered.Oulu": {"city": "Oulu", "total": 250},
        "delivered.Kemi": {"city": "Kemi", "total": 9},
    }
    (folder,) = (path for path in tmp_path.rglob("failures") if any(path.glob("*.parquet")))
    (failure,) = files.dataset(folder, format="parquet", exclude_invalid_files=True).to_table().to_pylist()
    assert (failure["topic"], failure["offset"], failure["stage"]) == ("orders.a", 2, "TRANSFORMATION")
    assert "many" in failure["message"]
