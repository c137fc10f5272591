"""A server without Spark: its parts, its application, and a client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.fakes import FakeRunner, Run
from turnout.rpc.caller import Tenants
from turnout.server.config import RestartsPart
from turnout.server.health import Health, LossMonitor, Survey
from turnout.server.metrics import Metrics
from turnout.server.rest.app import build_app, guarded
from turnout.server.rest.dependencies import Parts
from turnout.server.routes.events import Events, Recorder
from turnout.server.routes.routes import Routes
from turnout.server.routes.state import State
from turnout.server.routes.supervisor import Phase
from turnout.server.routes.table import Files
from turnout.subscriptions import open_store

ROUTE = """name: {name}
source: {{format: nats, servers: "nats://127.0.0.1:1", stream: {stream}}}
sink: {{format: nats, servers: "nats://127.0.0.1:1"}}
{more}
"""


def route_text(name: str, stream: str = "IN", more: str = "") -> str:
    return ROUTE.format(name=name, stream=stream, more=more)


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Return the condition's first truthy result; fail if there is none within this number of seconds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return value


@dataclass
class Bench:
    """A server's parts over a folder, without sockets."""

    folder: Path
    policy: RestartsPart = field(default_factory=lambda: RestartsPart(max=2, pause=0.01, longest=0.02))
    runner: FakeRunner = field(default_factory=FakeRunner)
    checkpoints: Path | None = None
    variables: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.open()

    def open(self) -> None:
        """Open the state as a starting process does."""
        self.state = State(self.folder / ".state")
        self.events = Events(self.state)
        self.metrics = Metrics()
        self.recorder = Recorder(self.state, self.events, self.metrics)
        files = Files([self.folder])
        self.routes = Routes(
            files, self.runner, self.state, self.recorder, self.policy,
            checkpoints=self.checkpoints, variables=self.variables, resolve=lambda _, to: to,
        )  # fmt: skip
        self.survey = Survey(self.routes.entries)
        self.losses = LossMonitor(self.state, self.routes.entries)
        self.metrics.watch(self.routes.entries, self.survey.lag, self.losses.report, self.routes.slots)
        self.store = open_store("memory://")
        self.parts = Parts(
            routes=self.routes,
            state=self.state,
            events=self.events,
            survey=self.survey,
            metrics=self.metrics,
            health=Health(self.runner, self.survey, routes=self.routes.entries, counted=self.counted),
            losses=self.losses,
            subscriptions=Tenants(self.store),
        )

    def close(self) -> None:
        self.parts.feeds.close()
        self.events.close()
        self.routes.close()
        self.state.close()

    def write(self, name: str, text: str | None = None) -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(route_text(name) if text is None else text, encoding="utf-8")
        return path

    def phase(self, name: str) -> Phase:
        return self.routes.entry(name).status.phase

    def wait_phase(self, name: str, phase: Phase) -> None:
        wait_for(lambda: self.phase(name) == phase)

    def run_of(self, name: str, number: int = 1) -> Run:
        """The run of that number, once it has begun."""
        wait_for(lambda: len(self.runner.runs[name]) >= number)
        return self.runner.runs[name][number - 1]

    def start(self, *names: str) -> None:
        for name in names:
            self.write(name)
        self.routes.scan()
        for name in names:
            self.wait_phase(name, Phase.RUNNING)
            self.run_of(name)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "routes")
    yield bench
    bench.close()


@pytest.fixture
def client(bench: Bench) -> TestClient:
    return client_of(bench)


def client_of(bench: Bench, **gate: Any) -> TestClient:
    return TestClient(guarded(build_app(bench.parts), **gate), base_url="http://127.0.0.1:8090")
