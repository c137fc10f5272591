"""Outcome of a test's record, in the terms of its expectation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnout.codecs import Notation, TextNotation, notation_of
from turnout.engine.outcome import Outcome
from turnout.engine.stage_report import record_as_json
from turnout.engine.trace import Trace
from turnout.records import ALIVE, Schema
from turnout.records.text import json_of, text_of
from turnout.records.types import Value
from turnout.routes import Route

Delivery = tuple[str | None, str]
"""Subscription id, None for messages without subscription, and destination."""


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """Outcome of one record.

    Attributes:
        outcome: the label of an `Outcome`.
        stage: stage that failed; None without a failure.
        reason: why.
        topic: as transformed and mapped; None where the weights lose it.
        key: as for a sink with keys; for a record without messages, the result of the transforms.
        value: likewise. Both are null once a record was filtered or has failed, but for a dead letter's.
        plain_key: the key as tests write it.
        plain_value: the value as tests write it.
        headers: likewise.
        deliveries: deliveries of its messages, sorted; a dead letter is none.
        bodies: bodies of the messages that have a projection.
    """

    outcome: str
    stage: str | None
    reason: str | None
    topic: str | None
    key: bytes | None
    value: bytes | None
    plain_key: Value
    plain_value: Value
    headers: tuple[tuple[str, str | None], ...]
    deliveries: tuple[Delivery, ...]
    bodies: Mapping[Delivery, bytes | None]


def ending_of(trace: Trace, row: int, route: Route) -> CaseOutcome:
    """Return the outcome of one record of a trace through a route."""
    notations = notation_of(route.key), notation_of(route.value)
    failure = trace.failures.get(row)
    outcome = trace.outcome(row)
    # A run ends before it sends the dead letter of a record that stops it.
    messages = [] if outcome is Outcome.STOPPED else trace.messages_of(row).tolist()
    dead = outcome is Outcome.DEAD_LETTERED
    sent = [
        (trace.subscriptions[number].as_py(), trace.destinations[number].as_py())
        for number in messages
        if not trace.is_letter(number)
    ]
    # What subscriptions compute is each one's own: the case is about the record.
    whole = [number for number in messages if number not in trace.projected]
    key, value, headers = _sent(trace, whole[0]) if whole else _transformed_parts(trace, row, notations)
    if key is None and not dead:
        # JetStream's messages have no key: compare the result of the transforms.
        key = _transformed_parts(trace, row, notations)[0]
    return CaseOutcome(
        outcome.label,
        failure.stage if failure else None,
        failure.message if failure else None,
        trace.topics[row],
        key,
        value,
        notations[0].decode(key),
        notations[1].decode(value),
        headers,
        tuple(sorted(sent, key=lambda delivery: (delivery[0] or "", delivery[1]))),
        {
            (trace.subscriptions[number].as_py(), trace.destinations[number].as_py()): _sent(trace, number)[1]
            for number in messages
            if number in trace.projected
        },
    )


_Parts = tuple[bytes | None, bytes | None, tuple[tuple[str, str | None], ...]]


def _sent(trace: Trace, message: int) -> _Parts:
    """Key, value and headers of a message."""
    row = int(trace.messages.rows[message])
    key, value, pairs = (trace.messages.records.column(name)[row].as_py() for name in ("key", "value", "headers"))
    return key, value, tuple((header["key"], text_of(header["value"])) for header in pairs or ())


def _transformed_parts(trace: Trace, row: int, notations: tuple[Notation, Notation]) -> _Parts:
    """Return key, value and headers after the transforms; of a record that is not alive, the headers only."""
    record = trace.records.record(row)
    headers = tuple((name, text) for name, text in record_as_json(record)["headers"])
    if trace.records.outcomes[row] != ALIVE:
        return None, None, headers
    key = _written(record.key, record.key_schema, notations[0])
    return key, _written(record.value, record.value_schema, notations[1]), headers


def _written(value: Value, schema: Schema | None, notation: Notation) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    plain = json_of(value, schema)
    try:
        return notation.encode(plain)
    except ValueError:
        return _TEXT.encode(plain)


_TEXT: Final = TextNotation()


def read_back(raw: bytes | None) -> Value:
    """Return bytes as JSON if they are JSON, else as text; bytes that are neither, and None, unchanged."""
    return _TEXT.decode(raw)
