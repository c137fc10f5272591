"""Resolution of destinations: sink, topic, and reachability.

Which subjects and topics a subscription may name: `turnout.subjects.pattern.Rights`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from turnout.routes import Route
from turnout.routes.endpoints import Sink
from turnout.routes.endpoints.tables import MATCHES
from turnout.routes.reader import DEFAULT_SINK
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

FEED_ALONE: Final = -1
"""In the place of a sink's index: the subscription's feed has the message, and no sink gets it."""

_REMEMBERED = 200_000
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
            if len(self._destinations) > _REMEMBERED:
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
            if len(self._topics) > _REMEMBERED:
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
