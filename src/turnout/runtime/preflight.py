"""Preflight: facts from a route's servers before a record is read, for runs and observers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from turnout.engine.addresses import Addresses
from turnout.errors import TurnoutError
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.secrets import masked_url

_Answer = TypeVar("_Answer")


def preflight(route: Route) -> Route:
    """Check that the route's servers are reachable and have the streams, before Spark is started.

    Only servers of NATS and Kafka are queried.

    Returns:
        The route, with its own source's subjects on the servers of its sinks.

    Raises:
        ConnectionLostError: a server cannot be reached.
        StreamError: a stream does not exist.
    """
    streams = adapter_of(route.source).source_streams()
    fed_back = [name for name, sink in route.sinks.items() if adapter_of(sink).feeds(streams)]
    return replace(route, reads=dict.fromkeys(fed_back, () if streams is None else streams.subjects))


def with_stored_topics(route: Route) -> tuple[Route, tuple[str, ...]]:
    """Request the topics that the servers of the sinks store, for operations without delivery; a run gets refusals.

    Subject mappings of a server's accounts are not known here.

    Returns:
        The route, for which a delivery that no stream stores is undeliverable; and a sentence for each server that
        gives no answer, and for dead letters that no stream stores.
    """
    asking = _ServerQueries()
    knowing = asking.stored(route)
    return knowing, (*asking.notes, *_unstored_letters(knowing))


def looped(route: Route) -> tuple[Route, tuple[str, ...]]:
    """Make the `preflight` as far as the servers answer.

    Returns:
        The route, and a sentence for each server that gives no answer.
    """
    asking = _ServerQueries()
    return asking.looped(route), asking.notes


def preflight_of_reachable(route: Route) -> tuple[Route, tuple[str, ...]]:
    """Make the `preflight` as far as the servers answer, and request the topics that they store.

    Returns:
        As `with_stored_topics`.
    """
    asking = _ServerQueries()
    knowing = asking.stored(asking.looped(route))
    return knowing, (*asking.notes, *_unstored_letters(knowing))


class _ServerQueries:
    """Questions to servers; those without an answer are noted."""

    def __init__(self) -> None:
        self._unasked: dict[str, dict[str, None]] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each failure, with the endpoints that had it."""
        return tuple(f"{' and '.join(names)} could not be queried: {reason}" for reason, names in self._unasked.items())

    def looped(self, route: Route) -> Route:
        """Return the route, with its own source's subjects on the sinks that answer."""
        streams = self._answer("the source", adapter_of(route.source).source_streams)
        if self._unasked:
            return route
        feeding = [
            name
            for name, sink in route.sinks.items()
            if self._answer(_named(name), partial(adapter_of(sink).feeds, streams))
        ]
        return replace(route, reads=dict.fromkeys(feeding, () if streams is None else streams.subjects))

    def stored(self, route: Route) -> Route:
        """Return the route, which knows the topics that the sinks that answer store."""
        answers = {
            name: self._answer(_named(name), adapter_of(sink).stored_topics) for name, sink in route.sinks.items()
        }
        return replace(
            route, stored={name: tuple(sorted(topics)) for name, topics in answers.items() if topics is not None}
        )

    def _answer(self, name: str, question: Callable[[], _Answer]) -> _Answer | None:
        """Return the answer, or None and take a note."""
        try:
            return question()
        except (TurnoutError, OSError) as failure:
            self._unasked.setdefault(masked_url(str(failure)), {})[name] = None
            return None


def _named(sink: str) -> str:
    return f"the sink {sink}" if sink else "the sink"


def _unstored_letters(route: Route) -> Iterator[str]:
    """Yield a note if the first dead letter would end a run."""
    if route.dead_letter is None:
        return
    addresses = Addresses(replace(route, dead_letter=None, reads={}))
    address = addresses.of(route.dead_letter.topic)
    if address.problem is not None and list(route.sinks)[address.sink] in route.stored:
        yield f"dead letters: {route.dead_letter.topic!r} {address.problem}, so that the first of them ends a run"
