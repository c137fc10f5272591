"""Traffic of a route's subscriptions in a range: subscriptions without matches, and sole causes of deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from turnout.base.multivalued import Metadata
from turnout.engine import Program
from turnout.engine.metadata import record_times, texts_of
from turnout.engine.trace import Watch
from turnout.records import Batch
from turnout.records.types import ArrowBatch
from turnout.subscriptions.analysis import AnchorCounter, AnchorTraffic, Loss, Traffic
from turnout.subscriptions.index import Column, Index, Matches


def traffic_of(
    program: Program, batches: Iterable[ArrowBatch], index: Index, ids: Iterable[str], anchors: AnchorTraffic
) -> Traffic:
    """Run records through a route up to the matching, and count; nothing is sent.

    Args:
        program: the route's.
        batches: record batches as a source gives them.
        index: the subscriptions.
        ids: ids of all of them.
        anchors: collects the look-ups and their matches.
    """
    watch = TrafficWatch(program, index, anchors)
    for batch in batches:
        program.trace(batch, index, watch)
    return traffic_from(watch.records, watch.fired, watch.deliveries, watch.only, ids)


def traffic_from(
    records: int,
    fired: Mapping[str, int],
    deliveries: Mapping[tuple[str, str], int],
    only: Mapping[tuple[str, str], int],
    ids: Iterable[str],
) -> Traffic:
    """Return the counts in the form of the report.

    Args:
        records: how many were matched.
        fired: subscription → number of records that it matched.
        deliveries: subscription and destination → how many deliveries it causes there.
        only: likewise, those that no other causes; zeros are left out.
        ids: ids of all subscriptions.
    """
    never = sorted(id_ for id_ in ids if id_ not in fired)
    losses = (Loss(*target, count, deliveries[target]) for target, count in only.items() if count)
    ordered = sorted(losses, key=lambda loss: (-loss.only, loss.id, loss.destination))
    return Traffic(records, sum(fired.values()), tuple(never), tuple(ordered))


class TrafficWatch(Watch):
    """Counts matches and deliveries of each batch.

    Args:
        program: the route's.
        index: the subscriptions.
        anchors: collects the look-ups and their matches.

    Attributes:
        records: how many were matched.
        fired: subscription → number of records that it matched.
        deliveries: subscription and destination → how many deliveries it causes there.
        only: likewise, those that no other causes.
    """

    def __init__(self, program: Program, index: Index, anchors: AnchorCounter) -> None:
        self._program = program
        self._index = index
        self._anchors = anchors
        self.records = 0
        self.fired: Counter[str] = Counter()
        self.only: Counter[tuple[str, str]] = Counter()
        self.deliveries: Counter[tuple[str, str]] = Counter()

    def mapped(self, records: Batch) -> None:
        """Match the mapped records, and count matches and deliveries by subscription."""
        rows = records.alive
        indices = [number for number, row in enumerate(rows.tolist()) if records.topics[row] is not None]
        rows = rows[np.array(indices, np.intp)]
        columns = self._program.metadata.columns(records, rows, self._index.keys)
        self.records += len(rows)
        self._anchors.add({key: _texts(column) for key, column in columns.items()}, len(rows))
        matches = self._index.match(columns, len(rows), times=record_times(records, rows, self._index))
        self._count_matches(matches, columns)
        self._count_deliveries(matches)

    def _count_matches(self, matches: Matches, columns: Mapping[str, Column]) -> None:
        ids = self._index.subscription_ids(matches.subscriptions).to_pylist()
        self.fired.update(ids)
        row = -1
        message: Metadata = {}
        for number, id_ in zip(matches.rows.tolist(), ids, strict=True):
            if number != row:
                row, message = number, texts_of(columns, number)
            self._anchors.match(id_, message)

    def _count_deliveries(self, matches: Matches) -> None:
        """Count deliveries by subscription, and separately deliveries with one subscription as their only cause."""
        sent = self._index.deliveries(matches)
        ids = self._index.subscription_ids(sent.subscriptions).to_pylist()
        where = self._index.destinations(sent.destinations).to_pylist()
        # One subscription may name a destination twice.
        causes = sorted(set(zip(sent.rows.tolist(), where, ids, strict=True)))
        shared = Counter((row, destination) for row, destination, _ in causes)
        for row, destination, id_ in causes:
            self.deliveries[id_, destination] += 1
            if shared[row, destination] == 1:
                self.only[id_, destination] += 1


def _texts(column: Column) -> Sequence[str | None]:
    if column.several:
        # Of several values the first: costs are an estimate.
        return [value[0] if isinstance(value, tuple) else value for value in column.values]
    if column.text is None:
        return column.values
    return [None if value is None else column.text(value) for value in column.values]
