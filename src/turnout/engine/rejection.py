"""Rejections: records that fail, and deliveries that no sink can take; the other deliveries of a record are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from turnout.engine.deliveries import NO_SUBSCRIPTION, OutgoingDeliveries
from turnout.records import Failure
from turnout.routes import Route
from turnout.subscriptions.destinations import describe_destination

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
