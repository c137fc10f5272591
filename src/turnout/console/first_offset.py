"""Start offsets of a route without a checkpoint, shown before one is removed."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.errors import TurnoutError
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.endpoints.changes import Change
from turnout.secrets import masked_url
from turnout.server.compatibility import is_safe


@dataclass(frozen=True, slots=True)
class Beginning:
    """Start of one stream.

    Attributes:
        begin: the first sequence that is read.
        count: number of sequences from there on.
    """

    stream: str
    begin: int
    count: int


def beginnings_of(route: Route) -> list[Beginning]:
    """Return the first sequence to read of each stream; empty for sources that are not streams.

    Raises:
        StreamError: a stream is not there.
        ConnectionLostError: the server is away.
    """
    source = route.source
    adapter = adapter_of(source)
    if not adapter.reports_ends or adapter.fixed_start is not None:
        return []
    start = adapter.sequences()
    with adapter.session() as session:
        ends = session.ends(source)
    begins = {stream: max(end.first, start[stream]) for stream, end in ends.items()}
    return [Beginning(stream, begins[stream], max(0, end.next - begins[stream])) for stream, end in ends.items()]


def meaning_of(route: Route, changes: list[Change]) -> dict[str, object]:
    """Return the changes for display, and the start offsets if the checkpoint cannot be used."""
    beginnings: list[Beginning] = []
    unknown = ""
    if not is_safe(changes):
        try:
            beginnings = beginnings_of(route)
        except TurnoutError as failure:
            unknown = masked_url(str(failure))
    return {"changes": changes, "beginnings": beginnings, "unknown": unknown}
