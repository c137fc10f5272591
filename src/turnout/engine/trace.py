"""Outcome of each record of a batch, for tests, ``explain`` and comparisons of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.engine.counts import Counts
from turnout.engine.deliveries import NOBODY, OutgoingDeliveries
from turnout.engine.messages import Messages
from turnout.engine.reading import Consumed
from turnout.engine.undelivered import Undelivered
from turnout.records import FILTERED, Batch, Failure
from turnout.routes import Route
from turnout.subscriptions.index import Index
from turnout.transforms.apply import StageRunner

Rows = NDArray[np.int64]


class Outcome(IntEnum):
    """Outcome of a record. `label` is its name in files and on the command line."""

    DELIVERED = 0
    FILTERED = 1
    LOST_BY_WEIGHT = 2
    UNMATCHED = 3
    DEAD_LETTERED = 4
    DISCARDED = 5
    STOPPED = 6
    """It failed, and the route tolerates no failure: a run ends here."""

    @property
    def label(self) -> str:
        """The name in lower case, as `Counts` spells it."""
        return self.name.lower()


class Watch:
    """Observer of a batch's records between the steps of a program; this base class does nothing."""

    def decoded(self, records: Batch, consumed: Consumed) -> None:
        """Observe the records after their keys and values have been decoded."""

    def before(self, stage: StageRunner, records: Batch) -> None:
        """Observe the records before a stage is applied."""

    def after(self, stage: StageRunner, records: Batch) -> None:
        """Observe the records after a stage has been applied."""

    def transformed(self, records: Batch) -> None:
        """Observe the records after all stages, before topics are mapped."""

    def mapped(self, records: Batch) -> None:
        """Observe the records after mapping; the topic of a record that the weights drop is null."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """Rows of a batch by outcome, and the messages to send.

    Attributes:
        dead: failed, or unmatched where that makes a dead letter.
        deliveries: those that go out.
        undelivered: those that nobody can take.
    """

    records: Batch
    consumed: Consumed
    lost: Rows
    unmatched: Rows
    delivered: Rows
    dead: Rows
    deliveries: OutgoingDeliveries
    undelivered: Sequence[Undelivered]

    @property
    def failures(self) -> list[tuple[int, Failure]]:
        """Row and reason of everything that failed, records first."""
        return [*self.records.failures.items(), *((delivery.row, delivery.failure) for delivery in self.undelivered)]


@dataclass(frozen=True, slots=True)
class Trace:
    """Outcomes and messages of each record of a batch.

    Attributes:
        outcomes: by row, an `Outcome` each.
        topics: by row, as transformed and mapped; None where the weights lose the record.
        rows: the row of each message; messages are in the order of `Messages`, dead letters last.
        subscriptions: of each message, the id of the subscription that it is for, as Arrow text; null for none.
        destinations: of each message, as the subscription names it (``sink:topic`` where it names a sink).
        messages: what goes out: topics, ids, encoded values. A record that stops the run has its dead letter among
            them if the route has a topic for such, although a run does not come to send it.
        letters: how many of the messages are dead letters.
        failures: row → why it failed.
        records: keys, values and headers as the transforms left them, of those that are alive.
        counts: of the batch.
    """

    outcomes: NDArray[np.int8]
    topics: Sequence[str | None]
    rows: Rows
    subscriptions: Any
    destinations: Any
    messages: Messages
    letters: int
    failures: Mapping[int, Failure]
    records: Batch
    counts: Counts

    def __len__(self) -> int:
        return len(self.outcomes)

    def outcome(self, row: int) -> Outcome:
        """Return the outcome of one record."""
        return Outcome(int(self.outcomes[row]))

    def messages_of(self, row: int) -> Rows:
        """The places of one record's messages, its dead letter among them."""
        return np.flatnonzero(self.rows == row)

    def is_letter(self, place: int) -> bool:
        """Return True if the message at an index is a dead letter."""
        return place >= len(self.rows) - self.letters


def traced(route: Route, ends: BatchOutcome, counts: Counts, messages: Messages, index: Index | None) -> Trace:
    """The trace of a batch that has been run.

    Args:
        route: the route.
        ends: its records by how they ended.
        counts: of the batch.
        messages: what goes out.
        index: the subscriptions that the batch was matched with.
    """
    letters = (
        [*ends.dead.tolist(), *(delivery.row for delivery in ends.undelivered)] if route.dead_letter is not None else []
    )
    rows = np.concatenate([ends.deliveries.rows, np.array(letters, np.int64)])
    assert len(rows) == len(messages), "a message for each delivery, and for each dead letter"
    whose, where = _addressed(ends, index)
    topic = None if route.dead_letter is None else route.dead_letter.topic
    whose += [*[None] * len(ends.dead), *(delivery.subscription for delivery in ends.undelivered)]
    failures = dict(ends.records.failures)
    for delivery in ends.undelivered:
        failures.setdefault(delivery.row, delivery.failure)
    return Trace(
        _outcomes(route, ends),
        _topics(ends),
        rows,
        pa.array(whose[: len(rows)], pa.string()),
        pa.array([*where, *[topic] * len(letters)], pa.string()),
        messages,
        len(letters),
        failures,
        ends.records,
        counts,
    )


def _outcomes(route: Route, ends: BatchOutcome) -> NDArray[np.int8]:
    # Every record ends somewhere: a place that nothing fills is no outcome at all.
    outcomes = np.full(len(ends.records), -1, np.int8)
    outcomes[ends.records.outcomes == FILTERED] = Outcome.FILTERED
    outcomes[ends.lost] = Outcome.LOST_BY_WEIGHT
    outcomes[ends.unmatched] = Outcome.UNMATCHED
    aside = Outcome.DISCARDED if route.dead_letter is None else Outcome.DEAD_LETTERED
    outcomes[ends.dead] = aside
    outcomes[[delivery.row for delivery in ends.undelivered]] = aside
    outcomes[ends.delivered] = Outcome.DELIVERED
    if route.errors.tolerance == "none":
        outcomes[[row for row, _ in ends.failures]] = Outcome.STOPPED
    return outcomes


def _topics(ends: BatchOutcome) -> Sequence[str | None]:
    topics = list(ends.records.topics)
    for row in ends.lost.tolist():
        topics[row] = None
    return topics


def _addressed(ends: BatchOutcome, index: Index | None) -> tuple[list[str | None], list[str | None]]:
    """Return each delivery's subscription id, None for a record under its own topic, and its destination."""
    sent = ends.deliveries
    ids: list[str | None] = [None] * len(sent)
    destinations: list[str | None] = [ends.records.topics[row] for row in sent.rows.tolist()]
    of_index = np.flatnonzero(sent.subscriptions != NOBODY)
    if index is None or not len(of_index):
        return ids, destinations
    known = index.subscription_ids(sent.subscriptions[of_index]).to_pylist()
    texts = index.destinations(sent.destinations[of_index]).to_pylist()
    for place, id_, text in zip(of_index.tolist(), known, texts, strict=True):
        ids[place], destinations[place] = id_, text
    return ids, destinations
