"""Where a record came from, as one text: what its message ids and its draws are made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.subjects.draw_hash import chained
from turnout.subscriptions.index import Deliveries, Index

__all__ = ["IdSuffixes", "dead_suffix", "origins", "suffix"]


def origins(batch: Any) -> Any:
    """``stream:sequence`` for NATS, ``topic:partition:offset`` otherwise; null where a part is unknown.

    Args:
        batch: a record batch as it was read.
    """
    names = batch.schema.names
    offsets = batch.column("offset").cast(pa.string())
    if "stream" in names:
        stream = batch.column("stream")
        text = stream.dictionary_decode() if pa.types.is_dictionary(stream.type) else stream
        return pc.binary_join_element_wise(text, offsets, ":")
    partitions = batch.column("partition").cast(pa.string())
    return pc.binary_join_element_wise(batch.column("topic").cast(pa.string()), partitions, offsets, ":")


def suffix(*parts: str) -> str:
    """What a message id has behind the origin: a hash of route, subscription and destination.

    The parts are hashed: ids stay short, because the server keeps every one of them for its duplicate window. Two
    routes, subscriptions or destinations never take each other's messages for their own.
    """
    return f":{chained(*parts):X}"


def dead_suffix(route: str) -> str:
    """The suffix of a dead letter's id."""
    return suffix(route, "dead")


class IdSuffixes:
    """The suffixes of one index's deliveries, each made when a subscription's destination is first delivered to.

    Args:
        route: the route's name.
        index: whose numbers are used.
    """

    def __init__(self, route: str, index: Index) -> None:
        self._seed = chained(route)
        self._index = index
        self._texts: dict[int, str] = {}

    def of(self, deliveries: Deliveries) -> Any:
        """The suffix of each delivery, as Arrow text."""
        pairs, first, places = np.unique(
            (deliveries.subscriptions << 32) | deliveries.destinations, return_index=True, return_inverse=True
        )
        if len(self._texts) > _REMEMBERED:
            self._texts.clear()
        known = self._texts
        numbers = pairs.tolist()
        missing = [at for at, number in enumerate(numbers) if number not in known]
        if missing:
            some = first[missing]
            ids = self._index.subscription_ids(deliveries.subscriptions[some]).to_pylist()
            destinations = self._index.destinations(deliveries.destinations[some]).to_pylist()
            for at, subscription_id, destination in zip(missing, ids, destinations, strict=True):
                known[numbers[at]] = f":{chained(subscription_id, destination, seed=self._seed):X}"
        return pa.array([known[number] for number in numbers], pa.string()).take(pa.array(places))


_REMEMBERED = 1_000_000
"""How many suffixes are remembered; beyond them all are forgotten."""
