"""Effect of a changed route on the last records of its source."""

from __future__ import annotations

import time

from turnout.engine import Program
from turnout.engine.name_counts import NameCount, NameWatch
from turnout.history.diff.diff import Diff
from turnout.history.diff.differences import Differences
from turnout.history.diff.report import DiffReport
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.server.errors import ConflictError
from turnout.server.matchers import Matchers

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
