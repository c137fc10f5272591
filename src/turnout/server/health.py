"""Health of a server and of each of its routes, the lag of the routes, and shares of lost records above limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from turnout.base.background import Background, statuses
from turnout.errors import ConnectionLostError, StreamError, TurnoutError
from turnout.routes.endpoints import Endpoint, Source
from turnout.routes.limits import HealthPart
from turnout.runtime.endpoints import SourceSession, adapter_of
from turnout.runtime.preflight import Lag, lag_of
from turnout.secrets import masked_url
from turnout.server.errors import RouteNotFoundError
from turnout.server.routes.state import Losses, State
from turnout.server.routes.supervisor import Phase, Runner
from turnout.server.routes.table import RouteEntry
from turnout.subscriptions.store import within

_AT_WORK = (Phase.STARTING, Phase.RUNNING, Phase.WAITING, Phase.STOPPING)
"""Phases in which a server that is away is a problem: a route that is paused, or has failed, does not need it."""


class Survey(Background):
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
        super().__init__("survey of the routes' servers", self.measure, every=pause, longest=30.0)

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


def reach_all(endpoints: Iterable[Endpoint]) -> bool:
    """Return True if the servers of all endpoints answer."""
    with ExitStack() as resources, suppress(TurnoutError):
        servers = _Servers(resources)
        for endpoint in endpoints:
            # One that refuses answers.
            with suppress(StreamError):
                servers.reach(endpoint)
        return True
    return False


WINDOW_SECONDS: Final = 15 * 60
_PAST_SECONDS: Final = 24 * 3600
_LOOK_SECONDS: Final = 15.0
_PAST_LOOK_SECONDS: Final = 300.0
"""Seconds between two sums over the many minutes of the day before."""
_MIN_RECORDS: Final = 100
"""Records, or deliveries, below which a share of the window says nothing."""
_FEW_PAST: Final = 1000
_RISE: Final = 0.2
"""Rise of a share above the day before from which on it is a problem."""

DEFAULT_LIMITS: Final = HealthPart.model_validate(
    {"deadLettered": 0.5, "discarded": 0.5, "undeliverable": 0.5, "unmatched": 1.0}
)

_WORDS: Final = {
    "dead_lettered": "of its records became dead letters",
    "discarded": "of its records failed and were discarded",
    "undeliverable": "of its deliveries were accepted by no sink",
    "unmatched": "of its records were matched by no subscription",
}


@dataclass(frozen=True, slots=True)
class LossReport:
    """Losses of a route.

    Attributes:
        shares: by kind of loss, the share in the window; absent where too few records were read.
        problems: a sentence for each share that is too large.
    """

    shares: Mapping[str, float]
    problems: tuple[str, ...]


NOTHING_LOST: Final = LossReport({}, ())


def loss_report(limits: HealthPart, recent: Losses, past: Losses) -> LossReport:
    """Return the shares of the window, and those that reach a limit or exceed the day before."""
    shares: dict[str, float] = {}
    problems: list[str] = []
    for kind, words in _WORDS.items():
        limit = getattr(limits, kind)
        share = recent.share(kind, _MIN_RECORDS)
        if share is None:
            continue
        shares[kind] = share
        if limit is False or not share:
            continue
        before = past.share(kind, _FEW_PAST)
        if limit is not None and (share > limit or share == 1.0):
            problems.append(f"{share:.0%} {words} in the last 15 minutes; its limit is {limit:.0%}")
        elif before is not None and share > before + _RISE:
            problems.append(f"{share:.0%} {words} in the last 15 minutes, {before:.0%} in the day before")
    return LossReport(shares, tuple(problems))


class LossMonitor:
    """Loss reports of all routes, updated every few seconds.

    Args:
        state: has the counts of each minute.
        entries: gives the routes.
        limits: limits of the server, for routes without their own.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        state: State,
        entries: Callable[[], list[RouteEntry]],
        limits: HealthPart | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._entries = entries
        self._limits = DEFAULT_LIMITS if limits is None else limits.over(DEFAULT_LIMITS)
        self._clock = clock
        self._reports: Mapping[str, LossReport] = {}
        self._past: Mapping[str, Losses] = {}
        self._checked_at = self._past_checked_at = float("-inf")
        self._lock = threading.Lock()

    def report(self, name: str) -> LossReport:
        """Return the losses of a route; empty before the first check."""
        return self._reports.get(name, NOTHING_LOST)

    def look_if_due(self) -> None:
        """Look, unless that was done some seconds ago."""
        if self._clock() - self._checked_at >= _LOOK_SECONDS:
            self.check()

    def check(self) -> None:
        """Compare the last minutes of all routes with their limits, and with the day before."""
        with self._lock:
            now = self._checked_at = self._clock()
            begin = now - WINDOW_SECONDS
            if now - self._past_checked_at >= _PAST_LOOK_SECONDS:
                self._past_checked_at = now
                self._past = self._state.losses(begin - _PAST_SECONDS, begin)
            recent = self._state.losses(begin, now)
            self._reports = {
                entry.name: loss_report(
                    entry.version.route.health.over(self._limits),
                    recent.get(entry.name, Losses()),
                    self._past.get(entry.name, Losses()),
                )
                for entry in self._entries()
                if entry.version is not None
            }


_PAUSE_SECONDS: Final = 2.0
_STORE_SECONDS: Final = 5.0
"""Seconds that a check waits for the store."""

_SILENCE_SECONDS: Final = 30.0
"""A check that takes longer is a problem itself."""


EVERY_ROUTE: Final = "*"
"""In place of names of routes: all of them."""

_UNWELL: Final = (Phase.WAITING, Phase.FAILED, Phase.INVALID)


def _dispatcher_of(route: str) -> str:
    """Return the name of the work that delivers a route's webhooks."""
    return f"webhooks of {route}"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of the server's parts, or of a route's.

    Attributes:
        problems: a sentence for each missing part; by ``route <name>`` or part.
    """

    problems: dict[str, str]

    @property
    def ready(self) -> bool:
        """True if nothing is missing."""
        return not self.problems


class Check(Background):
    """Check that runs every few seconds on its own thread, with its last result.

    Args:
        name: name of the part.
        ask: returns the problem, or None.
        clock: seconds that only grow.
    """

    def __init__(self, name: str, query: Callable[[], str | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._query = query
        self._clock = clock
        self._answer: str | None = None
        self._asked_at: float | None = None
        super().__init__(f"check of the {name}", self.run, every=_PAUSE_SECONDS, longest=_PAUSE_SECONDS)

    @property
    def problem(self) -> str | None:
        """Return the known problem, if any, without waiting."""
        asked_at = self._asked_at
        silence = 0.0 if asked_at is None else self._clock() - asked_at
        return f"the {self._name} has not answered for {silence:.0f} s" if silence > _SILENCE_SECONDS else self._answer

    def run(self) -> None:
        """Run the check now."""
        self._asked_at = self._clock()
        self._answer = self._query()
        self._asked_at = None


class Health:
    """Last known health of a server's parts; requests for it do not wait.

    A route that has failed, or whose server is away, does not make the server unready: it answers, the other routes
    work, and no restart of the process helps. Routes that are named to count do.

    Args:
        runner: has to be alive.
        survey: knows which servers are away.
        store: raises a TurnoutError while the store of subscriptions is away; None where there is none.
        routes: the routes.
        counted: names of routes whose health is the server's as well; ``*`` for all.
    """

    def __init__(
        self,
        runner: Runner,
        survey: Survey,
        store: Callable[[], object] | None = None,
        routes: Callable[[], Iterable[RouteEntry]] = list,
        counted: Collection[str] = (),
    ) -> None:
        self._runner = runner
        self._survey = survey
        self._store = store
        self._routes = routes
        self._counted = counted
        self._entries: dict[str, RouteEntry] = {}
        # Asking for the routes waits while files are read, which requests do not.
        self._routes_check = Check("list of routes", self._find_routes)
        self._spark_check = Check("Spark session", self._spark_problem)
        self._store_check = Check("store", self._store_problem)

    def start(self) -> None:
        """Start the checks, each on its own thread, so that a slow one does not delay the other."""
        self._routes_check.start()
        self._spark_check.start()
        self._store_check.start()

    def close(self) -> None:
        """Stop the checks, without waiting for pending results."""
        self._spark_check.stop()
        self._store_check.stop()
        self._routes_check.stop()

    def check(self) -> None:
        """Run all checks now."""
        self._routes_check.run()
        self._spark_check.run()
        self._store_check.run()

    def live(self) -> str | None:
        """Return the reason why the process must be restarted; None if it need not be."""
        ended = next((status.problem for status in statuses() if not status.is_alive), None)
        return self._spark_check.problem or ended

    def ready(self) -> Readiness:
        """Return the readiness of the server, with the missing parts."""
        entries = self._entries
        problems: dict[str, str] = {}
        for name in entries if EVERY_ROUTE in self._counted else self._counted:
            entry = entries.get(name)
            problems |= {f"route {name}": "there is no such route"} if entry is None else self._problems(entry)
        if not self._survey.has_measured:
            problems["routes"] = "the server is starting"
        of_routes = {_dispatcher_of(name) for name in entries}
        problems |= {
            f"thread {status.name}": status.problem
            for status in statuses()
            if status.problem and status.name not in of_routes
        }
        problems_of = {"spark": self._spark_check.problem, "store": self._store_check.problem}
        return Readiness(problems | {part: problem for part, problem in problems_of.items() if problem is not None})

    def route(self, name: str) -> Readiness:
        """Return the health of a route: its own state, its servers, and its dispatcher. A paused route is well.

        Raises:
            RouteNotFoundError: there was none of that name at the last check.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise RouteNotFoundError(name)
        return Readiness(self._problems(entry))

    def _problems(self, entry: RouteEntry) -> dict[str, str]:
        problems = {}
        status = entry.status
        if status.phase in _UNWELL:
            # Without the reason: a probe has no token, and a reason may quote a record.
            problems[f"route {entry.name}"] = f"is {status.phase}; its page, and /v1/routes, have the reason"
        away = self._survey.problems.get(entry.name)
        if away is not None:
            problems[f"route {entry.name}"] = away
        dispatcher = _dispatcher_of(entry.name)
        threads = (status for status in statuses() if status.problem and status.name == dispatcher)
        return problems | {f"thread {status.name}": status.problem for status in threads}

    def _find_routes(self) -> None:
        self._entries = {entry.name: entry for entry in self._routes()}

    def _spark_problem(self) -> str | None:
        return None if self._runner.alive() else "the Spark session has ended"

    def _store_problem(self) -> str | None:
        if self._store is None:
            return None
        try:
            with within(_STORE_SECONDS):
                self._store()
        except TurnoutError as failure:
            return str(failure)
        return None
