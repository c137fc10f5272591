"""What a route does to one record, stage by stage: the engine that runs routes, looked at after each step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.codecs import Format, codec_of
from turnout.engine.reading import batch_of
from turnout.errors import ConfigError, Mistake
from turnout.records import FAILED, FILTERED, Batch, Record
from turnout.records.headers import ARROW
from turnout.records.text import iso_of, json_of, text_of
from turnout.transforms.apply import ChainRunner, StageRunner
from turnout.transforms.base import Errors
from turnout.transforms.chain import Chain, Guard
from turnout.transforms.predicates import Condition, texts_of

__all__ = ["Answer", "StageReport", "explain", "record_batch"]

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


def record_batch(given: Mapping[str, Any]) -> Any:
    """One record as a record batch.

    Args:
        given: ``topic``, ``partition``, ``offset``, ``key``, ``value``, ``headers`` (name → text), ``timestamp``
            (ISO 8601); a key or value that is no text stands for its JSON.

    Raises:
        ConfigError: when it has other parts, or no topic.
    """
    unknown = [name for name in given if name not in _PARTS]
    mistakes = [Mistake(name, f"is no part of a record; there are {', '.join(_PARTS)}") for name in unknown]
    if not isinstance(given.get("topic"), str):
        mistakes.append(Mistake("topic", f"expected a text, found {given.get('topic')!r}"))
    try:
        moment = datetime.fromisoformat(given["timestamp"]) if given.get("timestamp") else None
    except (TypeError, ValueError):
        mistakes.append(Mistake("timestamp", f"expected ISO 8601, found {given['timestamp']!r}"))
    if mistakes:
        raise ConfigError(mistakes, what="bad record")
    headers = [{"key": name, "value": str(text).encode()} for name, text in (given.get("headers") or {}).items()]
    columns = {
        "topic": pa.array([given["topic"]], pa.string()),
        "partition": pa.array([given.get("partition", 0)], pa.int32()),
        "offset": pa.array([given.get("offset", 0)], pa.int64()),
        "key": pa.array([_bytes(given.get("key"))], pa.binary()),
        "value": pa.array([_bytes(given.get("value"))], pa.binary()),
        "headers": pa.array([headers], ARROW),
        "timestamp": pa.array([moment], pa.timestamp("us", tz="UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def explain(chain: Chain, key: Format, value: Format, record: Any) -> Iterator[StageReport]:
    """What each stage does to the only record of *record*, a batch as it was read."""
    records, consumed = batch_of(record, codec_of(key), codec_of(value))
    before = _as_read(consumed.topics, records, consumed.keys, consumed.values)
    if records.failures:
        failure = records.failures[0]
        side, codec = ("key", key) if failure.stage == "KEY_CONVERTER" else ("value", value)
        yield StageReport(side, codec.format, (), "failed", before, before, failure.message)
    else:
        before = _look(records)
    for runner in ChainRunner(chain).stages:
        dead = bool(records.outcomes[0])
        answers = () if dead else tuple(_answer(guard, records) for guard in runner.stage.guards)
        if not dead:
            runner.apply(records)
        outcome = "skipped" if dead else _outcome(runner, answers, records)
        after = before if records.outcomes[0] else _look(records)
        error = records.failures[0].message if outcome == "failed" else None
        yield StageReport(runner.stage.name, runner.stage.transform.label, answers, outcome, before, after, error)
        before = after


def _outcome(runner: StageRunner, answers: tuple[Answer, ...], records: Batch) -> str:
    if records.outcomes[0] == FAILED:
        return "failed"
    if records.outcomes[0] == FILTERED:
        return "dropped"
    if runner.noted:
        return "not matched"
    applies = all(answer.holds != answer.negate for answer in answers) != (runner.stage.negate and bool(answers))
    return "applied" if applies else "not matched"


def _answer(guard: Guard, records: Batch) -> Answer:
    saw: dict[str, str | None] = {"topic": records.topics[0]}
    if isinstance(guard.predicate, Condition):
        saw = {key: texts_of(records, key)[0] for key in guard.predicate.keys}
    errors: Errors = {}
    holds = guard.predicate.test(records, errors)
    return Answer(guard.alias, repr(guard.predicate), guard.negate, bool(np.asarray(holds)[0]), saw)


def _look(records: Batch) -> dict[str, Any]:
    """The only record of a batch as plain JSON."""
    return _shown(records.record(0))


def _shown(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": text_of(record.key, record.key_schema),
        "value": _plain(record.value)
        if isinstance(record.value, bytes)
        else json_of(record.value, record.value_schema),
        "headers": [
            [
                header.name,
                _plain(header.value) if isinstance(header.value, bytes) else text_of(header.value, header.schema),
            ]
            for header in record.headers
        ],
        "timestamp": None if record.timestamp is None else iso_of(record.timestamp),
    }


def _plain(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def _as_read(topics: Any, records: Batch, keys: Any, values: Any) -> dict[str, Any]:
    """The only record of a batch before anything was decoded."""
    shown = _shown(records.record(0))
    return {**shown, "topic": topics[0], "key": _plain(keys[0]), "value": _plain(values[0])}
