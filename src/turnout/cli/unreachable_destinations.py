"""Destinations that no stream captures, according to the servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from turnout.engine.addresses import Addresses
from turnout.nats.wire import Connection, ConnectionOptions
from turnout.routes.endpoints import NatsSink
from turnout.subjects.pattern import matches

if TYPE_CHECKING:
    from turnout.routes import Route
    from turnout.subscriptions import Subscription

Whose = dict[str, list[str]]
"""Destination → the subscriptions that have it."""


def unread_at(server: str, subscriptions: Iterable[Subscription]) -> Whose:
    """Return the destinations that no stream of this server captures; a sink's name before a subject is ignored.

    Raises:
        TurnoutError: the server cannot be asked.
    """
    subjects = _subjects_of({"servers": server})
    unread = {
        name: ids for name, ids in _whose(subscriptions).items() if not _is_read(name.rpartition(":")[2], subjects)
    }
    return dict(sorted(unread.items()))


def unread_of(route: Route, subscriptions: Iterable[Subscription]) -> Whose:
    """Return the destinations that no stream captures at the route's NATS sinks; other sinks are not checked.

    Raises:
        TurnoutError: a server cannot be asked.
    """
    addresses = Addresses(route)
    subjects = {
        place: _subjects_of(sink.options())
        for place, sink in enumerate(route.sinks.values())
        if isinstance(sink, NatsSink)
    }
    unread: Whose = {}
    for name, ids in sorted(_whose(subscriptions).items()):
        address = addresses.of(name)
        if address.problem or (address.sink in subjects and not _is_read(address.topic or "", subjects[address.sink])):
            unread[name] = ids
    return unread


def _whose(subscriptions: Iterable[Subscription]) -> Whose:
    whose: defaultdict[str, list[str]] = defaultdict(list)
    for subscription in subscriptions:
        for destination in dict.fromkeys(subscription.destinations):
            whose[destination].append(subscription.id)
    return whose


def _is_read(subject: str, patterns: tuple[frozenset[str], tuple[str, ...]]) -> bool:
    exact, wild = patterns
    return subject in exact or any(matches(pattern, subject) for pattern in wild)


def _subjects_of(options: Mapping[str, str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the subjects that the server's streams capture: literal subjects, and patterns with wildcards."""
    subjects: set[str] = set()
    offset = 0
    with Connection.open(ConnectionOptions.from_mapping(options)) as connection:
        while True:
            answer = connection.api("STREAM.LIST", {"offset": offset})
            streams = answer.get("streams") or []
            offset += len(streams)
            for stream in streams:
                subjects.update(stream["config"].get("subjects") or ())
            if not streams or offset >= answer.get("total", 0):
                break
    wild = tuple(sorted(subject for subject in subjects if "*" in subject or ">" in subject))
    return frozenset(subjects.difference(wild)), wild
