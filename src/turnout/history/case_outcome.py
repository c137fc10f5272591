"""Outcome of a test's record, in the terms of its expectation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from turnout.engine.stages import shown
from turnout.engine.trace import Outcome, Trace
from turnout.records import ALIVE
from turnout.records.text import text_of

Delivery = tuple[str | None, str]
"""A subscription's id, None where none asked for the message, and its destination."""


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """Outcome of one record.

    Attributes:
        outcome: the label of an `Outcome`.
        stage: where it failed; None where it did not.
        reason: why.
        topic: as transformed and mapped; None where the weights lose it.
        key: as a sink with keys gets it; of a record that went nowhere, as the transforms left it.
        value: likewise. Both are null once a record was filtered or has failed, but for a dead letter's.
        headers: likewise.
        deliveries: of its messages, sorted; a dead letter is none.
    """

    outcome: str
    stage: str | None
    reason: str | None
    topic: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, str | None], ...]
    deliveries: tuple[Delivery, ...]


def ending_of(trace: Trace, row: int) -> CaseOutcome:
    """Return the outcome of one record of a trace."""
    failure = trace.failures.get(row)
    outcome = trace.outcome(row)
    # A run ends before it sends the dead letter of a record that stops it.
    places = [] if outcome is Outcome.STOPPED else trace.messages_of(row).tolist()
    dead = outcome is Outcome.DEAD_LETTERED
    sent = [
        (trace.subscriptions[at].as_py(), trace.destinations[at].as_py()) for at in places if not trace.is_letter(at)
    ]
    key, value, headers = _sent(trace, places[0]) if places else _left(trace, row)
    return CaseOutcome(
        outcome.label,
        failure.stage if failure else None,
        failure.message if failure else None,
        trace.topics[row],
        # JetStream's messages have no key: what the transforms left is what there is to compare.
        key if key is not None or dead else _left(trace, row)[0],
        value,
        headers,
        tuple(sorted(sent, key=lambda delivery: (delivery[0] or "", delivery[1]))),
    )


_Parts = tuple[bytes | None, bytes | None, tuple[tuple[str, str | None], ...]]


def _sent(trace: Trace, place: int) -> _Parts:
    """Key, value and headers of a message."""
    row = int(trace.messages.rows[place])
    key, value, pairs = (trace.messages.records.column(name)[row].as_py() for name in ("key", "value", "headers"))
    return key, value, tuple((header["key"], text_of(header["value"])) for header in pairs or ())


def _left(trace: Trace, row: int) -> _Parts:
    """Return key, value and headers after the transforms; of a record that is not alive, the headers only."""
    record = shown(trace.records.record(row))
    headers = tuple((name, text) for name, text in record["headers"])
    if trace.records.outcomes[row] != ALIVE:
        return None, None, headers
    return _bytes(record["key"]), _bytes(record["value"]), headers


def _bytes(plain: Any) -> bytes | None:
    if plain is None:
        return None
    return (plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)).encode()


def read_back(raw: bytes | None) -> Any:
    """Return bytes as JSON if they are JSON, else as text; bytes that are neither, and None, unchanged."""
    if raw is None:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw
    try:
        return json.loads(text)
    except ValueError:
        return text
