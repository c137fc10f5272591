"""The demo's job in a server, whose console shows its counts, its flow, its matches and its failures."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from turnout.console import add_console
from turnout.demo.flights import check_stop
from turnout.errors import Mistake
from turnout.routes import Route
from turnout.runtime.leases import Permit
from turnout.runtime.offsets import Progress, RunResult
from turnout.runtime.open_splits import SlotUse
from turnout.server.config import ServerConfig
from turnout.server.routes.supervisor import Phase, Runner
from turnout.server.serving import RouteServer, RunnerOf, spark_runner

_LOOK_SECONDS = 0.2
_AT_REST = (Phase.DONE, Phase.FAILED)


def with_values(text: str, variables: Mapping[str, str]) -> str:
    """Return the text of a route with some variables replaced by their values, so that readers see the values.

    >>> with_values('servers: "${NATS_URL:-nats://127.0.0.1:4222}"', {"NATS_URL": "nats://127.0.0.1:1"})
    'servers: "nats://127.0.0.1:1"'
    """

    def value(match: re.Match[str]) -> str:
        return variables.get(match[1], match[0])

    return re.sub(r"\$\{(\w+)(?::-[^}]*)?\}", value, text)


class Showing:
    """Server that runs the demo's route, and shows it until it is stopped.

    Attributes:
        url: URL of the console.
    """

    def __init__(self, server: RouteServer, watched: _Watched) -> None:
        self._server = server
        self._watched = watched
        self.url = server.url

    def result(self, stop: threading.Event) -> RunResult:
        """Return the result of the run once it has ended.

        Raises:
            TurnoutError: the run failed, or was stopped before its end.
        """
        while not (self._watched.ended.is_set() and self._at_rest()):
            stop.wait(_LOOK_SECONDS)
            check_stop(stop)
        # The console is to show the whole run, not a state of some seconds ago.
        self._server.recorder.flush()
        if self._watched.failure is not None:
            raise self._watched.failure
        assert self._watched.result is not None
        return self._watched.result

    def _at_rest(self) -> bool:
        return all(entry.status.phase in _AT_REST for entry in self._server.routes.entries())

    def serve(self, stop: threading.Event) -> None:
        """Serve the console until the event is set."""
        self._server.wait(stop)


@contextmanager
def showing(
    text: str,
    store: str,
    work: Path,
    *,
    master: str,
    on_progress: Callable[[Progress], None],
    runner_of: RunnerOf = spark_runner,
) -> Iterator[Showing]:
    """The server at work, on a free port of this machine.

    Args:
        text: text of the route's file.
        store: store of the subscriptions.
        work: the folder for everything.
        master: Spark's.
        on_progress: called for each micro-batch.
        runner_of: makes what runs the route.
    """
    routes = work / "routes"
    routes.mkdir(exist_ok=True)
    (routes / "flights.yaml").write_text(text, encoding="utf-8")
    config = ServerConfig.model_validate(
        {
            "listen": "127.0.0.1:0",
            "store": store,
            "grpc": {"listen": "127.0.0.1:0"},
            "state": work / "server",
            "restarts": {"max": 0},
            "spark": {"master": master, "log": work / "spark.log"},
            "logLevel": "warning",
        }
    )
    watched: list[_Watched] = []

    def watching(config: ServerConfig, state: Path, entries: list[Route]) -> Runner:
        watched.append(_Watched(runner_of(config, state, entries), on_progress))
        return watched[0]

    with RouteServer(config, [routes], runner_of=watching, pages=add_console) as server:
        yield Showing(server, watched[0])


class _Watched:
    """Runner that signals the end of its first run."""

    def __init__(self, runner: Runner, on_progress: Callable[[Progress], None]) -> None:
        self._runner = runner
        self._on_progress = on_progress
        self.ended = threading.Event()
        self.result: RunResult | None = None
        self.failure: Exception | None = None

    def mistakes(self, route: Route) -> list[Mistake]:
        return self._runner.mistakes(route)

    def guard(self, permit: Callable[[], Permit]) -> Callable[[], bool]:
        return self._runner.guard(permit)

    def run(self, route: Route, *, stop: threading.Event, on_progress: Callable[[Progress], None]) -> RunResult:
        def both(progress: Progress) -> None:
            if not self.ended.is_set():
                self._on_progress(progress)
            on_progress(progress)

        try:
            result = self._runner.run(route, stop=stop, on_progress=both)
        except Exception as failure:
            self.failure = self.failure or failure
            raise
        else:
            self.result = self.result or result
            return result
        finally:
            self.ended.set()

    def slots(self) -> SlotUse | None:
        return self._runner.slots()

    def alive(self) -> bool:
        return self._runner.alive()

    def close(self) -> None:
        self._runner.close()
