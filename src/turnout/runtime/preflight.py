"""Facts from a route's servers: before a record is read, for runs and observers, and the lag of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from turnout.engine.deliveries import Addresses
from turnout.errors import TurnoutError
from turnout.routes import Route
from turnout.routes.endpoints import Source
from turnout.runtime.endpoints import SourceSession, adapter_of
from turnout.runtime.offsets import committed
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


def make_webhook_streams(route: Route, *, create: bool = True) -> list[str]:
    """Make the stream of waiting deliveries and that of dead letters, or their Kafka topics, unless they exist.

    Args:
        route: the route; without webhooks nothing is made.
        create: False to find out whether a run could make them, by the same questions.

    Returns:
        The names of those that were missing.

    Raises:
        ConfigError: the sink stores no deliveries.
        ConnectionLostError: the server cannot be reached.
        StreamError: the server refuses one; another stream may have its subjects, or an existing one not those.
    """
    webhooks = route.webhooks
    if webhooks is None:
        return []
    sink = list(route.sinks.values())[webhooks.sink_index(list(route.sinks))]
    adapter = adapter_of(sink)
    # An adapter of a package may know a run's call alone.
    return adapter.make_delivery_streams(webhooks) if create else adapter.make_delivery_streams(webhooks, create=False)


def make_delay_stream(route: Route, *, create: bool = True) -> list[str]:
    """Make the stream of messages that wait for a leader, unless it exists or the route has none.

    Args:
        route: the route.
        create: False to find out whether a run could make it.

    Returns:
        Its name if it was missing.

    Raises:
        ConnectionLostError: the server cannot be reached.
        StreamError: the server refuses it; another stream may have its subjects, or an existing one not those.
    """
    part = route.scheduled
    if part is None or part.stream is None:
        return []
    name = part.sink_name({name: sink.format for name, sink in route.sinks.items()})
    return [] if name is None else adapter_of(route.sinks[name]).make_delay_stream(part, create=create)


_MOST_AGES: Final = 16
"""Maximum number of ages to request: those of the streams or partitions with the largest lags."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of a route.

    Attributes:
        records: by stream, the sequences that are not read yet, or by ``topic:partition``, the offsets. With a filter
            not all of them are for this route; of offsets some may hold no record.
        seconds: the age of the oldest of them; 0 where there is none, None where the server does not say.
    """

    records: dict[str, int] = field(default_factory=dict)
    seconds: float | None = 0.0


def lag_of(source: Source, checkpoint: Path | None, session: SourceSession, now: float) -> Lag | None:
    """Return the lag of a route with a source of streams; None without a checkpoint on this machine.

    Args:
        source: the route's.
        checkpoint: its folder.
        session: at the source's server.
        now: seconds since the epoch.

    Raises:
        StreamError: a stream does not exist.
        ConnectionLostError: the connection is lost.
    """
    ends = session.ends(source)
    if checkpoint is None:
        return None
    done = committed(checkpoint)
    # Of a stream that was made anew nothing is read yet.
    created = {name: identity.created for name, identity in done.identities.items()}
    known = {name for name, end in ends.items() if created.get(name, end.created) == end.created}
    positions = {name: max(end.first, done.sequence(name) if name in known else 0) for name, end in ends.items()}
    records = {stream: max(0, end.next - positions[stream]) for stream, end in ends.items()}
    ages: list[float] = []
    for stream in sorted((name for name, count in records.items() if count), key=records.__getitem__)[-_MOST_AGES:]:
        age = session.age(stream, positions[stream], now)
        if age is None:
            return Lag(records, None)
        ages.append(age)
    return Lag(records, max(ages, default=0.0))
