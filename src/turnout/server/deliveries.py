"""Dispatchers of webhooks inside a server: one for each route that has any."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from turnout.errors import TurnoutError, message_of
from turnout.routes import Route

if TYPE_CHECKING:
    from turnout.delivery.counts import DeliveryCounts
    from turnout.delivery.dispatcher import Dispatcher
    from turnout.delivery.letters import DeadDelivery
    from turnout.delivery.status import EndpointStatus

_log = logging.getLogger("turnout.server")
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 5.0

Ready = Callable[["Dispatcher"], None]
"""Called with a dispatcher, whose counts continue to grow."""

Deliver = Callable[[Route, threading.Event, Ready], None]
"""Delivers the messages for a route's webhooks until the event is set."""


def deliver_route(route: Route, stop: threading.Event, ready: Ready) -> None:
    """Deliver the messages for a route's webhooks until *stop* is set.

    Raises:
        TurnoutError: its failure.
    """
    from turnout.delivery.service import deliver

    asyncio.run(deliver(route, stop, ready=ready))


@dataclass(slots=True)
class _Running:
    """Thread with the dispatcher of one version of a route."""

    route: Route
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    dispatcher: Dispatcher | None = None


def dead_letters(route: Route, count: int) -> list[DeadDelivery]:
    """Return the last dead letters of a route's deliveries, the newest first; see `letters_of` for errors."""
    from turnout.delivery.service import letters_of

    return asyncio.run(letters_of(route, count))


def redrive(route: Route, positions: Collection[str] | None = None) -> int:
    """Move dead letters back among the deliveries, all or those at some positions, and return their number."""
    from turnout.delivery import service

    return asyncio.run(service.redrive(route, positions))


def enable(route: Route, destination: str) -> bool:
    """Let a disabled endpoint have requests; return False if it was not disabled."""
    from turnout.delivery import service

    return bool(asyncio.run(service.enable(route, [destination])))


class WebhookDeliveries:
    """Keeps a dispatcher running for each route with webhooks, by the newest version of the route.

    A paused route still delivers its stored messages.

    Args:
        routes: gives the routes by name.
        deliver: delivers the messages of one.
    """

    def __init__(self, routes: Callable[[], dict[str, Route]], deliver: Deliver = deliver_route) -> None:
        self._routes = routes
        self._deliver = deliver
        self._counts: dict[str, list[DeliveryCounts]] = {}
        self._running: dict[str, _Running] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="turnout-webhooks", daemon=True)

    def start(self) -> None:
        """Start the thread that looks after the routes."""
        self._thread.start()

    def close(self) -> None:
        """Stop all dispatchers; undelivered messages stay in their streams."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()
        for running in self._running.values():
            running.stop.set()
        for running in self._running.values():
            if running.thread is not None:
                running.thread.join()

    def totals(self) -> dict[str, dict[str, int]]:
        """Return the counts of each route since the server began, by their names."""
        totals: dict[str, dict[str, int]] = {}
        for name, several in tuple(self._counts.items()):
            each = [asdict(counts) for counts in tuple(several)]
            totals[name] = {key: sum(counts[key] for counts in each) for key in (each[0] if each else ())}
        return totals

    def endpoints(self, name: str) -> list[EndpointStatus] | None:
        """Return the state of a route's endpoints; None while it has no dispatcher."""
        running = self._running.get(name)
        dispatcher = None if running is None else running.dispatcher
        return None if dispatcher is None else dispatcher.endpoints()

    def look(self) -> None:
        """Start dispatchers of new versions, and stop those of removed or changed routes."""
        wanted = {name: route for name, route in self._routes().items() if route.webhooks is not None}
        for name, running in tuple(self._running.items()):
            if wanted.get(name) != running.route:
                running.stop.set()
                if running.thread is None or not running.thread.is_alive():
                    del self._running[name]
        for name, route in wanted.items():
            if name not in self._running:
                running = self._running[name] = _Running(route)
                running.thread = threading.Thread(
                    target=self._keep_delivering, args=(running,), name=f"turnout-webhooks-{name}", daemon=True
                )
                running.thread.start()

    def _keep_looking(self) -> None:
        while not self._ending.is_set():
            self.look()
            self._ending.wait(_LOOK_SECONDS)

    def _keep_delivering(self, running: _Running) -> None:
        while not running.stop.is_set():
            try:
                self._deliver(running.route, running.stop, partial(self._ready, running))
            except (TurnoutError, OSError) as failure:
                name, why = running.route.name, message_of(failure)
                _log.warning("route %s: webhooks: %s; next try in %g s", name, why, _RETRY_SECONDS)
                running.dispatcher = None
                running.stop.wait(_RETRY_SECONDS)

    def _ready(self, running: _Running, dispatcher: Dispatcher) -> None:
        running.dispatcher = dispatcher
        self._counts.setdefault(running.route.name, []).append(dispatcher.counts)
