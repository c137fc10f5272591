"""Subscriptions of a run before the first micro-batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnout.conditions import kiwi
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, create_stream
from turnout.routes import Route
from turnout.runtime.revisions import RunMatching
from turnout.subscriptions import Subscription, open_store

pytestmark = pytest.mark.jetstream

CONFIG = """
jetstream: {}
no_auth_user: reader
authorization: {users: [
  {user: admin, password: secret},
  {user: reader, password: reader, permissions: {publish: {deny: "$JS.API.STREAM.MSG.GET.>"}}}
]}
"""
ROUTE = """
name: sampled
source: {{format: nats, servers: "{url}", stream: S, user: {user}}}
value: {{format: json}}
subscriptions: {{store: "{store}", metadata: {{town: value.town}}}}
sink: {{format: nats, servers: "{url}"}}
"""
ADDRESS = "127.0.0.1"


@pytest.mark.parametrize(("user", "learns"), [("admin, password: secret", True), ("reader, password: reader", False)])
def test_many_subscriptions_are_indexed_by_a_sample(tmp_path: Path, monkeypatch: Any, user: str, learns: bool) -> None:
    """The sample affects only speed: without permission to read messages there is none, and nothing fails."""
    store = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    opened = open_store(store)
    subscriptions = (Subscription(destinations=("a",), condition=kiwi("town", f"T{n}")) for n in range(1500))
    opened.create_many(subscriptions)
    opened.close()
    seen: list[Any] = []
    with NatsServer(config=CONFIG) as server:
        with Connection.open(server.url.replace("//", "//admin:secret@")) as connection:
            create_stream(connection, {"name": "S", "subjects": ["s.>"], "storage": "memory"})
            for n in range(30):
                connection.request(f"s.{n}", json.dumps({"town": f"T{n}"}).encode())
        route = Route.parse(ROUTE.format(url=server.url, user=user, store=store), {})
        matching = RunMatching(route, ADDRESS, tmp_path / "index")
        learn = matching.revisions.learn
        monkeypatch.setattr(
            matching.revisions, "learn", lambda sample: learn(lambda keys: seen.extend(sample(keys)) or seen)
        )
        try:
            matching.learn()
            index = matching.index_location.open(matching.revisions.newest())
        finally:
            matching.close()

    assert sorted(one["town"] for one in seen) == (sorted(f"T{n}" for n in range(30)) if learns else [])
    assert len(index) == 1500
    assert not (tmp_path / "index" / "writer.lock").exists()


def test_the_sample_is_taken_of_each_stream_of_one_text(tmp_path: Path, monkeypatch: Any) -> None:
    """Streams and filters with commas are several."""
    store = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    with open_store(store) as opened:
        opened.create_many(Subscription(destinations=("a",), condition=kiwi("town", f"T{n}")) for n in range(1500))
    seen: list[Any] = []
    with NatsServer() as server:
        with Connection.open(server.url) as connection:
            for name in ("A", "B"):
                create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
                connection.request(f"{name}.x", json.dumps({"town": name}).encode())
        text = ROUTE.format(url=server.url, user="x", store=store).replace("stream: S, user: x", 'stream: "A, B"')
        text = text.replace('"A, B"', '"A, B", filterSubject: "A.>, B.>"')
        matching = RunMatching(Route.parse(text, {}), ADDRESS, tmp_path / "index")
        monkeypatch.setattr(matching.revisions, "learn", lambda sample: seen.extend(sample(["town"])))
        try:
            matching.learn()
        finally:
            matching.close()

    assert sorted(one["town"] for one in seen) == ["A", "B"]
