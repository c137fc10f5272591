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
        """Return the DDL of the values; empty if they are not all JSON objects."""
        objects = self._objects()
        return columns_of(objects) if objects and len(objects) == len(self.messages) else ""

    def is_json(self) -> bool:
        """True if all sampled values are JSON."""
        return all(_json(message.value) is not _NO_JSON for message in self.messages)

    def example(self) -> SampledMessage | None:
        """Return the shortest of the messages, from which tests are made; None if none was sampled."""
        return min(self.messages, key=lambda message: len(message.value), default=None)

    def _objects(self) -> Sequence[Document]:
        values = [_json(message.value) for message in self.messages]
        return [value for value in values if isinstance(value, dict)]


_NO_JSON = object()


def _json(value: bytes) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return _NO_JSON
