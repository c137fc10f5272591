"""Comparison of expected and actual outcome: the differences, value by value and path by path."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from turnout.engine.sample_records import bytes_of
from turnout.history.case_outcome import CaseOutcome, Delivery, read_back
from turnout.history.suite_document import DeliveryPart, ExpectPart
from turnout.records.types import Fields, Value


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
        delivery_met = next((delivery for delivery in remaining if _meets(part, delivery)), None)
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


def _meets(part: DeliveryPart, delivery: Delivery) -> bool:
    subscription, destination = delivery
    return part.subscription in (None, subscription) and part.destination in (None, destination)
