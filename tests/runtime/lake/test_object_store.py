"""Delta tables in an object store, a stand-in of S3: versions, writers that meet, and files that Spark writes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.lake import Lake, deltalake, flights
from tests.s3_server import jars_of_s3

from turnout.routes import Route
from turnout.routes.endpoints import LakeSink, LakeSource
from turnout.runtime.lake.table import BatchMark, LakeVersions, existing_table

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
SERVE = (
    "from tests.s3_server import S3Server\nserver = S3Server()\nprint(server.url, flush=True)\nserver.serve_forever()"
)


@pytest.fixture
def url() -> Iterator[str]:
    """A stand-in in a process of its own: the libraries hold the interpreter's lock while they wait for it."""
    with subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


def test_versions_and_commits(url: str) -> None:
    """Rows of each version are read by their place, and two writers at one version both commit, each with its mark."""
    options = {**KEYS, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    for rows in (flights(1, 2), flights(3)):
        deltalake.write_deltalake("s3://lake/flights", rows, mode="append", storage_options=options)
    end: dict[str, Any] = {"format": "delta", "path": "s3://lake/flights", "options": options}
    source = json.dumps({**end, "record": {"topic": "t"}})
    route = Route.parse(f"name: r\nsource: {source}\nsink: {json.dumps(end)}")
    sink = route.sinks[""]
    assert isinstance(sink, LakeSink)
    assert isinstance(route.source, LakeSource)
    versions = LakeVersions(route.source)

    def ids() -> list[int]:
        last = versions.next(versions.initial(), None, None, is_first=True)
        splits = versions.splits({}, last)
        batches = [batch for split in splits for batch in split.reader(None).batches_with_stream()]
        return sorted(row["value"]["id"] for batch in batches for row in batch.to_pylist())

    assert ids() == [1, 2, 3]
    writers = [existing_table(sink) for _ in range(2)]
    for number, table in enumerate(writers):
        content = io.BytesIO()
        pq.write_table(flights(4 + number), content)
        # As Hadoop's client has written it, which has its own name for the scheme.
        path = f"lake/flights/turnout-{number}/part.parquet"
        put = urllib.request.Request(f"{url}/{path}", content.getvalue(), method="PUT")
        urllib.request.urlopen(put).close()
        table.append([(f"s3a://{path}", len(content.getvalue()))], (), BatchMark(f"turnout-{number}", 7))

    table = existing_table(sink)
    assert [table.done(f"turnout-{number}") for number in range(3)] == [7, 7, None]
    assert ids() == [1, 2, 3, 4, 5]


@pytest.mark.heavy
@pytest.mark.spark
def test_files_that_spark_writes(url: str, tmp_path: Path) -> None:
    """Hadoop's client writes the files of a route's sink, and delta-rs commits them."""
    lake, path = Lake("delta", tmp_path), "s3a://lake/out"
    options = {**KEYS, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    lake.add("flights", flights(1, 2, 3))
    sink = {"format": "delta", "path": path, "options": options, "partitionBy": "carrier"}
    properties = {
        "spark.jars": jars_of_s3(),
        "spark.hadoop.fs.s3a.endpoint": url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    route = tmp_path / "route.yaml"
    source = lake.block("flights", record={"topic": "t"})
    route.write_text(f"name: r\nsource: {source}\nsink: {json.dumps(sink)}\nspark: {json.dumps(properties)}\n")
    command = [sys.executable, "-m", "turnout", "run", str(route), "--once", "--json", "--master", "local[2]"]

    for count in (3, 1):
        environment = {**os.environ, **KEYS}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout)["counts"]["delivered"] == count
        lake.add("flights", flights(4))

    found = deltalake.DeltaTable(path, storage_options=options).to_pyarrow_table().sort_by("id")
    assert found.to_pylist() == flights(1, 2, 3, 4).to_pylist()
