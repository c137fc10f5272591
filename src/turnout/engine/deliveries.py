"""Deliveries of a batch: destinations as addresses, and for each message its record, topic and suffix of its id.

Which subjects and topics a subscription may name: `turnout.subjects.pattern.Rights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.engine.messages import suffix
from turnout.records.types import ArrowBatch, RowIds, Strings
from turnout.routes import Route
from turnout.routes.endpoints import Sink
from turnout.routes.endpoints.tables import MATCH_SIGN, MATCHES
from turnout.routes.reader import DEFAULT_SINK
from turnout.subjects.arrays import chained
from turnout.subjects.pattern import MAX_BYTES, Rights, SourceIndex
from turnout.subscriptions.destinations import (
    FEED,
    Timing,
    delivery_subject,
    is_url,
    is_webhook,
    problem_of,
    split_timing,
    webhook_problem,
)

if TYPE_CHECKING:
    from turnout.engine.scheduling import Due
    from turnout.subscriptions import index as _index
    from turnout.subscriptions.index import Index

FEED_ALONE: Final = -1
"""In the place of a sink's index: the subscription's feed has the message, and no sink gets it."""

_REMEMBERED_TOPICS = 200_000
"""Maximum number of cached destinations; the cache is cleared when it is full."""


@dataclass(frozen=True, slots=True)
class Address:
    """Sink and topic of one destination.

    Attributes:
        sink: its index among the route's sinks; `FEED_ALONE` for the subscription's feed.
        topic: its name in the sink.
        problem: why nothing can be sent there; None where something can.
        webhook: endpoint of a delivery, whose topic depends on the subscription; None for other destinations.
        timing: time of its messages; None if they are delivered at once.
    """

    sink: int
    topic: str | None
    problem: str | None = None
    webhook: str | None = None
    timing: Timing | None = None


class Addresses:
    """Finds and checks the addresses of a route, each different one once.

    Args:
        route: route with the sinks, and the permitted topics in them.
    """

    def __init__(self, route: Route) -> None:
        self.sinks = [name for name in route.sinks if name != MATCHES]
        self.named = self.sinks != [DEFAULT_SINK]
        self._webhooks = route.webhooks
        self._scheduled = route.scheduled
        self._at_once = route.at_once
        self.schedules = route.scheduled is not None
        self.renames = self.named or route.webhooks is not None or self.schedules
        self._has_feeds = route.subscriptions is not None and route.subscriptions.feeds
        self._endpoints = list(route.sinks.values())
        self._rights = [
            Rights(sink.allow, route.source.returned_by(sink, route.reads.get(name, ())), sink.prefixes)
            for name, sink in route.sinks.items()
        ]
        self._stored = [SourceIndex.build(route.stored[name]) if name in route.stored else None for name in route.sinks]
        self._dead_letters = None if route.dead_letter is None else self.split(route.dead_letter.topic)
        self._destinations: dict[str, Address] = {}
        self._topics: dict[str | None, Address] = {}

    def of(self, destination: str) -> Address:
        """Return the address of a subscription's destination."""
        address = self._destinations.get(destination)
        if address is None:
            if len(self._destinations) > _REMEMBERED_TOPICS:
                self._destinations.clear()
            problem = problem_of(destination)
            if destination == FEED:
                problem = None if self._has_feeds else "is the subscription's feed, and the route stores no feeds"
                address = Address(0 if problem else FEED_ALONE, None, problem)
            elif is_url(destination) or (self._webhooks is not None and is_webhook(destination)):
                address = self._webhook(destination, problem or webhook_problem(destination))
            elif problem:
                address = Address(0, destination, problem)
            else:
                target, timing, _ = split_timing(destination)
                address = self._timed(self._resolved(target), timing)
            self._destinations[destination] = address
        return address

    def _webhook(self, destination: str, problem: str | None) -> Address:
        webhooks = self._webhooks
        if webhooks is None:
            return Address(0, destination, problem or "is a webhook, and the route has no webhooks block")
        sink = webhooks.sink_index(self.sinks)
        subject = delivery_subject(webhooks.subject, destination, "")
        return Address(sink, subject, problem or self._problem(sink, subject, is_delivery=True), destination)

    def of_delivery(self, destination: str, subscription: str) -> Address:
        """Return the address of a destination; in the topic of a delivery to a webhook is the subscription."""
        address = self.of(destination)
        if address.webhook is None or address.problem or self._webhooks is None:
            return address
        topic = delivery_subject(self._webhooks.subject, address.webhook, subscription)
        if len(topic) > MAX_BYTES:
            problem = f"cannot be delivered: with the subscription's id the subject has {len(topic):,} bytes"
            return Address(address.sink, topic, problem)
        return Address(address.sink, topic)

    def of_topic(self, topic: str | None) -> Address:
        """Return the address of a record that keeps its own topic; sinks of files accept any topic, also none."""
        address = self._topics.get(topic)
        if address is None:
            if len(self._topics) > _REMEMBERED_TOPICS:
                self._topics.clear()
            address = self._topics[topic] = self._timed(self._resolved(topic), None)
        return address

    def _timed(self, address: Address, timing: Timing | None) -> Address:
        """Return an address with a time of its own, or that of its sink."""
        sink, scheduled = self._endpoints[address.sink], self._scheduled
        chosen = timing or sink.timing
        if self._at_once or chosen is None:
            return address
        problem = address.problem
        if scheduled is None:
            problem = problem or "has a time, and the route no scheduled block"
        elif not sink.can_wait or (scheduled.stream is None and sink.format != "nats"):
            cure = f"needs a sink of format nats or scheduled.stream, found {sink.format}"
            problem = problem or f"has a time, and {cure}"
        else:
            # The table of matches is last, and has no name here.
            names = zip(self.sinks, self._endpoints, strict=False)
            name = scheduled.sink_name({name: end.format for name, end in names})
            holder = address.sink if scheduled.stream is None or name is None else self.sinks.index(name)
            own = self._rights[holder].own
            if own is not None and own(f"{scheduled.subject}.x.x"):
                problem = problem or f"would wait below {scheduled.subject}, which the route itself reads"
        return replace(address, timing=chosen, problem=problem)

    def split(self, text: str) -> tuple[int, str]:
        """Return the index of the sink that a text names, and the topic; index 0 for a text without a sink name."""
        name, colon, rest = text.partition(":")
        if self.named and colon and name in self.sinks:
            return self.sinks.index(name), rest
        return 0, text

    def _resolved(self, text: str | None) -> Address:
        if text is None:
            problem = "a message needs a topic" if self._endpoints[0].topics_are_addresses else None
            return Address(0, None, problem)
        name, colon, _ = text.partition(":")
        if self.named and colon and name not in self.sinks:
            return Address(0, text, f"names no sink: there is no {name!r}, only {', '.join(self.sinks)}")
        sink, topic = self.split(text)
        return Address(sink, topic, self._problem(sink, topic))

    def _problem(self, index: int, topic: str, *, is_delivery: bool = False) -> str | None:
        sink, rights = self._endpoints[index], self._rights[index]
        if not sink.topics_are_addresses:
            # The name of a topic is a value in a file; only the permission to write it can be checked.
            return rights.refusal(topic) if rights.allow is not None else None
        is_key = is_delivery and sink.keys_name_deliveries
        problem = None if is_key else sink.topic_problem(topic)
        if problem is None and self._takes_dead_letters(sink, topic):
            problem = "is not allowed: the route's dead letters go there, and nothing else"
        if problem is None and not is_delivery and self._takes_deliveries(index, topic):
            problem = "is not allowed: deliveries to webhooks go there, and nothing else"
        if problem is None and self._takes_waiting(sink, topic):
            problem = "is not allowed: messages that are delivered later wait there, and nothing else"
        problem = problem or rights.refusal(topic)
        stored = self._stored[index]
        if problem is None and not is_key and stored is not None and stored.first(topic, topic.split(".")) is None:
            name = getattr(sink, "stream", None)
            return "is stored by no stream" if name is None else f"is not stored by the stream {name} of the sink"
        return problem

    def _takes_deliveries(self, index: int, topic: str) -> bool:
        """Return True if a message there could pass for a delivery to a webhook, or for a dead one."""
        webhooks = self._webhooks
        if webhooks is None:
            return False
        sink = self._endpoints[webhooks.sink_index(self.sinks)]
        is_topic = sink.keys_name_deliveries and topic in webhooks.topics
        if not is_topic and not topic.startswith((f"{webhooks.subject}.", f"{webhooks.dead_subject}.")):
            return False
        return sink is self._endpoints[index] or sink.shares_letters_with(self._endpoints[index])

    def _takes_waiting(self, sink: Sink, topic: str) -> bool:
        """Return True if a message there could pass for one that waits."""
        return self._scheduled is not None and sink.format == "nats" and topic.startswith(f"{self._scheduled.subject}.")

    def _takes_dead_letters(self, sink: Sink, topic: str) -> bool:
        """Return True if a message there could pass for one of the route's dead letters."""
        if self._dead_letters is None or topic != self._dead_letters[1]:
            return False
        holder = self._endpoints[self._dead_letters[0]]
        return holder is sink or holder.shares_letters_with(sink)


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
