"""Result of one batch, and its correction when a server refuses some of its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.engine.addresses import Addresses
from turnout.engine.counts import Counts
from turnout.engine.deliveries import OutgoingDeliveries
from turnout.engine.failures import FailureLog, stop_at
from turnout.engine.flow import DEAD_LETTER, SINK, Flow
from turnout.engine.headers import HeaderRules
from turnout.engine.messages import Messages
from turnout.engine.reading import Consumed
from turnout.engine.undelivered import dead_letters, named
from turnout.errors import RunError
from turnout.routes import Route
from turnout.subscriptions.index import Index


@dataclass(frozen=True, slots=True)
class Sent:
    """Messages of one batch as handed to the sinks, kept to handle refusals by a server.

    Attributes:
        route: whose they are.
        addresses: of its sinks.
        rules: which headers can be written.
        consumed: the records as they were read.
        topics: of the records, as mapped.
        index: the subscriptions that the records were matched with.
        deliveries: of the first messages, in their order; those behind them are dead letters.
    """

    route: Route
    addresses: Addresses
    rules: HeaderRules
    consumed: Consumed
    topics: Sequence[str | None]
    index: Index | None
    deliveries: OutgoingDeliveries

    def check(self, place: int, reason: str) -> None:
        """Raise where the refusal of one message stops the run.

        Raises:
            RunError: the route tolerates no failures, or the message is a dead letter, which has nowhere else to go.
        """
        if place >= len(self.deliveries):
            topic = self.route.dead_letter.topic if self.route.dead_letter is not None else ""
            raise RunError(f"a dead letter cannot be written to {topic!r}: {reason}")
        if self.route.errors.tolerance == "none":
            (refused,) = named(self.route, self.topics, self.index, self.deliveries, {place: reason})
            stop_at(self.route, [(refused.row, refused.failure)], self.consumed)

    def refused(self, reasons: Mapping[int, str]) -> Result:
        """Return the replacements of refused messages, and the change of the batch's counts.

        Args:
            reasons: every refused message of the batch, by its place, and why.

        Raises:
            RunError: as `check`.
        """
        for place, reason in reasons.items():
            self.check(place, reason)
        undelivered = named(self.route, self.topics, self.index, self.deliveries, reasons)
        rows = self.deliveries.rows
        all_of = np.bincount(rows)
        refused = np.bincount([delivery.row for delivery in undelivered], minlength=len(all_of))
        nowhere = int(((all_of > 0) & (refused == all_of)).sum())
        has_topic = self.route.dead_letter is not None
        counts = Counts(
            delivered=-nowhere,
            dead_lettered=nowhere if has_topic else 0,
            discarded=0 if has_topic else nowhere,
            messages=-len(undelivered),
            undeliverable=len(undelivered),
            flow=Flow({DEAD_LETTER: nowhere} if has_topic else {}, {SINK: nowhere} if nowhere else {}),
        )
        log = FailureLog(self.route.errors, self.consumed)
        log.undelivered([(delivery.row, delivery.failure) for delivery in undelivered])
        letters = (
            dead_letters(self.route, self.addresses, self.rules, self.consumed, undelivered)
            if has_topic
            else Messages.none()
        )
        return Result(counts, letters, log.lines())


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one batch.

    Attributes:
        counts: of its records.
        messages: what goes out.
        failures: what failed, as the log shows it; only where the route asks for a log.
        sent: answers for messages that are refused; None where all of them are dead letters.

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
    messages: Messages
    failures: Sequence[dict[str, Any]] = ()
    sent: Sent | None = None

    def is_dead_letter(self, place: int) -> bool:
        """Return True if a message is a dead letter, and not a delivery."""
        return self.sent is None or place >= len(self.sent.deliveries)

    def check(self, place: int, reason: str) -> None:
        """Raise where the refusal of one message stops the run.

        Raises:
            RunError: see `Sent.check`.
        """
        if self.sent is None:
            raise RunError(f"a dead letter cannot be written: {reason}")
        self.sent.check(place, reason)

    def refused(self, reasons: Mapping[int, str]) -> Result:
        """Return the replacements of refused messages, with the change of the counts.

        Raises:
            RunError: see `Sent.check`.
        """
        assert self.sent is not None, "check raises for dead letters"
        return self.sent.refused(reasons)
