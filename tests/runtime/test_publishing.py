"""Counts of tasks as rows of Spark."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from turnout.engine.counts import Counts, Flow
from turnout.engine.dead_letters import IN_FULL
from turnout.engine.messages import Messages
from turnout.engine.result import Result
from turnout.routes import Route
from turnout.runtime.publishing import TALLY_SCHEMA, TaskTally, log_failures, sum_of
from turnout.spark.running.job import run

COUNTS = Counts(read=3, delivered=2, discarded=1, flow=Flow({"source": 3}, {"value": 1}))


def result(failures: list[dict[str, Any]]) -> Result:
    return Result(COUNTS, Messages.none(), failures=failures)


def test_the_sum_of_all_rows() -> None:
    """Of several tasks; rows of further failures add nothing, and no rows are zeros."""
    tally = TaskTally()
    tally.add(result([{"offset": str(n)} for n in range(2)]), result([]))
    rows = tally.rows()

    total = sum_of(2 * rows.column("counts").to_pylist())

    assert total == Counts(read=12, delivered=8, discarded=4)
    assert total.flow.taken["source"] == 12
    assert sum_of([]) == Counts()


def test_the_first_failures_have_rows() -> None:
    """Each is a JSON object, as far as it is shown; all are counted once."""
    tally = TaskTally()
    tally.add(result([{"offset": str(n), "message": "näin"} for n in range(IN_FULL)] + [{}]))

    rows = tally.rows()

    assert rows.schema.equals(TALLY_SCHEMA)
    assert [json.loads(text)["offset"] for text in rows.column("failure").to_pylist()] == [*map(str, range(IN_FULL))]
    assert rows.column("failures").to_pylist() == [IN_FULL + 1, *[0] * (IN_FULL - 1)]
    assert (
        TaskTally()
        .rows()
        .equals(
            pa.RecordBatch.from_pydict(
                {"counts": [json.dumps(Counts().to_json())], "failures": [0], "failure": [None]}, schema=TALLY_SCHEMA
            )
        )
    )


FAILURE = {
    "topic": "flights",
    "partition": "3",
    "offset": "1",
    "timestamp": None,
    "stage": "TRANSFORMATION",
    "class_name": "org.apache.kafka.connect.transforms.Cast$Value",
    "exception": "org.apache.kafka.connect.errors.DataException",
    "message": "number: no number",
}


def test_each_failure_is_a_line(caplog: Any) -> None:
    """Everything that Connect's log reporter says of a record of a sink; those beyond the first are counted."""
    shown = {**FAILURE, "key": "k", "value": "v"}

    with caplog.at_level(logging.ERROR, logger="turnout.errors"):
        log_failures({"_failures": [json.dumps(FAILURE), json.dumps(shown)], "_failures_count": 5}, route="r")
        log_failures({"_failures": None, "_failures_count": None}, route="r")
        log_failures({"read": 3}, route="r")

    first, second, others = [record.getMessage() for record in caplog.records]
    assert first == (
        "route r: Error encountered. Executing stage 'TRANSFORMATION' with class "
        "'org.apache.kafka.connect.transforms.Cast$Value', where consumed record is "
        "{topic='flights', partition='3', offset='1'}: org.apache.kafka.connect.errors.DataException: number: no number"
    )
    assert second == f"{first} (key='k', value='v')"
    assert others == "route r: 3 more records failed in this micro-batch"


@pytest.mark.parametrize("shown", [True, False])
def test_a_route_logs_what_its_micro_batch_could_not_handle(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, tmp_path: Path, shown: bool
) -> None:
    """``errors: {log: true}`` in a route file is enough; ``logMessages`` shows key and value; without, nothing is."""
    source, sink = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    values = ["1", *["x"] * 30]
    lines = [
        {"topic": "flights", "partition": 0, "offset": n, "key": "k", "value": json.dumps({"a": value})}
        for n, value in enumerate(values)
    ]
    (source / "records.json").write_text("\n".join(map(json.dumps, lines)))
    text = f"""
name: logged
source: {{format: json, path: {source}}}
value: {{format: json}}
transforms: [{{name: number, type: Cast$Value, spec: "a:int32"}}]
sink: {{format: json, path: {sink}}}
deadLetter: {{topic: dead}}
errors: {{tolerance: all, log: true, logMessages: {str(shown).lower()}}}
"""

    with caplog.at_level(logging.ERROR, logger="turnout.errors"):
        result = run(Route.parse(text), spark)

    assert (result.counts.delivered, result.counts.dead_lettered) == (1, 30)
    assert result.counts.conserved
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 21
    assert all(f"offset='{n}'" in line for n, line in enumerate(messages[:-1], 1))
    assert messages[0].endswith("(key='k', value='{\"a\": \"x\"}')") == shown
    assert messages[-1] == "route logged: 10 more records failed in this micro-batch"
    dead = spark.read.json(str(sink)).where("topic = 'dead'").collect()
    assert len(dead) == 30
