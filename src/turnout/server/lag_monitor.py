"""Periodic survey of the routes' lag and of the reachability of their servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from turnout.base.background import Background
from turnout.errors import ConnectionLostError, StreamError, TurnoutError
from turnout.routes.endpoints import Endpoint, Source
from turnout.runtime.endpoints import SourceSession, adapter_of
from turnout.runtime.lag import Lag, lag_of
from turnout.secrets import masked_url
from turnout.server.route_entry import RouteEntry
from turnout.server.supervisor import Phase

_AT_WORK = (Phase.STARTING, Phase.RUNNING, Phase.WAITING, Phase.STOPPING)
"""Phases in which a server that is away is a problem: a route that is paused, or has failed, does not need it."""


class Survey:
    """Results of the last survey: lags of NATS streams and Kafka partitions; other servers are only reached.

    Args:
        entries: gives the routes.
        pause: seconds between two looks.
        clock: seconds since the epoch.
        observer: hears of each lag that a look finds.
    """

    def __init__(
        self,
        entries: Callable[[], list[RouteEntry]],
        *,
        pause: float = 2.0,
        clock: Callable[[], float] = time.time,
        observer: Callable[[str, Lag], None] | None = None,
    ) -> None:
        self._entries = entries
        self._clock = clock
        self._observer = observer
        self._lags: dict[str, Lag] = {}
        self._problems: dict[str, str] = {}
        self._measured = threading.Event()
        self._background = Background("survey of the routes' servers", self.measure, every=pause, longest=30.0)

    def start(self) -> None:
        """Start the thread of the survey."""
        self._background.start()

    def close(self) -> None:
        """Stop the survey, and wait for its thread."""
        self._background.close()

    @property
    def has_measured(self) -> bool:
        """True after the first survey."""
        return self._measured.is_set()

    def lag(self, name: str) -> Lag | None:
        """Return the lag of a route; None if it is unknown."""
        return self._lags.get(name)

    @property
    def problems(self) -> dict[str, str]:
        """Reasons why routes cannot work, by route name: unreachable servers."""
        return self._problems

    def measure(self) -> None:
        """Contact all servers, each once."""
        lags: dict[str, Lag] = {}
        problems: dict[str, str] = {}
        with ExitStack() as resources:
            servers = _Servers(resources)
            for entry in self._entries():
                if entry.version is None:
                    continue
                try:
                    for sink in entry.version.route.sinks.values():
                        servers.reach(sink)
                    lag = self._lag(entry, servers)
                except TurnoutError as failure:
                    problems |= {entry.name: masked_url(str(failure))} if entry.status.phase in _AT_WORK else {}
                else:
                    lags |= {} if lag is None else {entry.name: lag}
        self._lags, self._problems = lags, problems
        if self._observer is not None:
            for name, lag in lags.items():
                self._observer(name, lag)
        self._measured.set()

    def _lag(self, entry: RouteEntry, servers: _Servers) -> Lag | None:
        assert entry.version is not None
        source = entry.version.route.source
        if not adapter_of(source).reports_ends:
            servers.reach(source)
            return None
        return lag_of(source, entry.checkpoint, servers.session(source), self._clock())


class _Servers:
    """Servers contacted in one survey, with the results."""

    def __init__(self, resources: ExitStack) -> None:
        self._resources = resources
        self._sessions: dict[tuple[str, ...], SourceSession] = {}
        self._reached: dict[tuple[str, ...], TurnoutError | None] = {}

    def reach(self, endpoint: Endpoint) -> None:
        adapter = adapter_of(endpoint)
        key = adapter.identity
        if key not in self._reached:
            self._reached[key] = None
            try:
                adapter.ping()
            except (ConnectionLostError, StreamError) as failure:
                self._reached[key] = failure
        if (before := self._reached[key]) is not None:
            raise before

    def session(self, source: Source) -> SourceSession:
        self.reach(source)
        adapter = adapter_of(source)
        key = adapter.identity
        if key not in self._sessions:
            self._sessions[key] = self._resources.enter_context(adapter.session())
        return self._sessions[key]
