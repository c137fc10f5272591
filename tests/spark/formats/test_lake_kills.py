"""``kill -9`` of the process that commits to a table, anywhere: after any number of kills each row is there once.

Spark's part, the files of a micro-batch, is written by pyarrow here: so a start takes no JVM, and kills may be many.
`tests/integration/test_lake_kills.py` kills whole runs.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake import Lake

from turnout.records import Field, Schema
from turnout.routes import Route
from turnout.routes.endpoints.tables import LakeSink
from turnout.routes.rows import RowPlan, plan_rows
from turnout.runtime.lake.table import existing_table
from turnout.spark.endpoints import BatchId
from turnout.spark.formats import lake

BATCHES, ROWS = 12, 5
VALUE = Schema("struct", fields=(Field("id", Schema("int64", optional=True)),))


def sink_of(block: str) -> tuple[LakeSink, RowPlan]:
    source = "{format: spark, provider: rate, record: {topic: t}}"
    sink = Route.parse(f"name: r\nsource: {source}\nsink: {block}").sinks[""]
    assert isinstance(sink, LakeSink)
    return sink, plan_rows(sink, VALUE)


def commit_all(kind: str, block: str, done: Any, seed: int) -> None:
    """Write every micro-batch as a query does that begins again: one of four commits is reported as failed."""
    logging.disable()
    sink, plan = sink_of(block)
    draws = random.Random(seed)
    module = __import__(f"turnout.runtime.lake.{kind}", fromlist=["Table"])
    append = module.Table.append

    def ambiguous(self: Any, *arguments: Any) -> None:
        append(self, *arguments)
        if draws.random() < 0.25:
            raise OSError("the connection was closed before the answer")

    def written(rows: Any, folder: str, _sink: LakeSink) -> list[tuple[str, int]]:
        file = Path(folder.removeprefix("file://")) / "part.parquet"
        file.parent.mkdir(parents=True)
        pq.write_table(rows, file)
        return [(f"file:{file}", file.stat().st_size)]

    module.Table.append = ambiguous
    lake._written = written  # type: ignore[assignment]
    # A query that begins again repeats its last micro-batch.
    for number in range(max(done.value - 1, 0), BATCHES):
        rows: Any = pa.table({"id": pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())})
        lake.LakeEndpoint(sink).write_rows(rows, plan, BatchId("turnout-query", number))
        done.value = number + 1


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_each_row_once(kind: str, kills: int, tmp_path: Path) -> None:
    """Whenever the process dies, and whatever the commit says."""
    draws = random.Random(kills)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    tables = Lake(kind, tmp_path)
    died: list[int] = []
    while len(died) < kills:
        name = f"out{uuid.uuid4().hex[:6]}"
        done = processes.Value("i", 0)
        block = tables.block(name)
        while done.value < BATCHES:
            child = processes.Process(target=commit_all, args=(kind, block, done, draws.randrange(10**6)))
            child.start()
            before, patience = done.value, draws.uniform(0, 0.06)
            deadline = time.monotonic() + 60
            wanted = before + draws.randint(0, 2)
            while child.is_alive() and done.value < wanted and time.monotonic() < deadline:
                time.sleep(0.001)
            child.join(patience if len(died) < kills else 60)
            if child.is_alive():
                child.kill()
                died.append(done.value)
            child.join(60)
            assert child.exitcode in (0, -9), child.exitcode

        assert [row["id"] for row in tables.rows(name)] == list(range(BATCHES * ROWS))
        table = existing_table(sink_of(block)[0])
        assert table.done(BatchId("turnout-query", 0).application) == BATCHES - 1
    print(f"{len(died)} kills behind so many micro-batches: {sorted(died)}")
    assert len(set(died)) > 1
