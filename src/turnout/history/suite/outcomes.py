"""Outcome of a test's record, and its differences from the expectation, value by value and path by path."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from turnout.codecs import Notation, TextNotation
from turnout.engine.counts import Outcome
from turnout.engine.sample_records import bytes_of
from turnout.engine.trace import Trace, record_as_json
from turnout.engine.writing import MessageNotations
from turnout.history.suite.suite import DeliveryPart, ExpectPart
from turnout.records import ALIVE, Schema
from turnout.records.text import json_of, text_of
from turnout.records.types import Fields, Value
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
    of_messages = MessageNotations(route)
    notations = of_messages.read
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
    # The bytes of a message are in the formats of its sink, those of a dead letter as they were read.
    sent_notations = notations
    if whole and not trace.is_letter(whole[0]):
        sink, topic = int(trace.messages.sinks[whole[0]]), trace.messages.topics[whole[0]].as_py()
        sent_notations = of_messages.of_message(sink, topic)
    plain_key = sent_notations[0].decode(key)
    if key is None and not dead:
        # JetStream's messages have no key: compare the result of the transforms.
        key = _transformed_parts(trace, row, notations)[0]
        plain_key = notations[0].decode(key)
    return CaseOutcome(
        outcome.label,
        failure.stage if failure else None,
        failure.message if failure else None,
        trace.topics[row],
        key,
        value,
        plain_key,
        sent_notations[1].decode(value),
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


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Nothing()
"""Marks an absent value, which differs from null."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference from an expectation.

    Attributes:
        path: the part of the expectation, with the steps into it: ``value.carrier``.
        expected: `ABSENT` for what should not be there.
        actual: the actual value, or `ABSENT`.
        note: likely cause.
    """

    path: str
    expected: object
    actual: object
    note: str = ""


def plain(value: object) -> object:
    """Return a value of a difference as JSON takes it: bytes that are no text as base64, absent values as null."""
    if value is ABSENT:
        return None
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def expected_outcome(expect: ExpectPart) -> str:
    """Return the expected outcome of the record."""
    if expect.outcome is not None:
        return expect.outcome
    return "delivered" if expect.stage is None and expect.reason is None else "dead_lettered"


def differences(expect: ExpectPart, ending: CaseOutcome) -> list[Difference]:
    """Return the differences from the expectation; only the outcome, if that differs, as all else follows from it."""
    outcome = expected_outcome(expect)
    if outcome != ending.outcome:
        reason = "" if ending.reason is None else f"{ending.stage}: {ending.reason}"
        return [Difference("outcome", outcome, ending.outcome, reason)]
    return [*_failure(expect, ending), *_parts(expect, ending), *_deliveries(expect, ending)]


def _failure(expect: ExpectPart, ending: CaseOutcome) -> Iterator[Difference]:
    if expect.stage is not None and expect.stage != ending.stage:
        yield Difference("stage", expect.stage, _or_absent(ending.stage))
    if expect.reason is not None and expect.reason not in (ending.reason or ""):
        yield Difference("reason", expect.reason, _or_absent(ending.reason))
    if expect.topic is not None and expect.topic != ending.topic:
        yield Difference("topic", expect.topic, _or_absent(ending.topic))


def _parts(expect: ExpectPart, ending: CaseOutcome) -> Iterator[Difference]:
    fields_set = expect.model_fields_set
    if "key" in fields_set:
        yield from _content("key", expect.key, ending.key, ending.plain_key, exact=False)
    if "value" in fields_set:
        yield from _content("value", expect.value, ending.value, ending.plain_value, exact="value" in expect.exact)
    if expect.value_base64 is not None:
        raw = None if ending.value is None else base64.b64encode(ending.value).decode()
        if expect.value_base64 != raw:
            yield Difference("valueBase64", expect.value_base64, _or_absent(raw))
    if expect.headers is not None:
        yield from _headers(expect.headers, ending, exact="headers" in expect.exact)


def _or_absent(actual: object) -> object:
    return ABSENT if actual is None else actual


def _content(path: str, expected: object, raw: bytes | None, plain: object, *, exact: bool) -> Iterator[Difference]:
    """Yield the differences of a key or value; an expected text may equal its bytes or its JSON value."""
    if isinstance(expected, str) and raw == expected.encode():
        return
    yield from compared(path, expected, plain, exact=exact)


def compared(path: str, expected: object, actual: object, *, exact: bool) -> Iterator[Difference]:
    """Yield the differences of a value from its expectation, path by path.

    Args:
        path: path of the value.
        expected: JSON.
        actual: likewise.
        exact: whether unexpected parts are differences.
    """
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        yield from _objects(path, expected, actual, exact=exact)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for at, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from compared(f"{path}[{at}]", one, other, exact=exact)
    elif not _is_same(expected, actual):
        yield Difference(path, expected, actual)


def _objects(
    path: str, expected: Mapping[object, object], actual: Mapping[object, object], *, exact: bool
) -> Iterator[Difference]:
    for name, value in expected.items():
        # To expect null of a field is to expect that it is not there, or null.
        if str(name) in actual:
            yield from compared(f"{path}.{name}", value, actual[str(name)], exact=exact)
        elif exact or value is not None:
            yield Difference(f"{path}.{name}", value, ABSENT)
    if exact:
        names = set(map(str, expected))
        yield from (Difference(f"{path}.{name}", ABSENT, value) for name, value in actual.items() if name not in names)


def _is_same(expected: object, actual: object) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return bool(expected == actual)


def _headers(expected: Fields, ending: CaseOutcome, *, exact: bool) -> Iterator[Difference]:
    actual: dict[str, list[str | None]] = {}
    for name, text in ending.headers:
        actual.setdefault(name, []).append(text)
    for name, texts in expected.items():
        several = [_header_text(text) for text in texts] if isinstance(texts, list) else [_header_text(texts)]
        found = actual.get(name)
        if texts is None and (found is None or found == [None]):
            continue
        if several != found:
            yield Difference(f"headers.{name}", texts, ABSENT if found is None else _one_or_all(found))
    if exact:
        extra = (name for name in actual if name not in expected)
        yield from (Difference(f"headers.{name}", ABSENT, _one_or_all(actual[name])) for name in extra)


def _header_text(text: Value) -> str | None:
    raw = bytes_of(text)
    return None if raw is None else raw.decode()


def _one_or_all(texts: list[str | None]) -> object:
    return texts[0] if len(texts) == 1 else texts


def _deliveries(expect: ExpectPart, ending: CaseOutcome) -> Iterator[Difference]:
    if expect.deliveries is None:
        return
    remaining = list(ending.deliveries)
    for part in expect.deliveries:
        delivery_met = next(
            (one for one in remaining if part.subscription in (None, one[0]) and part.destination in (None, one[1])),
            None,
        )
        if delivery_met is None:
            yield Difference("deliveries", part.model_dump(exclude_none=True), ABSENT)
        else:
            remaining.remove(delivery_met)
            if "body" in part.model_fields_set:
                yield from _body(part, delivery_met, ending, exact="value" in expect.exact)
    if not expect.deliveries or "deliveries" in expect.exact:
        for subscription, destination in remaining:
            actual = {} if subscription is None else {"subscription": subscription}
            yield Difference("deliveries", ABSENT, {**actual, "destination": destination})


def _body(part: DeliveryPart, delivery: Delivery, ending: CaseOutcome, *, exact: bool) -> Iterator[Difference]:
    projected = delivery in ending.bodies
    raw = ending.bodies[delivery] if projected else ending.value
    plain = read_back(raw) if projected else ending.plain_value
    yield from _content(f"deliveries.{delivery[1]}.body", part.body, raw, plain, exact=exact)
