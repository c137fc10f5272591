"""What ``errors.log.enable`` writes: the first failures of a micro-batch in full, the others counted."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from turnout.routes import Route
from turnout.spark import error_log
from turnout.spark.chain import compile_chain, logged_error
from turnout.spark.error_log import log_failures, observed_failures
from turnout.spark.job import run
from turnout.spark.values import decode_values
from turnout.transforms import Chain, ErrorPolicy, ValueFormat, registry

RECORD = (
    "topic string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp"
)
CAST = [{"name": "number", "type": "Cast$Value", "spec": "a:int32"}]


def said(spark: SparkSession, caplog: pytest.LogCaptureFixture, chain: Chain, values: list[Any]) -> list[str]:
    """What is logged while the records go through the chain once."""
    rows = [("flights", 3, at, b"k", json.dumps({"a": value}).encode(), [], None) for at, value in enumerate(values)]
    records = spark.createDataFrame(rows, RECORD).withColumn("read", F.col("value"))
    done = compile_chain(chain, decode_values(records, ValueFormat("json")), "all")
    consumed = {name: F.col(name) for name in ("topic", "partition", "offset", "timestamp", "key")}
    observation = Observation()
    observed = observed_failures(chain.errors, logged_error(done), F.lit(True), {**consumed, "value": F.col("read")})
    write(done.observe(observation, F.count(F.lit(1)).alias("n"), *observed))
    with caplog.at_level(logging.ERROR, logger="turnout.errors"):
        log_failures(observation.get, route="r")
    return [record.getMessage() for record in caplog.records]


def write(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def test_each_failure_is_logged_with_stage_class_message_and_place(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything that Connect's log reporter says of a record of a sink; what came through is not mentioned."""
    chain = Chain.from_route(CAST, errors=ErrorPolicy("all", log=True))

    (line,) = said(spark, caplog, chain, ["1", "x", "2"])

    assert line.startswith(
        "route r: Error encountered. Executing stage 'TRANSFORMATION' with class "
        "'org.apache.kafka.connect.transforms.Cast$Value', where consumed record is "
        "{topic='flights', partition='3', offset='1'}: org.apache.kafka.connect.errors.DataException: number: "
    )
    assert '"a"' not in line


def test_the_record_is_shown_only_where_messages_are_included(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """``errors.log.include.messages``: key and value as they were read."""
    chain = Chain.from_route(CAST, errors=ErrorPolicy("all", log=True, log_messages=True))

    (line,) = said(spark, caplog, chain, ["x"])

    assert line.endswith("(key='k', value='{\"a\": \"x\"}')")


def test_of_many_failures_the_first_are_shown_and_the_others_counted(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of a micro-batch stays short, whatever is in it."""
    chain = Chain.from_route(CAST, errors=ErrorPolicy("all", log=True))

    with patch.object(error_log, "IN_FULL", 2):
        lines = said(spark, caplog, chain, ["x"] * 5)

    assert ["offset='0'" in lines[0], "offset='1'" in lines[1]] == [True, True]
    assert lines[2:] == ["route r: 3 more records failed in this micro-batch"]


def test_nothing_is_observed_where_nothing_is_to_be_logged(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The default costs nothing."""
    assert said(spark, caplog, Chain.from_route(CAST, errors=ErrorPolicy("all")), ["x"]) == []
    assert observed_failures(ErrorPolicy("all"), F.lit(None), F.lit(True), {}) == []


def test_a_predicate_that_is_passed_over_is_logged(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """KIP-585's draft: the stage is left out, the failure is logged, the record goes on."""
    from tests.vectors.connect import Throwing

    policy = ErrorPolicy("all", log=True, failed_predicates="not-matched")
    with patch.object(registry, "_plugins", lambda: {"Throwing": Throwing}):
        stage = {"name": "odd", "type": "Filter", "predicate": {"type": "Throwing"}, "negate": True}
        chain = Chain.from_route([stage], errors=policy)

    (line,) = said(spark, caplog, chain, ["1"])

    assert "with class 'org.apache.kafka.connect.transforms.Filter'" in line
    assert line.endswith("java.lang.RuntimeException: odd: thrown")


def test_a_route_logs_what_its_micro_batch_could_not_handle(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """``errors: {log: true}`` in a route file is enough; the dead letter says the same in its headers."""
    source, sink = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    lines = [
        {"topic": "flights", "partition": 0, "offset": n, "value": json.dumps({"a": v})} for n, v in enumerate("1x")
    ]
    (source / "records.json").write_text("\n".join(map(json.dumps, lines)))
    text = f"""
name: logged
source: {{format: json, path: {source}}}
value: {{format: json}}
transforms: [{{name: number, type: Cast$Value, spec: "a:int32"}}]
sink: {{format: json, path: {sink}}}
deadLetter: {{topic: dead}}
errors: {{tolerance: all, log: true}}
"""

    with caplog.at_level(logging.ERROR, logger="turnout.errors"):
        result = run(Route.parse(text), spark)

    assert (result.counts.delivered, result.counts.dead_lettered) == (1, 1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "route logged: " in line
    assert "{topic='flights', partition='0', offset='1'}" in line
    (dead,) = spark.read.json(str(sink)).where("topic = 'dead'").collect()
    headers = {header["key"].removeprefix("__connect.errors."): header["value"] for header in dead["headers"]}
    assert set(headers) == {
        "topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name", "exception.class.name",
        "exception.message", "exception.stacktrace",
    }  # fmt: skip
