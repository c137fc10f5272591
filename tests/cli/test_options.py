"""Commands whose store is away: each gives up after --timeout with one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo import MongoClient

from turnout.cli.options import loaded_route
from turnout.embedded import free_port
from turnout.errors import StoreUnavailableError
from turnout.history import lineage
from turnout.routes import Route
from turnout.subscriptions.store_url import with_timeout
from turnout.subscriptions.stores import mongo

Turnout = Callable[..., tuple[int, str, str]]

ROUTE = """name: away
source: {{format: nats, servers: "nats://127.0.0.1:{port}", stream: IN}}
subscriptions: {{store: "mongodb://ann:hunter2@127.0.0.1:{port}/db"}}
sink: {{format: nats, servers: "nats://127.0.0.1:{port}"}}
deadLetter: {{topic: dead}}
errors: {{tolerance: all}}
tests: {{subscriptions: store, cases: [{{name: one, record: {{topic: a}}, expect: {{outcome: unmatched}}}}]}}
"""
COMMANDS = {
    "run": ["run", "route.yaml", "--once"],
    "check": ["check", "route.yaml", "--connect"],
    "explain": ["explain", "route.yaml", "--file", "record.json"],
    "replay": ["replay", "route.yaml", "--from", "earliest"],
    "diff": ["diff", "route.yaml", "route.yaml", "--subscriptions-as-of", "1..2"],
    "test": ["test", "route.yaml"],
    "tap": ["tap", "route.yaml"],
    "redrive": ["redrive", "route.yaml"],
    "analyze": ["subscriptions", "analyze", "--against", "route.yaml"],
    "match": ["subscriptions", "match", "a=b", "--store", "mongodb://ann:hunter2@127.0.0.1:{port}/db"],
    "serve": ["serve", ".", "--listen", "127.0.0.1:0", "--store", "mongodb://ann:hunter2@127.0.0.1:{port}/db"],
}


@pytest.fixture
def port(tmp_path: Path) -> int:
    """Return an unused port, named by a route in the current folder."""
    port = free_port()
    (tmp_path / "route.yaml").write_text(ROUTE.format(port=port))
    (tmp_path / "record.json").write_text('{"topic": "a"}')
    return port


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_store_that_is_away(turnout: Turnout, port: int, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command waits as long as it is told, fails before Spark is started, and shows no password."""
    letter = SimpleNamespace(subscription=None)
    monkeypatch.setattr("turnout.history.dead_letters.read", lambda *_, **__: [letter])
    urls: list[str] = []

    def noted(url: str, **waits: Any) -> Any:
        urls.append(url)
        return MongoClient(url, **waits)

    monkeypatch.setattr(mongo, "MongoClient", noted)
    code, out, err = turnout(*(part.format(port=port) for part in command), "--timeout", "0.2")

    assert code == 1
    assert urls
    assert all("serverSelectionTimeoutMS=200" in url for url in urls)
    sentence = rf"MongoDB is away: 127\.0\.0\.1:{port}: .*refused.*"
    if command[0] == "check":
        assert re.search(rf"^failed  subscriptions: {sentence}$", out, re.MULTILINE)
    else:
        # A run says what it waits for first.
        assert re.fullmatch(f"(route away: .*\n)?turnout: {sentence}\n", err)
    assert "hunter2" not in out + err


def test_lineage_waits_as_long_as_it_is_told(turnout: Turnout, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It queries a server before the store."""
    stores: list[str] = []

    def walk(_: str, route: Route, **__: object) -> None:
        assert route.subscriptions is not None
        stores.append(route.subscriptions.store)
        raise StoreUnavailableError("away")

    monkeypatch.setattr(lineage, "walk", walk)

    assert turnout("lineage", "OUT:1", "--route", "route.yaml", "--timeout", "0.2")[0] == 1
    assert stores == [with_timeout(f"mongodb://ann:hunter2@127.0.0.1:{port}/db", 0.2)]


def test_a_route_without_a_timeout_is_as_written(turnout: Turnout, tmp_path: Path, port: int) -> None:
    """The store has limits of its own; a route without a store needs none."""
    file = tmp_path / "route.yaml"
    subscriptions = loaded_route(file, None).subscriptions
    assert subscriptions is not None
    assert subscriptions.store == f"mongodb://ann:hunter2@127.0.0.1:{port}/db"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "mongodb" not in line))

    assert loaded_route(file, 0.2).subscriptions is None
