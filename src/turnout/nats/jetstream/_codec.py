"""Frozen dataclasses to the API's JSON and back: durations are nanoseconds there and seconds here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from turnout.base.untrusted import JsonMapping, JsonObject

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Coding:
    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


def coded(encoder: Callable[[Any], object], decoder: Callable[[Any], object], default: object = None) -> Any:
    """A field that is written by one function and read by another."""
    return field(default=default, metadata={"coding": _Coding(encoder, decoder)})


def seconds(default: object = None) -> Any:
    """A duration: seconds here, whole nanoseconds on the wire."""
    return coded(lambda value: round(value * 1_000_000_000), lambda value: value / 1_000_000_000, default)


def seconds_list() -> Any:
    """A list of durations."""
    return coded(
        lambda values: [round(value * 1_000_000_000) for value in values],
        lambda values: tuple(value / 1_000_000_000 for value in values),
    )


_FRACTION = re.compile(r"\.(\d+)")


def _read_moment(text: str) -> datetime | None:
    if text.startswith("0001-01-01"):
        return None
    # datetime knows microseconds; the server writes nanoseconds.
    return datetime.fromisoformat(_FRACTION.sub(lambda m: "." + m[1][:6].ljust(6, "0"), text))


def _write_moment(value: datetime | timedelta) -> str:
    if isinstance(value, timedelta):
        value = datetime.now(UTC) - value
    if value.tzinfo is None:
        value = value.astimezone()
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def moment() -> Any:
    """A time: an aware datetime here, RFC 3339 on the wire."""
    return coded(_write_moment, _read_moment)


def nested(kind: type[Any]) -> Any:
    """Field with another of these dataclasses."""
    return coded(encode, lambda value: decode(kind, value))


def nested_list(kind: type[Any], default: object = None) -> Any:
    """A field that is a list of other dataclasses."""
    return coded(
        lambda value: [encode(item) for item in value],
        lambda value: tuple(decode(kind, item) for item in value or ()),
        default,
    )


def enumeration(kind: type[StrEnum], default: object = None) -> Any:
    """Field with a member of an enumeration; an unknown value of a later server is kept as text."""

    def read(text: str) -> str:
        return kind(text) if text in set(kind) else text

    return coded(str, read, default)


def encode(value: Any) -> JsonObject:
    """The JSON object of a dataclass: fields that are None are left out, ``extra`` is merged in."""
    document: JsonObject = {}
    for attribute in fields(value):
        content = getattr(value, attribute.name)
        if attribute.name == "extra":
            document.update(content or {})
        elif content is not None:
            coding = attribute.metadata.get("coding")
            if coding is not None:
                content = coding.encode(content)
            elif isinstance(content, tuple):
                content = list(content)
            document[attribute.name] = content
    return document


def decode(kind: type[T], document: JsonMapping) -> T:
    """Build a dataclass from a JSON object; unknown members are stored in ``extra`` if the class has it."""
    known: JsonObject = {}
    names = set()
    for attribute in fields(kind):  # type: ignore[arg-type]
        names.add(attribute.name)
        if attribute.name == "extra" or document.get(attribute.name) is None:
            continue
        content = document[attribute.name]
        coding = attribute.metadata.get("coding")
        if coding is not None:
            content = coding.decode(content)
        elif isinstance(content, list):
            content = tuple(content)
        known[attribute.name] = content
    if "extra" in names:
        known["extra"] = {name: content for name, content in document.items() if name not in names}
    return kind(**known)
