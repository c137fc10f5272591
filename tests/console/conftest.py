"""Pages of a server without Spark: over plain HTTP, and on real sockets with a real nats-server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from tests.console.scene import scene
from tests.server.conftest import Bench, bench
from turnout.console import add_console
from turnout.embedded import NatsServer
from turnout.server.rest.app import build_app, guarded
from turnout.server.security import Authenticator
from turnout.server.serving import RouteServer

if TYPE_CHECKING:
    from selenium import webdriver

__all__ = ["bench", "console_of"]


def console_of(bench: Bench, authenticator: Authenticator | None = None, **client: Any) -> TestClient:
    app = build_app(bench.parts)
    entrance = add_console(app, authenticator)
    gate = guarded(app, authenticator=authenticator, entrance=entrance)
    return TestClient(gate, base_url="http://127.0.0.1:8090", **client)


@pytest.fixture
def console(bench: Bench) -> TestClient:
    return console_of(bench)


@pytest.fixture(scope="package")
def server(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouteServer]:
    """The scene; its tests change nothing that others look at."""
    folder: Path = tmp_path_factory.mktemp("scene")
    with scene(nats_server.url, folder) as server:
        yield server


@pytest.fixture(scope="package")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Browser; its tests are skipped without one."""
    from tests.console.browser import driver_of

    with driver_of(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def shown(server: RouteServer) -> Iterator[TestClient]:
    """A client of the scene's application."""
    import httpx2

    with httpx2.Client(base_url=server.url, timeout=30) as client:
        yield client  # type: ignore[misc]  # it asks as a test client does
