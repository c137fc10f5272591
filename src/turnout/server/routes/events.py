"""Events of routes, for listeners."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from turnout.engine.counts import Counts
from turnout.runtime.offsets import Progress
from turnout.runtime.preflight import Lag
from turnout.server.routes.state import MinutePace, State, StoredEvent
from turnout.server.routes.supervisor import Phase, RouteStatus

_BEHIND = 1000
"""Maximum lag of a listener in events; one further behind is disconnected, and may reconnect with its last event."""

_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a route; progress events are not stored and have no id."""

    kind: str
    route: str
    at: float
    detail: Mapping[str, object]
    id: int | None = None

    @classmethod
    def of(cls, stored: StoredEvent) -> Event:
        """Return the event of a stored row."""
        return cls(stored.kind, stored.route, stored.at, stored.detail, stored.id)


class Events:
    """Store and distributor of events. `publish` may be called from any thread.

    Args:
        state: stores all events but progress.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._listeners: set[_Listener] = set()
        self._progress_sent_at: dict[str, float] = {}
        self._closed = False

    def publish(self, kind: str, route: str, detail: Mapping[str, object]) -> None:
        """Store an event, and send it to all current listeners."""
        self._send(Event.of(self._state.add_event(kind, route, detail)))

    def progress(self, route: str, detail: Mapping[str, object]) -> None:
        """Send progress to the current listeners, at most once a second for each route."""
        now = time.monotonic()
        if now - self._progress_sent_at.get(route, -_PROGRESS_SECONDS) >= _PROGRESS_SECONDS:
            self._progress_sent_at[route] = now
            self._send(Event("route.progress", route, time.time(), detail))

    def _send(self, event: Event) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener.offer(event)

    async def listen(self, after: int | None = None, quiet: float = 15.0) -> AsyncIterator[Event | None]:
        """Yield the stored events after that id, then new ones; None after *quiet* seconds without an event.

        After an id that this server never gave out, all stored events are yielded.
        """
        listener = _Listener(asyncio.get_running_loop())
        with self._lock:
            if self._closed:
                return
            self._listeners.add(listener)
        try:
            last = 0
            if after is not None:
                # An id that was not given out yet is of a state folder that is no more: everything is new here.
                newest = await asyncio.to_thread(self._state.newest_event)
                last = after if after <= newest else 0
                # What is stored from here on is offered to the listener as well, in its order among what is not stored.
                while last < newest and (page := await asyncio.to_thread(self._state.events, last)):
                    for stored in page:
                        last = stored.id
                        yield Event.of(stored)
            async for event in listener.events(quiet):
                if event is None or event.id is None or event.id > last:
                    yield event
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def close(self) -> None:
        """End all listeners."""
        with self._lock:
            self._closed = True
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener.end()


class _Listener:
    """Listener in an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def offer(self, event: Event) -> None:
        self._offer(event)

    def end(self) -> None:
        self._offer(None)

    def _offer(self, event: Event | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._put_bounded, event)

    def _put_bounded(self, event: Event | None) -> None:
        # A client that stops reading stops `events` as well, which could not let it go.
        if event is None or self._queue.qsize() < _BEHIND:
            self._queue.put_nowait(event)

    async def events(self, quiet: float) -> AsyncIterator[Event | None]:
        while self._queue.qsize() < _BEHIND:
            try:
                event = await asyncio.wait_for(self._queue.get(), quiet)
            except TimeoutError:
                yield None
                continue
            if event is None:
                return
            yield event


_log = logging.getLogger("turnout.server")


class CountsOfRoutes(Protocol):
    """Record counters for Prometheus."""

    def progressed(self, name: str, more: Counts, progress: Progress) -> None:
        """Record a finished micro-batch."""
        ...


class Recorder:
    """Observer of all routes.

    Args:
        state: keeps the counts of each minute, whenever `flush` is called.
        events: distributes events to listeners.
        metrics: count.
        clock: seconds since the epoch.
    """

    def __init__(
        self, state: State, events: Events, metrics: CountsOfRoutes, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._state = state
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._unwritten: dict[tuple[str, int], Counts] = {}
        self._pace: dict[tuple[str, int], MinutePace] = {}

    def phase_changed(self, name: str, status: RouteStatus) -> None:
        """Record a phase change in the log and as an event."""
        worse = status.phase in (Phase.FAILED, Phase.WAITING)
        reason = f": {status.reason}" if status.reason else ""
        _log.log(logging.WARNING if worse else logging.INFO, "route %s is %s%s", name, status.phase, reason)
        detail = {"state": str(status.phase), "reason": status.reason, "retry_at": status.retry_at}
        self._events.publish("route.state", name, detail)

    def progressed(self, name: str, more: Counts, progress: Progress) -> None:
        """Record progress: metrics at once, an event at most once a second, history at the next flush."""
        self._metrics.progressed(name, more, progress)
        self._events.progress(name, {"batch": progress.batch, "counts": more.as_dict()})
        minute = self._minute()
        with self._lock:
            self._unwritten[name, minute] = self._unwritten.get((name, minute), Counts()) + more
        self._keep_pace(name, MinutePace(minute, 1, progress.batch_seconds))

    def lagged(self, name: str, lag: Lag) -> None:
        """Record the measured lag of a route."""
        self._keep_pace(
            name, MinutePace(self._minute(), lag_records=sum(lag.records.values()), lag_seconds=lag.seconds)
        )

    def _minute(self) -> int:
        return int(self._clock() // 60) * 60

    def _keep_pace(self, name: str, pace: MinutePace) -> None:
        with self._lock:
            before = self._pace.get((name, pace.at))
            self._pace[name, pace.at] = pace if before is None else before + pace

    def record(self, kind: str, name: str, **detail: object) -> None:
        """Record another event of a route."""
        _log.info("route %s: %s %s", name, kind, detail or "")
        self._events.publish(kind, name, detail)

    def flush(self) -> None:
        """Write the counts, and the pace, that are not written yet."""
        with self._lock:
            unwritten, self._unwritten = self._unwritten, {}
            unwritten_pace, self._pace = self._pace, {}
        if unwritten or unwritten_pace:
            self._state.add_history(unwritten, unwritten_pace)
