"""Outcome of each record of a batch, for tests, ``explain`` and comparisons of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from turnout.engine.counts import Counts
from turnout.engine.deliveries import NO_SUBSCRIPTION, OutgoingDeliveries
from turnout.engine.failures import Rejection, failures_of
from turnout.engine.messages import Messages
from turnout.engine.outcome import Outcome, Outcomes
from turnout.engine.reading import Consumed
from turnout.records import Batch, Failure
from turnout.records.types import RowIds, Strings
from turnout.routes import Route
from turnout.transforms.chain import StageRunner

if TYPE_CHECKING:
    from turnout.subscriptions.index import Index


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
    """Outcomes of a batch's records, the deliveries to send, and the rejections.

    Attributes:
        records: as the transforms and mappings left them.
        consumed: the records as they were read.
        outcomes: by row; none is `Outcome.STOPPED`.
        deliveries: the deliveries to send.
        rejections: failed and unmatched records first, then deliveries.
    """

    records: Batch
    consumed: Consumed
    outcomes: Outcomes
    deliveries: OutgoingDeliveries
    rejections: Sequence[Rejection]


@dataclass(frozen=True, slots=True)
class Trace:
    """Outcomes and messages of each record of a batch.

    Attributes:
        outcomes: by row, an `Outcome` each.
        topics: by row, as transformed and mapped; None where the weights lose the record.
        rows: the row of each message; messages are in the order of `Messages`, dead letters last.
        subscriptions: of each message, the id of the subscription that it is for, as Arrow text; null for none.
        destinations: destinations of each message, as the subscription names it (``sink:topic`` where it names a sink).
        messages: messages to send: topics, ids, encoded values. A record that stops the run has its dead letter among
            them if the route has a topic for it, although a run does not send it.
        letters: how many of the messages are dead letters.
        projected: indices of the messages with a body of their own.
        failures: row → why it failed.
        records: keys, values and headers after the transforms, of the remaining records.
        counts: counts of the batch.
    """

    outcomes: Outcomes
    topics: Sequence[str | None]
    rows: RowIds
    subscriptions: Strings
    destinations: Strings
    messages: Messages
    letters: int
    projected: RowIds
    failures: Mapping[int, Failure]
    records: Batch
    counts: Counts

    def __len__(self) -> int:
        return len(self.outcomes)

    def outcome(self, row: int) -> Outcome:
        """Return the outcome of one record."""
        return Outcome(int(self.outcomes[row]))

    def messages_of(self, row: int) -> RowIds:
        """Return the indices of one record's messages, its dead letter among them."""
        return np.flatnonzero(self.rows == row)

    def is_letter(self, number: int) -> bool:
        """Return True if the message at an index is a dead letter."""
        return number >= len(self.rows) - self.letters


def traced(route: Route, ended: BatchOutcome, counts: Counts, messages: Messages, index: Index | None) -> Trace:
    """Return the trace of a batch that has been run.

    Args:
        route: the route.
        ended: the outcomes.
        counts: counts of the batch.
        messages: messages to send.
        index: the subscriptions that the batch was matched with.
    """
    letters = ended.rejections if route.dead_letter is not None else ()
    rows = np.concatenate([ended.deliveries.rows, np.array([letter.row for letter in letters], np.int64)])
    assert len(rows) == len(messages), "a message for each delivery, and for each dead letter"
    subscriptions, destinations = _addressed(ended, index)
    if route.dead_letter is not None:
        subscriptions += [letter.subscription for letter in letters]
        destinations += [route.dead_letter.topic] * len(letters)
    failures = failures_of(ended.rejections)
    outcomes = ended.outcomes
    if route.errors.tolerance == "none":
        outcomes = outcomes.copy()
        outcomes[list(failures)] = Outcome.STOPPED
    return Trace(
        outcomes,
        list(ended.records.topics),
        rows,
        pa.array(subscriptions, pa.string()),
        pa.array(destinations, pa.string()),
        messages,
        len(letters),
        np.flatnonzero(np.zeros(0) if ended.deliveries.bodies is None else ended.deliveries.bodies >= 0),
        failures,
        ended.records,
        counts,
    )


def _addressed(ended: BatchOutcome, index: Index | None) -> tuple[list[str | None], list[str | None]]:
    """Return each delivery's subscription id, None for a record under its own topic, and its destination."""
    sent = ended.deliveries
    ids: list[str | None] = [None] * len(sent)
    destinations: list[str | None] = [ended.records.topics[row] for row in sent.rows.tolist()]
    of_index = np.flatnonzero(sent.subscriptions != NO_SUBSCRIPTION)
    if index is None or not len(of_index):
        return ids, destinations
    subscriptions = index.subscription_ids(sent.subscriptions[of_index]).to_pylist()
    texts = index.destinations(sent.destinations[of_index]).to_pylist()
    for number, id_, text in zip(of_index.tolist(), subscriptions, texts, strict=True):
        ids[number], destinations[number] = id_, text
    return ids, destinations
