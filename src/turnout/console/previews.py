"""Previews of a change: the effect of a new version, of a reset of offsets, and of a removed checkpoint."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from turnout.base.untrusted import decimal
from turnout.engine import Program
from turnout.engine.name_counts import NameCount, NameWatch
from turnout.errors import ConfigError, Mistake, TurnoutError
from turnout.history.diff.diff import Diff
from turnout.history.diff.differences import Differences
from turnout.history.diff.report import DiffReport
from turnout.routes import Route
from turnout.runtime.endpoints import Change, Start, adapter_of
from turnout.secrets import masked_url
from turnout.server.errors import ConflictError
from turnout.server.routes.compatibility import checked_start, is_safe
from turnout.server.routes.routes import Routes
from turnout.server.sandbox import Matchers, route_of

_EXAMPLES = 3


def effect_of(
    old: Route, new: Route, count: int, matchers: Matchers, *, masked: bool
) -> tuple[DiffReport, list[NameCount]]:
    """Compare both versions on the last *count* sequences of each stream or partition; nothing is published.

    The second result is for each name in the new version the number of records that have it.

    Args:
        old: the version that runs; its source is read.
        new: the version to judge.
        count: number of sequences.
        matchers: have the indexes of the subscriptions.
        masked: leave examples out, which contain masked fields.

    Raises:
        ConflictError: the source keeps no history, or is another one.
        StreamError: a stream is not there.
        ConnectionLostError: the server is away.
    """
    if not old.source.keeps_history:
        raise ConflictError(f"route {old.name} does not read a stream or topics: there is no history to compare on")
    if (old.source.format, old.source.streams) != (new.source.format, new.source.streams):
        raise ConflictError("the source is another one: its records cannot be compared with those of before")
    begun = time.monotonic()
    diff = Diff(old, new, examples=0 if masked else _EXAMPLES)
    indexes = matchers.index(old), matchers.index(new)
    total = Differences()
    watch, program = NameWatch(new), Program.of(new)
    for batch in adapter_of(old.source).last_records(count):
        total += diff.of(batch, *indexes)
        program.trace(batch, indexes[1], watch)
    seconds = time.monotonic() - begun
    return DiffReport("what runs", "this text", f"the last {count:,} of each stream", total, seconds), watch.counts()


def names_in(route: Route, count: int) -> list[NameCount]:
    """Return for each name in a route how many of the last *count* sequences of each stream have it.

    Raises:
        StreamError: a stream is not there.
        ConnectionLostError: the server is away.
    """
    watch, program = NameWatch(route), Program.of(route)
    for batch in adapter_of(route.source).last_records(count):
        program.trace(batch, None, watch)
    return watch.counts()


@dataclass(frozen=True, slots=True)
class StreamReplay:
    """Effect of a reset on one stream.

    Attributes:
        begin: the next sequence then.
        done: the next sequence now.
        end: the one behind the last message.
    """

    stream: str
    begin: int
    done: int
    end: int

    @property
    def again(self) -> int:
        """Number of processed sequences that will be read again."""
        return max(0, min(self.done, self.end) - self.begin)

    @property
    def passed(self) -> int:
        """Number of unprocessed sequences that will be skipped."""
        return max(0, self.begin - self.done)


def position_of(written: str) -> Start:
    """Parse a start position; a number is a sequence, an object has one for each stream or topic.

    >>> position_of("4711"), position_of(" latest "), position_of('{"orders": {"0": 17}}')
    (4711, 'latest', {'orders': {'0': 17}})
    """
    text = written.strip()
    number = decimal(text)
    if number is not None:
        return number
    try:
        position = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return position if isinstance(position, dict) else text


def replay_of(routes: Routes, name: str, written: str) -> list[StreamReplay]:
    """Return the effect of a reset, stream by stream; empty if the source does not report its end.

    Raises:
        ConfigError: it is no place of the source.
        ConflictError: the position of the source cannot be set.
        ConnectionLostError: its server is away.
    """
    route = route_of(routes.entry(name))
    if not written.strip():
        raise ConfigError([Mistake("to", "expected earliest, latest, a sequence or an ISO time")])
    source = route.source
    adapter = adapter_of(source)
    start = checked_start(route, position_of(written))
    if not adapter.reports_ends:
        return []
    begins = adapter.sequences(start)
    done = routes.offsets(name)
    with adapter.session() as session:
        ends = session.ends(source)
    return [
        StreamReplay(stream, max(end.first, begins[stream]), max(end.first, done.sequence(stream)), end.next)
        for stream, end in ends.items()
    ]


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
