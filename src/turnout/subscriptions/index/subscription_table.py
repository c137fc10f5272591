"""Columns of a segment that describe its subscriptions: ids, destinations, expiries and projections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from turnout.conditions import Condition
from turnout.subscriptions.expiry import Expiry, ExpiryClock
from turnout.subscriptions.index.buckets import Ints, Longs
from turnout.subscriptions.index.facts import encoded_all
from turnout.subscriptions.index.literal_choice import NOTHING
from turnout.subscriptions.index.text_arrays import Texts
from turnout.subscriptions.model import Subscription

NEVER = np.iinfo(np.int64).max
"""Time of an expiry that is none."""


class SubscriptionColumns(NamedTuple):
    """Columns of all subscriptions; see `turnout.subscriptions.index.arrays.Arrays`."""

    ids: Texts
    destinations_at: Ints
    destination: Ints
    destinations: Texts
    expires_record: Longs
    expires_wall: Longs
    project: Ints
    projects: Texts


class SubscriptionTable:
    """Ids, destinations, expiries and projections, kept while the conditions go by; the rest is not."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._counts: list[int] = []
        self._numbers: list[int] = []
        self._names: dict[str, int] = {}
        self._expiries: dict[int, Expiry] = {}
        self._projects: dict[int, str] = {}

    def conditions(self, subscriptions: Iterable[Subscription]) -> Iterator[Condition]:
        """Add subscriptions, and yield their conditions."""
        names = self._names
        for subscription in subscriptions:
            if subscription.expires is not None:
                self._expiries[len(self._ids)] = subscription.expires
            if subscription.project:
                self._projects[len(self._ids)] = subscription.project
            self._ids.append(subscription.id)
            self._counts.append(len(subscription.destinations))
            for name in subscription.destinations:
                self._numbers.append(names.setdefault(name, len(names)))
            yield subscription.condition

    def columns(self) -> SubscriptionColumns:
        """Return the columns of the subscriptions that were added."""
        return SubscriptionColumns(
            Texts.of(encoded_all(self._ids)),
            *self._destinations(),
            self._expiries_by("record"),
            self._expiries_by("wall"),
            *self._projections(),
        )

    def _destinations(self) -> tuple[Ints, Ints, Texts]:
        """Return the offset of each subscription's destinations, the numbers of these, and the texts."""
        offsets = np.zeros(len(self._counts) + 1, np.int32)
        np.cumsum(self._counts, out=offsets[1:])
        return offsets, np.array(self._numbers, np.int32), Texts.of(encoded_all(list(self._names)))

    def _expiries_by(self, clock: ExpiryClock) -> Longs:
        """Return the times at which the subscriptions expire by a clock; empty if none expires at all."""
        if not self._expiries:
            return np.zeros(0, np.int64)
        times = np.full(len(self._ids), NEVER, np.int64)
        for number, expiry in self._expiries.items():
            if expiry.by == clock:
                times[number] = expiry.milliseconds
        return times

    def _projections(self) -> tuple[Ints, Texts]:
        """Return the number of each subscription's projection, empty if none has one, and the texts."""
        texts = list(dict.fromkeys(self._projects.values()))
        numbers = {text: number for number, text in enumerate(texts)}
        of_subscriptions = np.full(len(self._ids) if texts else 0, NOTHING, np.int32)
        for subscription, text in self._projects.items():
            of_subscriptions[subscription] = numbers[text]
        return of_subscriptions, Texts.of(encoded_all(texts))
