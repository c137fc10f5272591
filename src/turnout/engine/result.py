"""Result of one batch, and its correction when a server refuses some of its messages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from turnout.base.untrusted import JsonObject
from turnout.engine.counts import DEAD_LETTER, SINK, Counts, Flow, outcome_of_rejected
from turnout.engine.dead_letters import FailureLog, Rejection, dead_letters, rejected_deliveries, stop_at
from turnout.engine.deliveries import Addresses, FeedMatches, OutgoingDeliveries
from turnout.engine.messages import HeaderRules, ListedMessages, Messages
from turnout.engine.reading import Consumed
from turnout.errors import RunError
from turnout.routes import Route
from turnout.traces.spans import Span

if TYPE_CHECKING:
    from turnout.subscriptions.index import Index


@dataclass(frozen=True, slots=True)
class Sent:
    """Messages of one batch as handed to the sinks, kept to handle refusals by a server.

    Attributes:
        route: route of the records.
        addresses: addresses of its sinks.
        rules: rules for headers.
        consumed: the records as they were read.
        topics: topics of the records, as mapped.
        index: the subscriptions that the records were matched with.
        deliveries: deliveries of the first messages, in their order; those behind them are dead letters.
    """

    route: Route
    addresses: Addresses
    rules: HeaderRules
    consumed: Consumed
    topics: Sequence[str | None]
    index: Index | None
    deliveries: OutgoingDeliveries

    def check(self, number: int, reason: str) -> None:
        """Raise where the refusal of one message stops the run.

        Args:
            number: index of the message.
            reason: the server's.

        Raises:
            RunError: the route tolerates no failures, or the message is a dead letter, which has nowhere else to go.
        """
        if number >= len(self.deliveries):
            topic = self.route.dead_letter.topic if self.route.dead_letter is not None else ""
            raise RunError(f"a dead letter cannot be written to {topic!r}: {reason}")
        if self.route.errors.tolerance == "none":
            refused = rejected_deliveries(self.route, self.topics, self.index, self.deliveries, {number: reason})
            stop_at(self.route, refused, self.consumed)

    def refused(self, reasons: Mapping[int, str]) -> Result:
        """Return the replacements of refused messages, and the change of the batch's counts.

        Args:
            reasons: index of each refused message of the batch → why.

        Raises:
            RunError: as `check`.
        """
        for number, reason in reasons.items():
            self.check(number, reason)
        rejections = rejected_deliveries(self.route, self.topics, self.index, self.deliveries, reasons)
        log = FailureLog(self.route.errors, self.consumed)
        log.rejected(rejections)
        letters = Messages.none()
        if self.route.dead_letter is not None:
            letters = dead_letters(self.route, self.addresses, self.rules, self.consumed, rejections)
        return Result(self._change(rejections), letters, log.lines())

    def _change(self, rejections: Sequence[Rejection]) -> Counts:
        """Return the change of the counts by refused messages: a record without any other is rejected."""
        sent = np.bincount(self.deliveries.rows)
        refused = np.bincount([rejection.row for rejection in rejections], minlength=len(sent))
        rejected = int(((sent > 0) & (refused == sent)).sum())
        numbers = {
            "delivered": -rejected,
            outcome_of_rejected(self.route).label: rejected,
            "messages": -len(rejections),
            "undeliverable": len(rejections),
        }
        has_topic = self.route.dead_letter is not None
        return Counts.of(
            numbers, Flow({DEAD_LETTER: rejected} if has_topic else {}, {SINK: rejected} if rejected else {})
        )


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one batch.

    Attributes:
        counts: counts of its records.
        outgoing: messages to send.
        failures: failures in the form of the log; only if the route enables the log.
        sent: answers for messages that are refused; None where all of them are dead letters.
        matched: matches to be stored for feeds; None for a route without feeds.
        indices: indices of the messages among those of the whole batch; None if they are all there.
        spans: spans of traced records and their messages.

    >>> from turnout.engine import Program
    >>> from turnout.engine.sample_records import SampleRecord, record_batch
    >>> from turnout.routes import Route
    >>> route = Route.parse(
    ...     '{name: r, source: {format: nats, servers: "nats://a", stream: S}, '
    ...     'mappings: {"a.*": "b.{{wildcard(1)}}"}, sink: {format: nats, servers: "nats://a"}}'
    ... )
    >>> batch = record_batch([SampleRecord.of({"topic": topic, "value": "x"}) for topic in ("a.1", "c.2")])
    >>> result = Program.of(route).run(batch)
    >>> result.counts.read, result.messages.topics.to_pylist()
    (2, ['b.1', 'c.2'])
    """

    counts: Counts
    outgoing: Messages | ListedMessages
    failures: Sequence[JsonObject] = ()
    sent: Sent | None = None
    matched: FeedMatches | None = None
    indices: NDArray[np.int64] | None = None
    spans: Sequence[Span] = ()

    @property
    def messages(self) -> Messages:
        """Messages to send, with Arrow arrays."""
        return self.outgoing.whole if isinstance(self.outgoing, ListedMessages) else self.outgoing

    def is_dead_letter(self, number: int) -> bool:
        """Return True if the message at an index is a dead letter, and not a delivery."""
        return self.sent is None or self._index(number) >= len(self.sent.deliveries)

    def _index(self, number: int) -> int:
        """Return the index of a message in the whole batch."""
        return number if self.indices is None else int(self.indices[number])

    def without(self, left_out: Collection[int]) -> Result:
        """Return the batch without the messages at some indices; its counts stay."""
        kept = np.array([index for index in range(len(self.outgoing)) if index not in left_out], np.int64)
        indices = kept if self.indices is None else self.indices[kept]
        return replace(self, outgoing=self.messages.take(kept), indices=indices)

    def check(self, number: int, reason: str) -> None:
        """Raise where the refusal of one message stops the run.

        Raises:
            RunError: see `Sent.check`.
        """
        if self.sent is None:
            raise RunError(f"a dead letter cannot be written: {reason}")
        self.sent.check(self._index(number), reason)

    def refused(self, reasons: Mapping[int, str]) -> Result:
        """Return the replacements of refused messages, with the change of the counts.

        Raises:
            RunError: see `Sent.check`.
        """
        assert self.sent is not None, "check raises for dead letters"
        return self.sent.refused({self._index(number): reason for number, reason in reasons.items()})
