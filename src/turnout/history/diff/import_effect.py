"""Effect of an import of subscriptions on the last records of a route; nothing is published."""

from __future__ import annotations

import time

from turnout.engine import pieces
from turnout.errors import ConfigError, Mistake
from turnout.history.diff.diff import Diff
from turnout.history.diff.differences import Differences
from turnout.history.diff.report import DiffReport
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.preflight import preflight_of_reachable
from turnout.subscriptions.import_set import Effect
from turnout.subscriptions.index import Index
from turnout.subscriptions.past import Snapshot


def import_report(route: Route, last: int, before: Snapshot, after: Snapshot, *, examples: int = 5) -> DiffReport:
    """Match the last records of a route with the subscriptions before an import and after it.

    Args:
        route: route that matches; its source keeps its records.
        last: how many sequences of each stream or partition are read.
        before: the stored subscriptions.
        after: those after the import.
        examples: how many are kept of each kind.

    Raises:
        ConfigError: the route has no subscriptions, or a source without history.
        StreamError: a stream does not exist.
        ConnectionLostError: the server is away.
    """
    if route.subscriptions is None:
        raise ConfigError([Mistake("route", f"{route.name} has no subscriptions: an import does not change it")])
    source = route.source_with_history("route")
    route, _ = preflight_of_reachable(route)
    diff, total = Diff(route, route, examples=examples), Differences()
    old, new = Index.of(before), Index.of(after)
    begun = time.monotonic()
    for batch in adapter_of(source).last_records(last):
        for piece in pieces(batch):
            total += diff.of(piece, old, new)
    seconds = time.monotonic() - begun
    return DiffReport("without the import", "with it", f"the last {last:,} of each stream", total, seconds)


def effect_of(differences: Differences) -> Effect:
    """Return the numbers of a comparison, without content of records."""
    return Effect(
        differences.records,
        differences.changed,
        differences.gained,
        differences.lost,
        differences.gainers.counts,
        differences.losers.counts,
    )
