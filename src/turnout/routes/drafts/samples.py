"""Samples of a stream, taken before a route for it is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnout.routes.drafts.fields import columns_of
from turnout.routes.line_numbers import Document


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """Message sampled from a stream."""

    topic: str
    value: bytes


@dataclass(frozen=True, slots=True)
class SampledStream:
    """Stream with a sample of its messages.

    Attributes:
        subjects: subjects of the stream.
        messages: its latest with values; tombstones have no format.
    """

    subjects: tuple[str, ...] = ()
    messages: tuple[SampledMessage, ...] = ()

    def columns(self) -> str:
        """Return the DDL of the values; empty for change events, and if those that are JSON are not all objects."""
        if self.format() != "json" or self.has_change_events():
            return ""
        objects = self._objects()
        return columns_of(objects) if len(objects) == len(self._readable()) else ""

    def is_json(self) -> bool:
        """True if the sampled values are JSON, but for a few of them that are malformed."""
        return _are_few(self.malformed(), len(self.messages))

    def malformed(self) -> int:
        """Return the number of sampled values that are not JSON."""
        return len(self.messages) - len(self._readable())

    def format(self) -> str:
        """Return the format of the sampled values: ``json``, Connect's ``connect-json``, or ``raw``."""
        if not self.is_json():
            return "raw"
        return "connect-json" if self._are(_has_schema) else "json"

    def has_change_events(self) -> bool:
        """True if the values are change events of Debezium, but for a few."""
        return self.is_json() and self._are(_is_change_event)

    def _are(self, is_one: Callable[[Document], bool]) -> bool:
        """Return True if most values that can be read are such objects, and there is one."""
        found, count = sum(map(is_one, self._objects())), len(self._readable())
        return found > 0 and _are_few(count - found, count)

    def example(self) -> SampledMessage | None:
        """Return the shortest readable message, for generated tests; None without one."""
        candidates = self._readable() if self.is_json() else self.messages
        return min(candidates, key=lambda message: len(message.value), default=None)

    def _readable(self) -> Sequence[SampledMessage]:
        return [message for message in self.messages if _json(message.value) is not _NO_JSON]

    def _objects(self) -> Sequence[Document]:
        values = [_json(message.value) for message in self.messages]
        return [value for value in values if isinstance(value, dict)]


_NO_JSON = object()
_MOST_MALFORMED = 0.1
"""Share of malformed values up to which a stream's values are JSON, and the others are dead letters."""


def _are_few(others: int, count: int) -> bool:
    """Return True if so many of *count* values are exceptions: a tenth, or one of three or more."""
    return others <= count * _MOST_MALFORMED or (others == 1 and count > 2)


_CHANGE_EVENT = frozenset(("before", "after", "source", "op"))


def _has_schema(value: Document) -> bool:
    return value.keys() == {"schema", "payload"}


def _is_change_event(value: Document) -> bool:
    event = value["payload"] if _has_schema(value) else value
    return isinstance(event, dict) and event.keys() >= _CHANGE_EVENT


def _json(value: bytes) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return _NO_JSON
