"""What a chain does to one record, stage by stage: the compiler that runs routes, looked at after each step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from turnout.errors import ConfigError, Mistake
from turnout.spark.chain import DROPPED, ERROR, ChainCompiler
from turnout.spark.predicates import compile_predicate, operand
from turnout.spark.schemas import schema_of
from turnout.spark.text import text_of
from turnout.spark.typed import Typed
from turnout.spark.values import decode_values, encode_values
from turnout.transforms.chain import Chain, Guard, Stage
from turnout.transforms.predicates import Condition
from turnout.transforms.values import ValueFormat

__all__ = ["Answer", "StageReport", "explain", "record_frame"]

_RECORD = (
    "topic string, partition int, offset bigint, key string, value string, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp"
)
_PARTS = ("topic", "partition", "offset", "key", "value", "headers", "timestamp")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one predicate said.

    Attributes:
        predicate: the predicate with its options.
        negate: whether its answer was turned around.
        holds: its own answer, before that.
        saw: what it looked at, by name.
    """

    alias: str
    predicate: str
    negate: bool
    holds: bool
    saw: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage as it was for the record.

    Attributes:
        outcome: ``applied``, ``not matched``, ``dropped``, ``failed``, or ``skipped`` after a failure or a drop.
        error: why it failed.
    """

    name: str
    transform: str
    answers: tuple[Answer, ...]
    outcome: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    error: str | None = None


def record_frame(spark: SparkSession, given: Mapping[str, Any]) -> DataFrame:
    """One record as a frame.

    Args:
        spark: the session.
        given: ``topic``, ``partition``, ``offset``, ``key``, ``value``, ``headers`` (name → text), ``timestamp``
            (ISO 8601); a value that is no text stands for its JSON.

    Raises:
        ConfigError: when it has other parts, or no topic.
    """
    unknown = [name for name in given if name not in _PARTS]
    mistakes = [Mistake(name, f"is no part of a record; there are {', '.join(_PARTS)}") for name in unknown]
    if not isinstance(given.get("topic"), str):
        mistakes.append(Mistake("topic", f"expected a text, found {given.get('topic')!r}"))
    if mistakes:
        raise ConfigError(mistakes, what="bad record")
    headers = [(name, str(text).encode()) for name, text in (given.get("headers") or {}).items()]
    stamp = datetime.fromisoformat(given["timestamp"]) if given.get("timestamp") else None
    row = (
        given["topic"],
        given.get("partition", 0),
        given.get("offset", 0),
        _text(given.get("key")),
        _text(given.get("value")),
        headers,
        stamp,
    )
    return spark.createDataFrame([row], _RECORD)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def explain(chain: Chain, codec: ValueFormat, record: DataFrame) -> Iterator[StageReport]:
    """What each stage does to the only row of *record*, whose value is still text."""
    compiler = ChainCompiler(decode_values(record, codec), chain.errors)
    row, before = _look(compiler.rows())
    if row[ERROR] is not None:
        yield StageReport("value", codec.format, (), "failed", before, before, row[ERROR]["message"])
    for stage in chain.stages:
        answers = tuple(_answer(guard, compiler) for guard in stage.guards)
        dead = row[ERROR] is not None or row[DROPPED]
        compiler.add(stage)
        row, after = _look(compiler.rows())
        outcome = "skipped" if dead else _outcome(stage, answers, row)
        error = row[ERROR]["message"] if outcome == "failed" else None
        yield StageReport(stage.name, stage.transform.label, answers, outcome, before, after, error)
        before = after


def _outcome(stage: Stage, answers: tuple[Answer, ...], row: Row) -> str:
    if row[ERROR] is not None:
        return "failed"
    if row[DROPPED]:
        return "dropped"
    applies = all(answer.holds != answer.negate for answer in answers) != (stage.negate and bool(answers))
    return "applied" if applies else "not matched"


def _answer(guard: Guard, compiler: ChainCompiler) -> Answer:
    record = compiler.record()
    saw: dict[str, Column] = {"topic": record.topic}
    if isinstance(guard.predicate, Condition):
        saw = {key: text_of(operand(key, record)) for key in guard.predicate.keys}
    holds = F.coalesce(compile_predicate(guard.predicate, record).holds, F.lit(False))
    columns = [holds.alias("h"), *[column.alias(f"c{at}") for at, column in enumerate(saw.values())]]
    found = compiler.frame.select(*columns).collect()[0]
    seen = dict(zip(saw, found[1:], strict=True))
    return Answer(guard.alias, repr(guard.predicate), guard.negate, found[0], seen)


def _look(rows: DataFrame) -> tuple[Row, dict[str, Any]]:
    """The row, and the record in it as plain JSON."""
    shown = encode_values(rows, ValueFormat("json"))
    schema = schema_of(rows.schema["key"])
    if not isinstance(rows.schema["key"].dataType, T.StringType):
        shown = shown.withColumn("key", text_of(Typed(F.col("key"), schema)))
    row = shown.collect()[0]
    record = {name: row[name] for name in _PARTS}
    record["headers"] = [
        [one["key"], None if one["value"] is None else bytes(one["value"]).decode(errors="replace")]
        for one in row["headers"] or []
    ]
    record["value"] = None if row["value"] is None else json.loads(row["value"])
    record["timestamp"] = row["timestamp"] and row["timestamp"].isoformat()
    return row, record
