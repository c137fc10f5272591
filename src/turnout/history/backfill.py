"""Next part of the records that a route's subscriptions have missed, as a plan for a replay.

Subscriptions that miss the same range are served together. A range whose end is not known yet, since no record has
come since, is delivered up to the position that the route's run has reached: what follows it is known later.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from turnout.base.untrusted import decimal
from turnout.engine.replay import Replay
from turnout.engine.subject_filters import subject_filters
from turnout.errors import ConfigError, SubscriptionNotFoundError
from turnout.history.replay import ReplayPlan, StreamRange
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire.streams import StreamPosition, position_of
from turnout.routes import Route
from turnout.runtime.backfill import BackfillLedger, MissedRange, Positions, matched_before, seam_of
from turnout.runtime.endpoints import SourceHistory, adapter_of
from turnout.runtime.endpoints.adapter import StreamEnd
from turnout.runtime.matches import MatchFolder
from turnout.runtime.offsets import committed
from turnout.runtime.preflight import preflight
from turnout.subscriptions import Snapshot, Subscription, open_store
from turnout.subscriptions.store_url import existing

BACKFILL: Final = "backfill"
"""Value of the header ``Turnout-Replay`` of a message that is delivered late."""

_PART_SEQUENCES: Final = 200_000
"""Sequences of one part; a stop of the run waits for it."""

_MOST_TOGETHER: Final = 10_000
"""Subscriptions that are served together."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackfillPart:
    """Range to deliver to some subscriptions.

    Attributes:
        rows: ranges of the ledger.
        plan: plan of the replay that delivers it.
        stream: stream of the records.
        end: position behind it.
    """

    rows: Sequence[MissedRange]
    plan: ReplayPlan
    stream: str
    end: int

    def keep_matches(self, checkpoint: Path) -> None:
        """Move the matches of the replay, also of one that a kill has ended, to those of the route's feeds.

        Raises:
            TurnoutError: a file is damaged.
            OSError: a file cannot be written.
        """
        if self.plan.stores_matches:
            MatchFolder.beside(checkpoint).take_backfilled(MatchFolder.beside(self.plan.folder))

    def note(self, ledger: BackfillLedger) -> None:
        """Note that the part is delivered."""
        for row in self.rows:
            ledger.advance(row.number, self.stream, self.end)


def next_part(route: Route, checkpoint: Path, ledger: BackfillLedger) -> BackfillPart | None:
    """Return the part to deliver next; None if nothing is missing before the position of the route's run.

    Raises:
        TurnoutError: a server or the store is away.
    """
    if not ledger.rows:
        return None
    assert route.subscriptions is not None
    resolve_seams(checkpoint, ledger)
    reached = matched_before(checkpoint)
    groups: dict[tuple[str, int, int, StreamIdentity | None], list[MissedRange]] = {}
    identities = committed(checkpoint).identities
    for row in ledger.follow({stream: identity.created for stream, identity in identities.items()}):
        text = "route %s: %s does not get the earlier records that it has missed: their stream was made anew"
        _log.warning(text, route.name, row.id)
    if any(row.next is None or _streams_left(row, reached) for row in ledger.rows if row.live is not None):
        with adapter_of(route.source_with_history("from")).history() as history:
            _resolve_positions(route, history, ledger)
            for row in ledger.rows:
                for stream, until in _streams_left(row, reached):
                    groups.setdefault(_range(row, stream, until, history, identities.get(stream)), []).append(row)
                    break
    for row in ledger.rows:
        if row.next is not None and row.until is not None and not _streams_left(row, reached):
            ledger.remove(row.number)
    for range_, rows in groups.items():
        chosen = _enabled(route.subscriptions.store, rows[:_MOST_TOGETHER], ledger)
        if chosen.subscriptions:
            ids = {one.id for one in chosen.subscriptions}
            part = StreamRange(*range_[:3], 0, range_[3])
            return _part(route, checkpoint, [row for row in rows if row.id in ids], part, chosen)
    return None


def resolve_seams(checkpoint: Path, ledger: BackfillLedger) -> None:
    """Note the bounds of ranges that depend on revisions which are in use by now."""
    for row in ledger.rows:
        if row.paused is not None and row.next is None:
            ledger.set_bounds(row.number, following=seam_of(checkpoint, row.paused, ledger.turns))
        if row.live is not None and row.until is None:
            ledger.set_bounds(row.number, until=seam_of(checkpoint, row.live, ledger.turns))


def _resolve_positions(route: Route, history: SourceHistory, ledger: BackfillLedger) -> None:
    for row in ledger.rows:
        if row.position is None or row.next is not None:
            continue
        number = decimal(row.position)
        position: StreamPosition = position_of("from", row.position) if number is None else number
        try:
            ledger.set_bounds(row.number, {stream: history.resolve(stream, position) for stream in history.streams})
        except ConfigError as problem:
            _log.warning("route %s: %s gets no earlier records: %s", route.name, row.id, problem)
            ledger.remove(row.number)


def _streams_left(row: MissedRange, reached: Positions) -> list[tuple[str, int]]:
    """Return the streams with deliverable records, and the position behind them."""
    if row.live is None or row.next is None:
        return []
    untils = reached if row.until is None else row.until
    return [(stream, until) for stream, until in sorted(untils.items()) if row.next.get(stream, 0) < until]


def _range(
    row: MissedRange, stream: str, until: int, history: SourceHistory, known: StreamIdentity | None
) -> tuple[str, int, int, StreamIdentity | None]:
    """Return the next range of a row, with the run's identity of its stream; deleted positions are skipped."""
    assert row.next is not None
    bounds = history.bounds(stream) if stream in history.streams else StreamEnd(until, until)
    first = min(max(row.next.get(stream, 0), bounds.first), until)
    identity = known or (StreamIdentity.adopted(bounds.created) if bounds.created else None)
    return stream, first, min(until, first + _PART_SEQUENCES), identity


def _enabled(url: str, rows: Sequence[MissedRange], ledger: BackfillLedger) -> Snapshot:
    """Return the subscriptions that can be served; deleted ones are forgotten, and disabled ones wait."""
    found: dict[str, Subscription] = {}
    with closing(open_store(existing(url))) as store:
        for row in rows:
            try:
                found[row.id] = store.read(row.id)
            except SubscriptionNotFoundError:
                ledger.forget(row.id)
        return Snapshot(tuple(one for one in found.values() if one.enabled), store.revision())


def _part(
    route: Route, checkpoint: Path, rows: Sequence[MissedRange], range_: StreamRange, chosen: Snapshot
) -> BackfillPart:
    own = route.source.filters
    filters = subject_filters(route, [one.condition for one in chosen.subscriptions], own)
    quiet = preflight(replace(route, dead_letter=None, unmatched="drop"))
    plan = ReplayPlan(
        quiet,
        Replay(BACKFILL, as_first=True),
        (range_,),
        filters,
        chosen,
        {"where": None},
        checkpoint / "replays" / BACKFILL,
        stores_matches=route.subscriptions is not None and bool(route.subscriptions.feeds),
    )
    return BackfillPart(rows, plan, range_.stream, range_.end)
