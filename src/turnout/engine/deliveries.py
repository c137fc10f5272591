"""Deliveries of a batch: for each message its record, its topic, and the suffix of its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.engine.addresses import FEED_ALONE, Address, Addresses
from turnout.engine.message_ids import suffix
from turnout.records.types import ArrowBatch, RowIds, Strings
from turnout.routes.endpoints.tables import MATCH_SIGN
from turnout.subjects.arrays import chained

if TYPE_CHECKING:
    from turnout.engine.scheduling import Due
    from turnout.subscriptions import index as _index
    from turnout.subscriptions.destinations import Timing
    from turnout.subscriptions.index import Index


@dataclass(frozen=True, slots=True)
class FeedMatches:
    """Parallel columns of matches, with the index that they are of.

    Attributes:
        offsets: offsets of the records in their stream.
        subscriptions: numbers of the index.
        index: the subscriptions.
    """

    offsets: RowIds
    subscriptions: RowIds
    index: Index

    @classmethod
    def of(cls, batch: ArrowBatch, deliveries: OutgoingDeliveries, index: Index) -> Self:
        """Return the matches of deliveries that can be made; a match with several destinations may be repeated.

        Args:
            batch: the records as they were read.
            deliveries: of them.
            index: the subscriptions.
        """
        matched = deliveries.subscriptions != NO_SUBSCRIPTION
        offsets = batch.column("offset").to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(offsets[deliveries.rows[matched]], deliveries.subscriptions[matched], index)


NO_SUBSCRIPTION: Final = -1
"""Instead of a subscription's number: the record keeps its own topic."""

_REMEMBERED = 1_000_000
"""Maximum number of cached pairs of subscription and destination, or topics; the cache is cleared when it is full."""

_MAX_LISTED_DELIVERIES = 64
"""Number of deliveries up to which their texts are looked up one by one."""


class Texts:
    """Texts of a batch's deliveries, as a list or as an Arrow array; the other form is made at its first use.

    Args:
        texts: either form. A list suits a few: an array of them takes as long as the work on some records.
    """

    __slots__ = ("_array", "_listed")

    def __init__(self, texts: Strings | Sequence[str | None]) -> None:
        is_array = isinstance(texts, pa.Array)
        self._array: Strings | None = texts if is_array else None
        self._listed: Sequence[str | None] | None = None if is_array else texts

    @property
    def array(self) -> Strings:
        """The texts as an Arrow array."""
        if self._array is None:
            self._array = pa.array(self._listed, pa.string())
        return self._array

    @property
    def listed(self) -> Sequence[str | None]:
        """The texts as a list."""
        if self._listed is None:
            self._listed = self.array.to_pylist()
        return self._listed

    def take(self, indices: RowIds) -> Texts:
        """Return the texts at *indices*, in that order."""
        return Texts(self.array.take(pa.array(indices)))

    def joined(self, others: Texts) -> Texts:
        """Return these texts and others behind them."""
        return Texts(pa.concat_arrays([self.array, others.array]))


@dataclass(frozen=True, slots=True)
class OutgoingDeliveries:
    """Messages to send, sorted by record; all columns have one length.

    Attributes:
        rows: row ids of the records.
        topics: destination topics in the message's sink.
        suffixes: suffixes of the message ids.
        sinks: index of each message's sink, `FEED_ALONE` for none; None where all go to the first.
        subscriptions: numbers of the index; `NO_SUBSCRIPTION` for a record under its own topic.
        destinations: numbers of the index, likewise.
        problems: index → reason why it cannot be delivered.
        bodies: number of each message's own body among the batch's projections, -1 for the record's value; None where
            all have that.
        timings: time of each message, None for one that is delivered at once; None where all are.
        due: when each is due, once that is computed; None where all are at once.
    """

    rows: RowIds
    topics: Texts
    suffixes: Texts
    sinks: NDArray[np.int8] | None
    subscriptions: RowIds
    destinations: RowIds
    problems: dict[int, str]
    bodies: RowIds | None = None
    timings: Sequence[Timing | None] | None = None
    due: Due | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, indices: RowIds) -> Self:
        """Return the deliveries at *indices*, in that order, without their problems."""
        return type(self)(
            self.rows[indices],
            self.topics.take(indices),
            self.suffixes.take(indices),
            None if self.sinks is None else self.sinks[indices],
            self.subscriptions[indices],
            self.destinations[indices],
            {},
            None if self.bodies is None else self.bodies[indices],
            None if self.timings is None else [self.timings[index] for index in indices.tolist()],
            None if self.due is None else self.due.take(indices),
        )

    def sendable(self) -> Self:
        """Return the deliveries without a problem."""
        if not self.problems:
            return self
        return self.take(np.delete(np.arange(len(self)), list(self.problems)))

    def to_sinks(self) -> Self:
        """Return the deliveries that become messages, without those to feeds alone."""
        if self.sinks is None or (self.sinks != FEED_ALONE).all():
            return self
        return self.take(np.flatnonzero(self.sinks != FEED_ALONE))

    def of_rows(self, rows: RowIds) -> Self:
        """Return the deliveries of the records at *rows*."""
        return self.take(np.flatnonzero(np.isin(self.rows, rows)))

    def merged(self, others: Self) -> Self:
        """These and others, sorted by record, before they are projected."""
        order = np.argsort(np.concatenate([self.rows, others.rows]), kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        both = type(self)(
            np.concatenate([self.rows, others.rows]),
            self.topics.joined(others.topics),
            self.suffixes.joined(others.suffixes),
            None if self.sinks is None and others.sinks is None else np.concatenate([_sinks(self), _sinks(others)]),
            np.concatenate([self.subscriptions, others.subscriptions]),
            np.concatenate([self.destinations, others.destinations]),
            {},
            timings=None if self.timings is others.timings is None else [*_timings(self), *_timings(others)],
        ).take(order)
        moved = {int(back[index]): problem for index, problem in self.problems.items()}
        moved |= {int(back[len(self) + index]): problem for index, problem in others.problems.items()}
        both.problems.update(moved)
        return both


def with_matches(deliveries: OutgoingDeliveries, index: Index, sink: int) -> OutgoingDeliveries:
    """Return the deliveries, and for each match one to a table of matches.

    Its topic is the destination, and its id ends with the revision and the subscription.

    Args:
        deliveries: deliveries of a batch, without problems.
        index: the subscriptions that they were matched with.
        sink: index of the sink of matches.
    """
    matched = np.flatnonzero(deliveries.subscriptions != NO_SUBSCRIPTION)
    if not len(matched):
        return deliveries
    copies = deliveries.take(matched)
    ids = index.subscription_ids(copies.subscriptions).to_pylist()
    rows = replace(
        copies,
        topics=Texts(index.destinations(copies.destinations)),
        suffixes=Texts([f"{MATCH_SIGN}{index.revision}{MATCH_SIGN}{id_}" for id_ in ids]),
        sinks=np.full(len(copies), sink, np.int8),
        bodies=None,
    )
    both = deliveries.merged(rows)
    bodies, due, none = deliveries.bodies, deliveries.due, np.full(len(rows), -1, np.int64)
    order = np.argsort(np.concatenate([deliveries.rows, rows.rows]), kind="stable")
    if bodies is not None:
        both = replace(both, bodies=np.concatenate([bodies, none])[order])
    if due is not None:
        # A match is a row at once.
        times, identities = np.concatenate([due.times, none]), [*due.identities, *[""] * len(rows)]
        both = replace(both, due=replace(due, times=times, identities=identities).take(order))
    return both


def _sinks(deliveries: OutgoingDeliveries) -> NDArray[np.int8]:
    return np.zeros(len(deliveries), np.int8) if deliveries.sinks is None else deliveries.sinks


def _timings(deliveries: OutgoingDeliveries) -> Sequence[Timing | None]:
    return [None] * len(deliveries) if deliveries.timings is None else deliveries.timings


class Fanout:
    """Makes the deliveries of an index's matches; facts about each destination are computed once and cached.

    Args:
        route: the route's name.
        index: index of the subscriptions' numbers.
        addresses: addresses of destinations.
    """

    def __init__(self, route: str, index: Index, addresses: Addresses) -> None:
        self._seed = chained(route)
        self._index = index
        self._addresses = addresses
        self._suffixes: dict[int, str] = {}
        self._topics: dict[int, str] = {}
        self._known: dict[int, Address] = {}
        self._wrong: set[int] = set()
        self._feeds_alone: set[int] = set()

    def of(self, sent: _index.Deliveries, rows: RowIds) -> OutgoingDeliveries:
        """Return the deliveries of some matches.

        Args:
            sent: deliveries of the index.
            rows: the batch's row of each of the index's.
        """
        pairs = (sent.subscriptions << 32) | sent.destinations
        if len(pairs) <= _MAX_LISTED_DELIVERIES:
            numbers, first, pair_codes = pairs.tolist(), np.arange(len(pairs)), np.arange(len(pairs))
        else:
            distinct, first, pair_codes = np.unique(pairs, return_index=True, return_inverse=True)
            numbers = distinct.tolist()
        self._learn(sent, numbers, first)
        suffixes = _taken([self._suffixes[number] for number in numbers], pair_codes)
        sinks = timings = None
        if self._addresses.renames:
            known = [self._known[number] for number in numbers]
            if self._addresses.schedules:
                timings = [known[code].timing for code in pair_codes.tolist()]
            topics = _taken([address.topic for address in known], pair_codes)
            sinks = np.array([address.sink for address in known], np.int8)[pair_codes]
        elif len(pairs) <= _MAX_LISTED_DELIVERIES:
            topics = Texts([self._topics[number] for number in sent.destinations.tolist()])
        else:
            topics = Texts(self._index.destinations(sent.destinations))
        if self._feeds_alone and sinks is None:
            alone = [FEED_ALONE if number in self._feeds_alone else 0 for number in numbers]
            sinks = np.array(alone, np.int8)[pair_codes]
        return OutgoingDeliveries(
            rows[sent.rows],
            topics,
            suffixes,
            sinks,
            sent.subscriptions,
            sent.destinations,
            self._problems(numbers, pair_codes),
            timings=timings,
        )

    def _learn(self, sent: _index.Deliveries, numbers: list[int], first: NDArray[np.intp]) -> None:
        """Compute and cache the facts about each new pair of subscription and destination."""
        if len(self._suffixes) > _REMEMBERED:
            self._suffixes.clear()
            self._topics.clear()
            self._known.clear()
            self._wrong.clear()
            self._feeds_alone.clear()
        missing = [at for at, number in enumerate(numbers) if number not in self._suffixes]
        if not missing:
            return
        some = first[missing]
        ids = self._index.subscription_ids(sent.subscriptions[some]).to_pylist()
        destinations = self._index.destinations(sent.destinations[some]).to_pylist()
        for at, subscription_id, destination in zip(missing, ids, destinations, strict=True):
            number = numbers[at]
            self._suffixes[number] = f":{chained(subscription_id, destination, seed=self._seed):X}"
            address = self._addresses.of_delivery(destination, subscription_id)
            if self._addresses.renames or address.problem:
                self._known[number] = address
            self._topics[number & 0xFFFFFFFF] = destination
            if address.sink == FEED_ALONE:
                self._feeds_alone.add(number)
            if address.problem:
                self._wrong.add(number)

    def _problems(self, numbers: list[int], pair_codes: NDArray[np.intp]) -> dict[int, str]:
        if not self._wrong:
            return {}
        wrong = np.fromiter((number in self._wrong for number in numbers), np.bool_, len(numbers))
        concerned = np.flatnonzero(wrong[pair_codes])
        problems = {}
        for number, code in zip(concerned.tolist(), pair_codes[concerned].tolist(), strict=True):
            problems[number] = self._known[numbers[code]].problem or ""
        return problems


def _taken(texts: Sequence[str | None], codes: NDArray[np.intp]) -> Texts:
    """Return the text of each code."""
    return Texts(texts) if len(codes) <= _MAX_LISTED_DELIVERIES else Texts(texts).take(codes)


class OwnTopics:
    """Makes the deliveries of records that keep their own topic.

    Args:
        parts: parts of the ids besides the topic: the route's name, and the placeholder for a subscription.
        addresses: addresses of topics.
    """

    def __init__(self, parts: Sequence[str], addresses: Addresses) -> None:
        self._parts = tuple(parts)
        self._addresses = addresses
        self._suffixes: dict[str, str] = {}
        self._wrong: dict[str | None, str] = {}

    def of(self, rows: RowIds, topics: Sequence[str | None]) -> OutgoingDeliveries:
        """Return a delivery for each of some records."""
        self._learn(set(topics))
        no_subscriptions = np.full(len(rows), NO_SUBSCRIPTION, np.int64)
        suffixes = [None if topic is None else self._suffixes[topic] for topic in topics]
        texts, sinks, timings = topics, None, None
        if self._addresses.schedules:
            timings = [self._addresses.of_topic(topic).timing for topic in topics]
        if self._addresses.named:
            addresses = [self._addresses.of_topic(topic) for topic in topics]
            texts = [address.topic for address in addresses]
            sinks = np.array([address.sink for address in addresses], np.int8)
        problems = {}
        if self._wrong:
            problems = {at: self._wrong[topic] for at, topic in enumerate(topics) if topic in self._wrong}
        return OutgoingDeliveries(
            rows,
            Texts(texts),
            Texts(suffixes),
            sinks,
            no_subscriptions,
            no_subscriptions,
            problems,
            timings=timings,
        )

    def _learn(self, topics: set[str | None]) -> None:
        if len(self._suffixes) > _REMEMBERED:
            self._suffixes.clear()
            self._wrong.clear()
        for topic in topics.difference(self._suffixes):
            problem = self._addresses.of_topic(topic).problem
            if problem is not None:
                self._wrong[topic] = problem
            if topic is not None:
                self._suffixes[topic] = suffix(*self._parts, topic)
