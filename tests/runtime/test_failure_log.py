"""Output of ``errors.log.enable``: the first failures of a micro-batch in full, the others counted."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from turnout.routes import Route
from turnout.runtime.publishing import log_failures
from turnout.spark.running.job import run

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
