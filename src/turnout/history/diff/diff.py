"""Comparison of two versions of a route on the same records: the outcome of each record with both."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from turnout.engine import Program, pieces
from turnout.engine.trace import Trace
from turnout.errors import ConfigError, Mistake
from turnout.history.diff.changes import (
    Change,
    Changed,
    Delivered,
    SentDeliveries,
    changed,
    header_changes,
    sink_labels,
    value_changes,
)
from turnout.history.diff.differences import (
    Cost,
    Differences,
    EndNumbers,
    Example,
    Examples,
    Matrix,
    OutcomeWatch,
    RecordPositions,
    Tally,
    text_of,
)
from turnout.history.diff.report import DiffReport
from turnout.history.suite.outcomes import ABSENT, read_back
from turnout.records.types import ArrowBatch, RowIds
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.preflight import preflight_of_reachable
from turnout.subscriptions.import_set import Effect
from turnout.subscriptions.index import Index
from turnout.subscriptions.past import Snapshot


@dataclass(frozen=True, slots=True)
class Traced:
    """Result of one version for a batch.

    Attributes:
        trace: trace of the batch.
        watch: has watched it.
        labels: names of the version's sinks in addresses.
        letters_to: the topic of its dead letters; None where it has none.
        cost: cost of the batch.
    """

    trace: Trace
    watch: OutcomeWatch
    labels: tuple[str, ...] = ("",)
    letters_to: str | None = None
    cost: Cost = field(default_factory=Cost)


def compare(old: Traced, new: Traced, batch: ArrowBatch, *, examples: int = 5) -> Differences:
    """Compare the results of two versions for the records of a batch.

    Args:
        old: outcome of the old version.
        new: outcome of the new version.
        batch: the records as they were read.
        examples: how many are kept of each kind.
    """
    assert len(old.trace) == len(new.trace) == batch.num_rows, "both versions have the same records"
    return _BatchDiff(old, new, batch, examples).differences()


class Diff:
    """Two versions of a route, one batch after the other; it keeps what their programs learn between batches.

    Args:
        old: the old version.
        new: the new one.
        examples: how many are kept of each kind.
    """

    def __init__(self, old: Route, new: Route, *, examples: int = 5) -> None:
        old_labels, new_labels = sink_labels(old, new)
        self._old, self._new = _Version(old, tuple(old_labels)), _Version(new, tuple(new_labels))
        self._examples = examples
        self._new_first = False

    def of(self, batch: ArrowBatch, old_index: Index | None = None, new_index: Index | None = None) -> Differences:
        """Run both versions on a batch and compare the results.

        Args:
            batch: as for `Program.run`.
            old_index: the old version's subscriptions; None for a route without.
            new_index: likewise of the new one.
        """
        # The first version runs with cold caches: they alternate, so that their costs can be compared.
        self._new_first = not self._new_first
        if self._new_first:
            new = self._new.traced(batch, new_index)
            old = self._old.traced(batch, old_index)
        else:
            old = self._old.traced(batch, old_index)
            new = self._new.traced(batch, new_index)
        return compare(old, new, batch, examples=self._examples)


class _Version:
    """A version's program, with a watch.

    Args:
        route: the version.
        labels: labels of its sinks.
    """

    def __init__(self, route: Route, labels: tuple[str, ...]) -> None:
        self._program = Program.of(route)
        self._labels = labels
        self._letters_to = None if route.dead_letter is None else route.dead_letter.topic

    def traced(self, batch: ArrowBatch, index: Index | None) -> Traced:
        """Run the version on a batch; the result contains its cost."""
        watch = OutcomeWatch()
        begun = time.thread_time_ns()
        trace = self._program.trace(batch, index, watch)
        cost = Cost(time.thread_time_ns() - begun)
        return Traced(trace, watch, self._labels, self._letters_to, cost)


class _BatchDiff:
    """Comparison of one batch, whose steps collect changed rows and examples.

    Args:
        old: outcome of the old version.
        new: outcome of the new version.
        batch: the records as they were read.
        limit: how many examples are kept of each kind.
    """

    def __init__(self, old: Traced, new: Traced, batch: ArrowBatch, limit: int) -> None:
        self._old, self._new = old, new
        self._positions = RecordPositions(batch)
        self._limit = limit
        self._otherwise = np.zeros(batch.num_rows, np.bool_)
        self._changed = np.zeros(batch.num_rows, np.bool_)
        self._examples: dict[tuple[str, str], list[Example]] = defaultdict(list)

    def differences(self) -> Differences:
        """Return the differences of the batch."""
        old, new = self._old.trace, self._new.trace
        sent = SentDeliveries.of(old, self._old.labels), SentDeliveries.of(new, self._new.labels)
        matrix = self._endings()
        gained, lost, moved = changed(*sent)
        for kind, changes in (("gained", gained), ("lost", lost), ("moved", moved)):
            self._deliveries(kind, changes)
        delivered = Delivered.of((old, new), sent)
        values, fields = self._values(delivered)
        keys = self._keys(delivered)
        headers, names = self._changes("header", delivered.rows, header_changes(delivered))
        failures = self._failures()
        return Differences(
            records=len(old),
            changed=int(self._changed.sum()),
            matrix=matrix,
            gained=len(gained),
            lost=len(lost),
            moved=len(moved),
            values=values,
            keys=keys,
            headers=headers,
            failures=failures,
            fields=fields,
            header_names=names,
            losers=_subscriptions(lost),
            gainers=_subscriptions(gained),
            movers=_subscriptions(moved),
            old_cost=self._old.cost,
            new_cost=self._new.cost,
            examples=Examples.of(self._limit, self._examples),
        )

    def _endings(self) -> Matrix:
        old, new = self._old, self._new
        matrix, self._otherwise, pairs = Matrix.of(EndNumbers(old.trace, old.watch), EndNumbers(new.trace, new.watch))
        self._changed |= self._otherwise
        rows = np.flatnonzero(self._otherwise)
        by_pair: dict[str, list[int]] = defaultdict(list)
        for row, (before, after) in zip(rows.tolist(), pairs, strict=True):
            by_pair[f"{before} → {after}"].append(row)
        for pair, rows_of_pair in by_pair.items():
            for row in self._first(np.array(rows_of_pair, np.int64)):
                self._show("outcome", pair, row, self._reason(old, row), self._reason(new, row))
        return matrix

    def _reason(self, version: Traced, row: int) -> object:
        failure = version.trace.failures.get(row)
        return ABSENT if failure is None else f"{failure.stage}: {failure.message}"

    def _deliveries(self, kind: str, changes: Changed) -> None:
        self._changed[changes.rows] = True
        for at in self._positions.first(changes.rows, self._limit):
            row, subscription = int(changes.rows[at]), changes.subscriptions[at]
            self._show(
                kind, "", row, _delivery(subscription, changes.old[at]), _delivery(subscription, changes.new[at])
            )

    def _values(self, delivered: Delivered) -> tuple[int, Tally]:
        indices = delivered.other("value")
        old, new = (side.take(indices).to_pylist() for side in delivered.column("value"))
        changes = (
            (at, value_changes(*pair)) for at, pair in zip(indices.tolist(), zip(old, new, strict=True), strict=True)
        )
        return self._changes("value", delivered.rows, changes)

    def _keys(self, delivered: Delivered) -> int:
        indices = delivered.other("key")
        rows = delivered.rows[indices]
        self._changed[rows] = True
        old, new = delivered.column("key")
        for at in self._positions.first(rows, self._limit):
            index = int(indices[at])
            self._show("key", "", int(rows[at]), _content(old[index].as_py()), _content(new[index].as_py()))
        return len(indices)

    def _changes(
        self, kind: str, rows: RowIds, record_changes: Iterable[tuple[int, list[Change]]]
    ) -> tuple[int, Tally]:
        """Note changes by name; return the number of changed records, and the changes by name."""
        by_name: dict[str, list[tuple[int, Any, Any]]] = defaultdict(list)
        counts: dict[str, int] = defaultdict(int)
        number = 0
        for at, changes in record_changes:
            number += 1
            row = int(rows[at])
            self._changed[row] = True
            for name, old, new in changes:
                counts[name] += 1
                by_name[name].append((row, old, new))
        for name, named_changes in by_name.items():
            for at in self._positions.first(np.array([row for row, _, _ in named_changes], np.int64), self._limit):
                self._show(kind, name, *named_changes[at])
        return number, Tally() + Tally(counts)

    def _failures(self) -> int:
        """Note records that fail differently, or in one version only with equal outcomes; return their number."""
        old, new = self._old, self._new
        elsewhere = old.letters_to != new.letters_to
        both = old.trace.failures.keys() & new.trace.failures.keys()
        failed = {row for row in both if elsewhere or self._reason(old, row) != self._reason(new, row)}
        failed_in_one = old.trace.failures.keys() ^ new.trace.failures.keys()
        more = np.flatnonzero(_letters(old.trace) != _letters(new.trace)).tolist()
        failed.update(row for row in (*failed_in_one, *more) if not self._otherwise[row])
        rows = sorted(failed)
        self._changed[rows] = True
        for row in self._first(np.array(rows, np.int64)):
            reasons = [self._reason(side, row) for side in (old, new)]
            if elsewhere:
                reasons = [
                    {"reason": one, "to": side.letters_to} for one, side in zip(reasons, (old, new), strict=True)
                ]
            self._show("failure", "", row, *reasons)
        return len(rows)

    def _first(self, rows: RowIds) -> Iterator[int]:
        return (int(rows[at]) for at in self._positions.first(rows, self._limit))

    def _show(self, kind: str, name: str, row: int, old: object, new: object) -> None:
        example = Example(self._positions.of(row), self._positions.topic(row), text_of(old), text_of(new))
        self._examples[kind, name].append(example)


def _delivery(subscription: str | None, address: str | None) -> object:
    if address is None:
        return ABSENT
    return {"to": address} if subscription is None else {"subscription": subscription, "to": address}


def _content(raw: bytes | None) -> object:
    return ABSENT if raw is None else read_back(raw)


def _letters(trace: Trace) -> RowIds:
    """Return the number of dead letters by row: one for a failed record, one for each failed delivery."""
    letters: RowIds = np.bincount(trace.rows[len(trace.rows) - trace.letters :], minlength=len(trace))
    return letters


def _subscriptions(changes: Changed) -> Tally:
    return Tally.of(id_ for id_ in changes.subscriptions if id_ is not None)


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
