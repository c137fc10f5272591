"""``scheduled`` of a route: where messages wait that are delivered later than their records arrive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from turnout.routes.endpoints.base import Part
from turnout.subjects import is_publishable
from turnout.subscriptions.destinations import DURATION, check_path, duration_of


def _subject(subject: str) -> str:
    if not is_publishable(subject) or subject.startswith("$"):
        raise ValueError(f"found {subject!r}, expected the first tokens of subjects, without wildcards")
    return subject


def _id(path: str | None) -> str | None:
    if path is not None:
        check_path(path)
    return path


def _grace(text: str | float) -> str:
    written = f"{text}"
    if duration_of(written) is None:
        raise ValueError(f"found {written!r:.80}, expected {DURATION}")
    return written


class ScheduledPart(Part):
    """Messages that are delivered later, by ``delay`` and ``deliverAt`` of sinks and destinations.

    Attributes:
        subject: first tokens of the subjects under which they wait.
        stream: the delay stream, from which ``turnout scheduled run`` or a server publishes them; without it, the
            streams of sinks of format nats publish them, up to 0.25 s late.
        sink: name of the sink of format nats that has the delay stream; the first of that format if not given.
        id: path of the id by which a message is replaced and cancelled; its record's origin if not given.
        grace: how long before its record's time a message may be due; it is then delivered at once.
    """

    subject: Annotated[str, AfterValidator(_subject)] = "scheduled"
    stream: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9_-]{1,200}$")] = None
    sink: str | None = None
    id: Annotated[str | None, AfterValidator(_id)] = None
    grace: Annotated[str | int | float, AfterValidator(_grace)] = "1h"

    @property
    def grace_microseconds(self) -> int:
        """The grace in microseconds."""
        return duration_of(f"{self.grace}") or 0

    def sink_name(self, formats: Mapping[str, str]) -> str | None:
        """Return the name of the sink that has the delay stream; None if there is none.

        Args:
            formats: name of each sink → its format.
        """
        if self.sink is not None:
            return self.sink if formats.get(self.sink) == "nats" else None
        return next((name for name, format_ in formats.items() if format_ == "nats"), None)
