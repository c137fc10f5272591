"""Destinations that no stream captures, according to the servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from turnout.engine.addresses import Addresses
from turnout.nats.wire import Connection
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.endpoints.nats import stored_subjects
from turnout.subjects.pattern import matches

if TYPE_CHECKING:
    from turnout.routes import Route
    from turnout.subscriptions import Subscription

Subscribers = dict[str, list[str]]
"""Destination → the subscriptions that have it."""


def unread_at(server: str, subscriptions: Iterable[Subscription]) -> Subscribers:
    """Return the destinations that no stream of this server captures; a sink's name before a subject is ignored.

    Raises:
        TurnoutError: the server cannot be queried.
    """
    with Connection.open(server) as connection:
        subjects = _split(stored_subjects(connection))
    unread = {
        name: ids
        for name, ids in _subscribers(subscriptions).items()
        if not _is_read(name.rpartition(":")[2], subjects)
    }
    return dict(sorted(unread.items()))


def unread_of(route: Route, subscriptions: Iterable[Subscription]) -> Subscribers:
    """Return the destinations that no stream captures at the route's NATS sinks; other sinks are not checked.

    Raises:
        TurnoutError: a server cannot be queried.
    """
    addresses = Addresses(_knowing(route))
    subscribers = _subscribers(subscriptions)
    return {name: subscribers[name] for name in sorted(subscribers) if addresses.of(name).problem is not None}


def _knowing(route: Route) -> Route:
    stored = {name: adapter_of(sink).stored_topics() for name, sink in route.sinks.items()}
    return replace(route, stored={name: tuple(sorted(names)) for name, names in stored.items() if names is not None})


def _subscribers(subscriptions: Iterable[Subscription]) -> Subscribers:
    subscribers: defaultdict[str, list[str]] = defaultdict(list)
    for subscription in subscriptions:
        for destination in dict.fromkeys(subscription.destinations):
            subscribers[destination].append(subscription.id)
    return subscribers


def _is_read(subject: str, patterns: tuple[frozenset[str], tuple[str, ...]]) -> bool:
    exact, wild = patterns
    return subject in exact or any(matches(pattern, subject) for pattern in wild)


def _split(subjects: frozenset[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the literal subjects, and the patterns with wildcards."""
    wild = tuple(sorted(subject for subject in subjects if "*" in subject or ">" in subject))
    return subjects.difference(wild), wild
