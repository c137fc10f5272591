"""Resolution of destinations: sink, topic, and reachability."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from turnout.routes import Route
from turnout.routes.endpoints import Endpoint, KafkaSink, KafkaSource, NatsSink
from turnout.routes.reader import DEFAULT_SINK
from turnout.routes.values import listed
from turnout.subjects import matches
from turnout.subscriptions.destinations import Rights, problem_of
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.java.regex_characters import JavaRegexError

_KAFKA_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_KAFKA_OWN = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_REMEMBERED = 200_000
"""How many destinations are remembered; beyond them all are forgotten."""


@dataclass(frozen=True, slots=True)
class Address:
    """Sink and topic of one destination.

    Attributes:
        sink: its index among the route's sinks.
        topic: what it is called there.
        problem: why nothing can be sent there; None where something can.
    """

    sink: int
    topic: str | None
    problem: str | None = None


class Addresses:
    """Finds and checks the addresses of a route, each different one once.

    Args:
        route: whose sinks, and what may be reached in them.
    """

    def __init__(self, route: Route) -> None:
        self.sinks = list(route.sinks)
        self.named = self.sinks != [DEFAULT_SINK]
        self._endpoints = list(route.sinks.values())
        self._rights = [
            Rights(getattr(sink, "allow", None), _reads(route, name, sink)) for name, sink in route.sinks.items()
        ]
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
            address = Address(0, destination, problem) if problem else self._resolved(destination)
            self._destinations[destination] = address
        return address

    def of_topic(self, topic: str | None) -> Address:
        """Return the address of a record that keeps its own topic; sinks of files accept any topic, also none."""
        address = self._topics.get(topic)
        if address is None:
            if len(self._topics) > _REMEMBERED:
                self._topics.clear()
            address = self._topics[topic] = self._resolved(topic)
        return address

    def split(self, text: str) -> tuple[int, str]:
        """Return the index of the sink that a text names, and the topic; index 0 for a text without a sink name."""
        name, colon, rest = text.partition(":")
        if self.named and colon and name in self.sinks:
            return self.sinks.index(name), rest
        return 0, text

    def _resolved(self, text: str | None) -> Address:
        if text is None:
            problem = "a message needs a topic" if isinstance(self._endpoints[0], NatsSink | KafkaSink) else None
            return Address(0, None, problem)
        name, colon, _ = text.partition(":")
        if self.named and colon and name not in self.sinks:
            return Address(0, text, f"names no sink: there is no {name!r}, only {', '.join(self.sinks)}")
        sink, topic = self.split(text)
        return Address(sink, topic, self._problem(sink, topic))

    def _problem(self, sink: int, topic: str) -> str | None:
        match self._endpoints[sink]:
            case NatsSink():
                problem = problem_of(topic)
                if problem is None and self._takes_dead_letters(sink, topic):
                    problem = "is not allowed: the route's dead letters go there, and nothing else"
            case KafkaSink():
                problem = _kafka_problem(topic)
            case _:
                # The name of a topic is a value in a file; who may write which is all that can be asked.
                return self._rights[sink].refusal(topic) if self._rights[sink].allow is not None else None
        return problem or self._rights[sink].refusal(topic)

    def _takes_dead_letters(self, sink: int, topic: str) -> bool:
        """Return True if a message there could pass for one of the route's dead letters."""
        if self._dead_letters is None or topic != self._dead_letters[1]:
            return False
        sinks = (self._endpoints[sink], self._endpoints[self._dead_letters[0]])
        servers = [set(listed(sink.servers)) for sink in sinks if isinstance(sink, NatsSink)]
        return len(servers) == len(sinks) and not servers[0].isdisjoint(servers[1])


def _kafka_problem(topic: str) -> str | None:
    if not _KAFKA_TOPIC.fullmatch(topic):
        return "cannot be published to: a Kafka topic has up to 249 letters, digits, '.', '_' and '-'"
    return "is not allowed: it is the broker's own" if topic in _KAFKA_OWN else None


def _reads(route: Route, name: str, sink: Endpoint) -> Callable[[str], bool] | None:
    """Return a test for topics of this sink that the route itself reads; None if it reads none."""
    source = route.source
    if isinstance(source, KafkaSource) and isinstance(sink, KafkaSink):
        if set(listed(source.servers)).isdisjoint(listed(sink.servers)):
            return None
        return _subscribed(source)
    patterns = route.reads.get(name, ())
    if not patterns:
        return None
    return lambda subject: any(matches(pattern, subject) for pattern in patterns)


def _subscribed(source: KafkaSource) -> Callable[[str], bool] | None:
    if source.topic_pattern is not None:
        try:
            return JavaRegex.of(source.topic_pattern).matches
        except JavaRegexError:
            # Spark says so when it reads.
            return None
    return frozenset(listed(source.topics)).__contains__
