"""Dispatchers of webhooks and leaders of delay streams inside a server: one for each route that has any."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from turnout.base.background import Background
from turnout.base.histogram import Histogram
from turnout.routes import Route

if TYPE_CHECKING:
    from turnout.delivery.dispatcher import Dispatcher
    from turnout.delivery.failures import DeliveryCounts, DeliveryEvent
    from turnout.delivery.lane import EndpointStatus
    from turnout.delivery.queue import DeadDelivery
    from turnout.delivery.scheduled import DelayLeader, ScheduledCounts

_LOOK_SECONDS = 1.0
_LONGEST_PAUSE = 30.0
_SLOW_STOP_SECONDS = 10.0
"""Seconds for which a stopped dispatcher may end without a word."""

_HUNG_STOP_SECONDS = 60.0
"""Seconds after which a route continues without the end of a stopped dispatcher."""

_CLOSE_SECONDS = 20.0
"""Seconds that the end of the server waits for all dispatchers; Kubernetes kills after 30."""

_log = logging.getLogger(__name__)

Ready = Callable[["Dispatcher"], None]
"""Called with a dispatcher, whose counts continue to grow."""

Deliver = Callable[[Route, threading.Event, Ready], None]
"""Delivers the messages for a route's webhooks until the event is set."""


def deliver_route(route: Route, stop: threading.Event, ready: Ready) -> None:
    """Deliver the messages for a route's webhooks until *stop* is set.

    Raises:
        TurnoutError: its failure.
    """
    from turnout.delivery.dispatcher import deliver

    asyncio.run(deliver(route, stop, ready=ready))


@dataclass(slots=True)
class _Running:
    """Dispatcher of one version of a route, on a thread that starts it again after a failure."""

    route: Route
    work: Background
    dispatcher: Dispatcher | None = None
    stopping: float | None = None
    """Time at which it was stopped, of `time.monotonic`; None while it is not."""
    is_named_slow: bool = False


@dataclass(frozen=True, slots=True)
class WebhookState:
    """State of a route's dispatcher.

    Attributes:
        is_up: whether it delivers.
        waiting: deliveries that wait; None if unknown.
        oldest_seconds: age of the oldest of them, 0 without any; None if unknown.
        endpoints: number of its endpoints by their state: closed, open or disabled.
    """

    is_up: bool
    waiting: int | None
    oldest_seconds: float | None
    endpoints: Mapping[str, int]


def dead_letters(route: Route, count: int) -> list[DeadDelivery]:
    """Return the last dead letters of a route's deliveries, the newest first; see `letters_of` for errors."""
    from turnout.delivery.dispatcher import letters_of

    return asyncio.run(letters_of(route, count))


def redrive(route: Route, positions: Collection[str] | None = None) -> int:
    """Move dead letters back among the deliveries, all or those at some positions, and return their number."""
    from turnout.delivery import dispatcher

    return asyncio.run(dispatcher.redrive(route, positions))


def enable(route: Route, destination: str) -> bool:
    """Let a disabled endpoint have requests; return False if it was not disabled."""
    from turnout.delivery import dispatcher

    return bool(asyncio.run(dispatcher.enable(route, [destination])))


class RouteWork(ABC):
    """Keeps work running for each route that needs it, by the newest version of the route.

    Args:
        routes: gives the routes by name.
        name: name of the work.
        worker: noun for what does it, in messages.
    """

    def __init__(self, routes: Callable[[], dict[str, Route]], name: str, worker: str) -> None:
        self._routes = routes
        self._worker = worker
        self._running: dict[str, _Running] = {}
        self._looking = Background(name, self.look, every=_LOOK_SECONDS)

    @abstractmethod
    def is_wanted(self, route: Route) -> bool:
        """Return True for a route that has such work."""

    @abstractmethod
    def _of(self, route: Route) -> _Running:
        """Return the work of a route, which is not started."""

    def start(self) -> None:
        """Start the thread that looks after the routes."""
        self._looking.start()

    def close(self) -> None:
        """Stop the work of all routes, and wait a while for its end; undelivered messages stay in their streams."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        self._looking.stop()
        if not self._looking.join(_CLOSE_SECONDS):
            _log.error("the look after the routes' %ss has not ended in %.0f s", self._worker, _CLOSE_SECONDS)
        # It may still add one.
        left = dict(self._running)
        for running in left.values():
            running.work.stop()
        for name, running in left.items():
            if not running.work.join(max(0.0, deadline - time.monotonic())):
                text = (
                    "route %s: its %s has not ended in %.0f s and is left: the messages that it is delivering are not"
                    " acknowledged, and are delivered again after the next start"
                )
                _log.error(text, name, self._worker, _CLOSE_SECONDS)

    def look(self) -> None:
        """Start the work of new versions, and stop that of removed or changed routes."""
        wanted = {name: route for name, route in self._routes().items() if self.is_wanted(route)}
        for name, running in tuple(self._running.items()):
            if wanted.get(name) != running.route:
                running.work.stop()
                if not running.work.is_alive() or self._is_abandoned(name, running):
                    del self._running[name]
        for name, route in wanted.items():
            if name not in self._running:
                running = self._running[name] = self._of(route)
                running.work.start()

    def _is_abandoned(self, name: str, running: _Running) -> bool:
        """Return True if stopped work hangs for so long that the route continues without its end.

        Its deliveries are not acknowledged, and come again to the next one.
        """
        now = time.monotonic()
        if running.stopping is None:
            running.stopping = now
        seconds = now - running.stopping
        if seconds > _HUNG_STOP_SECONDS:
            text = "route %s: the former version's %s has not ended in %.0f s; deliveries continue without it"
            _log.error(text, name, self._worker, seconds)
            return True
        if seconds > _SLOW_STOP_SECONDS and not running.is_named_slow:
            running.is_named_slow = True
            text = "route %s: the %s of a former version has not ended in %.0f s; deliveries wait for its end"
            _log.warning(text, name, self._worker, seconds)
        return False


class WebhookDeliveries(RouteWork):
    """Keeps a dispatcher running for each route with webhooks, by the newest version of the route.

    A paused route still delivers its stored messages.

    Args:
        routes: gives the routes by name.
        deliver: delivers the messages of one.
        publish: takes an event: its kind, the route and the details.
    """

    def __init__(
        self,
        routes: Callable[[], dict[str, Route]],
        deliver: Deliver = deliver_route,
        publish: Callable[[str, str, Mapping[str, object]], None] = lambda *_: None,
    ) -> None:
        super().__init__(routes, "webhooks", "dispatcher")
        self._deliver = deliver
        self._publish = publish
        self._counts: dict[str, list[DeliveryCounts]] = {}

    def is_wanted(self, route: Route) -> bool:
        """Return True for a route with webhooks."""
        return route.webhooks is not None

    def totals(self) -> dict[str, dict[str, int]]:
        """Return the counts of each route since the server began, by their names."""
        totals: dict[str, dict[str, int]] = {}
        for name, several in tuple(self._counts.items()):
            each = [asdict(counts) for counts in tuple(several)]
            totals[name] = {key: sum(counts[key] for counts in each) for key in (each[0] if each else ())}
        return totals

    def states(self) -> dict[str, WebhookState]:
        """Return the state of each route's dispatcher, by the names of routes."""
        found = {}
        for name, running in tuple(self._running.items()):
            dispatcher = running.dispatcher
            states = [one.state for one in (() if dispatcher is None else dispatcher.endpoints())]
            backlog = None if dispatcher is None else dispatcher.backlog
            oldest = None if backlog is None or backlog.oldest is None else time.time() - backlog.oldest.timestamp()
            found[name] = WebhookState(
                dispatcher is not None and not self.problem(name),
                None if backlog is None else backlog.waiting,
                0.0 if backlog is not None and not backlog.waiting else oldest,
                {state: states.count(state) for state in ("closed", "open", "disabled")},
            )
        return found

    def endpoints(self, name: str) -> list[EndpointStatus] | None:
        """Return the state of a route's endpoints; None while it has no dispatcher."""
        running = self._running.get(name)
        dispatcher = None if running is None else running.dispatcher
        return None if dispatcher is None else dispatcher.endpoints()

    def problem(self, name: str) -> str:
        """Return why a route's dispatcher does not deliver now, as a sentence; "" if it does, or if it has none."""
        running = self._running.get(name)
        if running is None:
            return ""
        if running.stopping is not None and (seconds := time.monotonic() - running.stopping) > _SLOW_STOP_SECONDS:
            return f"the dispatcher of the former version has not ended for {seconds:.0f} s, and delivers nothing new"
        dispatcher = running.dispatcher
        return running.work.status().problem or ("" if dispatcher is None else dispatcher.problem)

    def _of(self, route: Route) -> _Running:
        """Return the dispatcher of a route, which is not started."""

        def deliver() -> None:
            try:
                self._deliver(route, running.work.stopped, ready)
            finally:
                running.dispatcher = None

        def report(event: DeliveryEvent) -> None:
            detail = {"destination": event.destination, "tenant": event.tenant, "reason": event.reason}
            self._publish(f"webhook.{event.kind}", route.name, detail)

        def ready(dispatcher: Dispatcher) -> None:
            running.dispatcher = dispatcher
            dispatcher.report = report
            self._counts.setdefault(route.name, []).append(dispatcher.counts)

        running = _Running(route, Background(f"webhooks of {route.name}", deliver, longest=_LONGEST_PAUSE))
        return running


@dataclass(frozen=True, slots=True)
class ScheduledState:
    """State of a route's delay stream.

    Attributes:
        messages: numbers by outcome since the server began.
        delay: how long after their times messages were stored.
        pending: messages that wait; None on a server that does not lead.
        late_seconds: for how long the next of them has been due; None likewise.
    """

    messages: Mapping[str, int]
    delay: Histogram
    pending: int | None
    late_seconds: float | None


class ScheduledDeliveries(RouteWork):
    """Keeps a candidate for the leader running for each route with a delay stream.

    A paused route still delivers what waits.

    Args:
        routes: gives the routes by name.
    """

    def __init__(self, routes: Callable[[], dict[str, Route]]) -> None:
        super().__init__(routes, "scheduled messages", "leader")
        self._counts: dict[str, list[ScheduledCounts]] = {}
        self._latest: dict[str, DelayLeader] = {}

    def is_wanted(self, route: Route) -> bool:
        """Return True for a route with a delay stream."""
        return route.scheduled is not None and route.scheduled.stream is not None

    def states(self) -> dict[str, ScheduledState]:
        """Return the state of each route's delay stream as far as this server knows it, by the names of routes."""
        found = {}
        for name, several in tuple(self._counts.items()):
            leader, counts = self._latest[name], list(several)
            leads = leader.leads
            found[name] = ScheduledState(
                {key: sum(getattr(one, key) for one in counts) for key in ("published", "cancelled", "refused")},
                sum((one.late for one in counts), Histogram()),
                leader.pending if leads else None,
                leader.late_seconds if leads else None,
            )
        return found

    def _of(self, route: Route) -> _Running:
        """Return the leader of a route, which is not started."""

        def ready(leader: DelayLeader) -> None:
            self._latest[route.name] = leader
            self._counts.setdefault(route.name, []).append(leader.counts)

        def publish() -> None:
            from turnout.delivery.scheduled import publish_scheduled

            asyncio.run(publish_scheduled(route, running.work.stopped, ready))

        running = _Running(route, Background(f"scheduled messages of {route.name}", publish, longest=_LONGEST_PAUSE))
        return running
