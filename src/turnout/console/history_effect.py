"""Effect of a changed route on the last records of its source."""

from __future__ import annotations

import time

from turnout.history.diff import Diff
from turnout.history.diff_report import DiffReport
from turnout.history.differences import Differences
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.server.errors import ConflictError
from turnout.server.matchers import Matchers

_EXAMPLES = 3


def effect_of(old: Route, new: Route, count: int, matchers: Matchers, *, masked: bool) -> DiffReport:
    """Compare both versions on the last *count* sequences of each stream or partition; nothing is published.

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
    for batch in adapter_of(old.source).last_records(count):
        total += diff.of(batch, *indexes)
    return DiffReport("what runs", "this text", f"the last {count:,} of each stream", total, time.monotonic() - begun)
