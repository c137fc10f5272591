"""Deliveries that no sink can take: each becomes its own dead letter or is discarded; the others are sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.engine.addresses import Addresses
from turnout.engine.dead_letters import delivery_headers
from turnout.engine.deliveries import NOBODY, OutgoingDeliveries
from turnout.engine.messages import Messages, carried
from turnout.engine.origin import dead_suffix, origins
from turnout.engine.reading import Consumed
from turnout.records import Failure
from turnout.routes import Route
from turnout.subscriptions.destinations import shown
from turnout.subscriptions.index import Index

if TYPE_CHECKING:
    from turnout.engine.headers import HeaderRules

STAGE = "TASK_PUT"
"""Connect's name for the stage in which a sink takes a record."""

_EXCEPTION = "org.apache.kafka.connect.errors.ConnectException"


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Delivery that no sink can take.

    Attributes:
        row: of the record.
        subscription: the subscription's id; None for a record under its own topic.
        destination: as the subscription has it.
        reason: why.
        sink: the sink's format.
    """

    row: int
    subscription: str | None
    destination: str
    reason: str
    sink: str

    @property
    def failure(self) -> Failure:
        """The failure in the terms of Connect's error reports."""
        of = "the record's own topic" if self.subscription is None else f"subscription {self.subscription!r}"
        message = f"{of}: destination {shown(self.destination)} {self.reason}"
        return Failure(STAGE, f"turnout.sink.{self.sink}", _EXCEPTION, message)


def named(
    route: Route,
    topics: Sequence[str | None],
    index: Index | None,
    deliveries: OutgoingDeliveries,
    reasons: Mapping[int, str],
) -> list[Undelivered]:
    """Return the deliveries at the indices in *reasons*, named by subscription and destination, with their reasons.

    Args:
        route: whose sinks they are for.
        topics: of the batch's records, as mapped.
        index: the subscriptions that they were matched with.
        deliveries: of the batch.
        reasons: place → why.
    """
    if not reasons:
        return []
    places = np.array(sorted(reasons), np.int64)
    subscriptions = deliveries.subscriptions[places]
    of_index = subscriptions != NOBODY
    ids: list[str | None] = [None] * len(places)
    texts: list[str | None] = [topics[row] for row in deliveries.rows[places].tolist()]
    if index is not None and of_index.any():
        at = np.flatnonzero(of_index)
        known = index.subscription_ids(subscriptions[at]).to_pylist()
        destinations = index.destinations(deliveries.destinations[places][at]).to_pylist()
        for place, id_, destination in zip(at.tolist(), known, destinations, strict=True):
            ids[place], texts[place] = id_, destination
    formats = [sink.format for sink in route.sinks.values()]
    return [
        Undelivered(
            int(deliveries.rows[place]),
            id_,
            text or "",
            reasons[place],
            formats[0 if deliveries.sinks is None else deliveries.sinks[place]],
        )
        for place, id_, text in zip(places.tolist(), ids, texts, strict=True)
    ]


def dead_letters(
    route: Route, addresses: Addresses, rules: HeaderRules, consumed: Consumed, undelivered: Sequence[Undelivered]
) -> Messages:
    """Return a dead letter for each: the record as read, with the reason, the subscription and the destination."""
    assert route.dead_letter is not None
    rows = [delivery.row for delivery in undelivered]
    sink, topic = addresses.split(route.dead_letter.topic)
    headers = delivery_headers(route, rules, consumed, undelivered)
    suffixes = [dead_suffix(route.name, delivery.subscription or "", delivery.destination) for delivery in undelivered]
    origin = origins(consumed.batch).take(pa.array(rows, pa.int64()))
    return Messages(
        pa.repeat(pa.scalar(topic, pa.string()), len(rows)),
        pc.binary_join_element_wise(origin, pa.array(suffixes, pa.string()), ""),
        np.full(len(rows), sink, np.int8),
        np.arange(len(rows)),
        carried(consumed.batch, rows, _at(consumed.values, rows), headers, _at(consumed.keys, rows)),
    )


def _at(column: Sequence[bytes | None], rows: Iterable[int]) -> Any:
    return pa.array([column[row] for row in rows], pa.binary())
