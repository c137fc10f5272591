"""Samples of a stream, taken before a route for it is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.routes.document_paths import Document
from turnout.routes.drafts.fields import columns_of


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """Message sampled from a stream."""

    topic: str
    value: bytes


@dataclass(frozen=True, slots=True)
class SampledStream:
    """Stream with a sample of its messages.

    Attributes:
        subjects: those that the stream takes.
        messages: its latest.
    """

    subjects: tuple[str, ...] = ()
    messages: tuple[SampledMessage, ...] = ()

    def columns(self) -> str:
        """Return the DDL of the values; empty if those that are JSON are not all objects."""
        objects = self._objects()
        return columns_of(objects) if self.is_json() and len(objects) == len(self._readable()) else ""

    def is_json(self) -> bool:
        """True if the sampled values are JSON, but for a few of them that are malformed."""
        return self.malformed() <= len(self.messages) * _MOST_MALFORMED

    def malformed(self) -> int:
        """Return the number of sampled values that are not JSON."""
        return len(self.messages) - len(self._readable())

    def example(self) -> SampledMessage | None:
        """Return the shortest of the messages that can be read, from which tests are made; None if there is none."""
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


def _json(value: bytes) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return _NO_JSON
