"""Failing records: rejections, after which other deliveries of a record are sent, and their handling in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from turnout.base.untrusted import JsonObject
from turnout.engine.deliveries import NO_SUBSCRIPTION, OutgoingDeliveries
from turnout.engine.reading import Consumed
from turnout.errors import RunError
from turnout.records import Failure
from turnout.records.text import iso_of, readable
from turnout.routes import Route
from turnout.subscriptions.destinations import describe_destination
from turnout.traces.context import NAMES, context_of
from turnout.transforms import ErrorPolicy

if TYPE_CHECKING:
    from turnout.subscriptions.index import Index


STAGE: Final = "TASK_PUT"
"""Connect's name for the stage in which a sink takes a record."""

_EXCEPTION: Final = "org.apache.kafka.connect.errors.ConnectException"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Record, or single delivery of one, that is not sent: a dead letter, or discarded.

    Attributes:
        row: row of the record.
        failure: the reason; None for an unmatched record.
        subscription: id of the subscription of a single delivery; None for a record under its own topic.
        destination: destination of a single delivery, as the subscription has it; None for a whole record.
    """

    row: int
    failure: Failure | None
    subscription: str | None = None
    destination: str | None = None

    @property
    def is_delivery(self) -> bool:
        """True for a single delivery."""
        return self.destination is not None

    @classmethod
    def of_delivery(cls, row: int, subscription: str | None, destination: str, reason: str, sink: str) -> Rejection:
        """Return the rejection of a delivery to a sink of the format *sink*, in the terms of Connect's reports."""
        of = "the record's own topic" if subscription is None else f"subscription {subscription!r}"
        message = f"{of}: destination {describe_destination(destination)} {reason}"
        return cls(row, Failure(STAGE, f"turnout.sink.{sink}", _EXCEPTION, message), subscription, destination)


def failures_of(rejections: Sequence[Rejection]) -> dict[int, Failure]:
    """Return row → why it, or its first delivery that was rejected, failed."""
    failures: dict[int, Failure] = {}
    for rejection in rejections:
        if rejection.failure is not None:
            failures.setdefault(rejection.row, rejection.failure)
    return failures


def rejected_deliveries(
    route: Route,
    topics: Sequence[str | None],
    index: Index | None,
    deliveries: OutgoingDeliveries,
    reasons: Mapping[int, str],
) -> list[Rejection]:
    """Return the rejections of deliveries, named by subscription and destination.

    Args:
        route: whose sinks they are for.
        topics: topics of the batch's records, as mapped.
        index: the subscriptions that they were matched with.
        deliveries: deliveries of the batch.
        reasons: index of a delivery → why it is rejected.
    """
    if not reasons:
        return []
    indices = np.array(sorted(reasons), np.int64)
    subscriptions = deliveries.subscriptions[indices]
    of_index = np.flatnonzero(subscriptions != NO_SUBSCRIPTION)
    ids: list[str | None] = [None] * len(indices)
    destinations: list[str | None] = [topics[row] for row in deliveries.rows[indices].tolist()]
    if index is not None and len(of_index):
        known_ids = index.subscription_ids(subscriptions[of_index]).to_pylist()
        texts = index.destinations(deliveries.destinations[indices][of_index]).to_pylist()
        for position, id_, text in zip(of_index.tolist(), known_ids, texts, strict=True):
            ids[position], destinations[position] = id_, text
    formats = [sink.format for sink in route.sinks.values()]
    return [
        Rejection.of_delivery(
            int(deliveries.rows[number]),
            id_,
            destination or "",
            reasons[number],
            formats[0 if deliveries.sinks is None else deliveries.sinks[number]],
        )
        for number, id_, destination in zip(indices.tolist(), ids, destinations, strict=True)
    ]


_SHOWN_REASONS: Final = 5


def reasons_of(lines: Iterable[Mapping[str, object]], total: int) -> str:
    """Return the most frequent reasons of failures in the form of the log, with their counts; "" without any.

    Args:
        lines: failures; empty ones are only counted.
        total: number of all failures.
    """
    reasons = Counter(f"{line['stage']}: {line['message']}" for line in lines if "message" in line)
    shown = reasons.most_common(_SHOWN_REASONS)
    others = total - sum(count for _, count in shown)
    texts = [f"{count:,} failed at {reason}" for reason, count in shown]
    return "; ".join([*texts, *([f"{others:,} more failed"] if others else [])])


IN_FULL: Final = 20
"""Maximum number of failures of one batch that are shown in full, in the order of reading."""

_MAX_SHOWN_CHARACTERS: Final = 1000
"""Maximum number of characters shown of a key or a value."""


def stop_at(route: Route, rejections: Sequence[Rejection], consumed: Consumed) -> None:
    """Raise for the first failure of a batch, unless the route tolerates failures.

    Raises:
        RunError: names the record's position, the stage and the reason.
    """
    if route.errors.tolerance != "none":
        return
    row, failure = min(failures_of(rejections).items(), key=lambda failed: failed[0], default=(0, None))
    if failure is None:
        return
    position = ", ".join(f"{name} {value}" for name, value in _position(consumed, row).items() if value is not None)
    raise RunError(f"{position}: {failure.stage}: {failure.class_name}: {failure.message}")


def _position(consumed: Consumed, row: int) -> JsonObject:
    names = consumed.batch.schema.names
    return {
        name: consumed.batch.column(name)[row].as_py() if name in names else None
        for name in ("topic", "partition", "offset")
    }


class FailureLog:
    """Collector of one batch's log entries for ``errors.log.enable``.

    Args:
        policy: whether to collect any, and whether they show keys and values.
        consumed: the records as they were read.
    """

    def __init__(self, policy: ErrorPolicy, consumed: Consumed) -> None:
        self._policy = policy
        self._consumed = consumed
        self._failures: dict[int, Failure] = {}
        self._deliveries: list[tuple[int, Failure]] = []

    def passed_over(self, noted: Mapping[int, Failure]) -> None:
        """Note failures of predicates that only left their stage out."""
        if self._policy.log:
            for row, failure in noted.items():
                self._failures.setdefault(row, failure)

    def rejected(self, rejections: Iterable[Rejection]) -> None:
        """Note rejections that have a reason."""
        if not self._policy.log:
            return
        for rejection in rejections:
            if rejection.failure is None:
                continue
            if rejection.is_delivery:
                self._deliveries.append((rejection.row, rejection.failure))
            else:
                self._failures[rejection.row] = rejection.failure

    def lines(self) -> list[JsonObject]:
        """Return a dict for each failure: the record's position, stage, class, exception and message.

        Beyond the first `IN_FULL` it is empty, to be counted.
        """
        failures = sorted([*self._failures.items(), *self._deliveries], key=lambda failed: failed[0])
        return [self._line(*failed) for failed in failures[:IN_FULL]] + [{} for _ in failures[IN_FULL:]]

    def _line(self, row: int, failure: Failure) -> JsonObject:
        position = _position(self._consumed, row)
        line = {
            **{name: None if value is None else str(value) for name, value in position.items()},
            "timestamp": self._moment(row),
            "stage": failure.stage,
            "class_name": failure.class_name,
            "exception": failure.exception,
            "message": failure.message,
            **self._trace(row),
        }
        if self._policy.log_messages:
            line["key"] = _readable(self._consumed.keys[row])
            line["value"] = _readable(self._consumed.values[row])
        return line

    def _trace(self, row: int) -> dict[str, str]:
        """Return the ids of the trace context that a record came with; empty without one."""
        batch = self._consumed.batch
        pairs = batch.column("headers")[row].as_py() if "headers" in batch.schema.names else None
        headers = {f"{pair['key']}".lower(): (pair["value"] or b"").decode("utf-8", "replace") for pair in pairs or ()}
        context = context_of(headers, NAMES)
        return {} if context is None else context.ids()

    def _moment(self, row: int) -> str | None:
        if "timestamp" not in self._consumed.batch.schema.names:
            return None
        moment = self._consumed.batch.column("timestamp")[row].as_py()
        return None if moment is None else iso_of(int(moment.timestamp() * 1000))


def _readable(raw: bytes | None) -> str | None:
    text = readable(raw)
    return text if text is None else text[:_MAX_SHOWN_CHARACTERS]
