"""Subjects that a route reads itself from the servers of its sinks, found by querying them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.test_offsets import checkpoint

from turnout.embedded import NatsServer, free_port
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.wire import Connection, create_stream, delete_stream, stream_info
from turnout.routes import Route
from turnout.runtime.endpoints import StreamEnd
from turnout.runtime.preflight import lag_of, make_webhook_streams, preflight, preflight_of_reachable

pytestmark = pytest.mark.jetstream


@pytest.fixture
def streams(nats_server: NatsServer) -> Iterator[str]:
    """A stream of two kinds of subjects, and one that gathers from it, under a name of their own."""
    name = f"R{secrets.token_hex(4)}"
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": name, "subjects": [f"{name}.raw.*", f"{name}.clean.>"], "storage": "memory"})
        create_stream(connection, {"name": f"{name}_ALL", "sources": [{"name": name}], "storage": "memory"})
        yield name
        delete_stream(connection, f"{name}_ALL")
        delete_stream(connection, name)


def reads(source: str, sinks: str, **more: Any) -> dict[str, tuple[str, ...]]:
    options = "".join(f", {name}: {value}" for name, value in more.items())
    return dict(preflight(Route.parse(f"name: r\nsource: {{format: nats, {source}{options}}}\n{sinks}", {})).reads)


def test_on_the_same_server(nats_server: NatsServer, streams: str) -> None:
    """By whatever address; sinks on other servers are not concerned."""
    with NatsServer() as other:
        plan = reads(
            f'servers: "{nats_server.url}", stream: {streams}',
            f'sinks: {{here: {{format: nats, servers: "nats://localhost:{nats_server.port}"}}, '
            f'there: {{format: nats, servers: "{other.url}"}}, files: {{format: json, path: /tmp/x}}}}',
        )

    assert plan == {"here": (f"{streams}.clean.>", f"{streams}.raw.*")}


def test_two_streams_in_one_text(nats_server: NatsServer, streams: str) -> None:
    """Both are read."""
    read = reads(
        f'servers: "{nats_server.url}", stream: "{streams}, {streams}_ALL"',
        f'sink: {{format: nats, servers: "{nats_server.url}"}}',
    )

    assert list(read.values()) == [(f"{streams}.clean.>", f"{streams}.raw.*")]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["{0}.raw.>"], ["{0}.raw.*"]),
        ([">"], ["{0}.clean.>", "{0}.raw.*"]),
        (["{0}.*.a", "x.y"], ["{0}.clean.a", "{0}.raw.a"]),
        (["{0}.*.a, x.y"], ["{0}.clean.a", "{0}.raw.a"]),
    ],
)
def test_with_a_filter(nats_server: NatsServer, streams: str, filters: list[str], expected: list[str]) -> None:
    """Only what the filter lets through: a route may write other subjects into the stream that it reads."""
    plan = reads(
        f'servers: "{nats_server.url}", stream: {streams}',
        f'sink: {{format: nats, servers: "{nats_server.url}"}}',
        filterSubject=[filter_.format(streams) for filter_ in filters],
    )

    assert plan == {"": tuple(one.format(streams) for one in expected)}


def test_a_stream_that_gathers_from_others(nats_server: NatsServer, streams: str) -> None:
    """A message published to one of its origins is stored in it."""
    plan = reads(
        f'servers: "{nats_server.url}", stream: {streams}_ALL',
        f'sink: {{format: nats, servers: "{nats_server.url}"}}',
    )

    assert plan == {"": (f"{streams}.clean.>", f"{streams}.raw.*")}


def test_topics_that_no_stream_stores(nats_server: NatsServer, streams: str) -> None:
    """A sink that names its stream has that one's subjects alone; dead letters to nowhere are noted."""
    sinks = (
        f'sinks: {{any: {{format: nats, servers: "{nats_server.url}"}}, '
        f'one: {{format: nats, servers: "{nats_server.url}", stream: {streams}}}, '
        f'gone: {{format: nats, servers: "nats://127.0.0.1:1"}}, files: {{format: json, path: /tmp/x}}}}\n'
        f'deadLetter: {{topic: "one:{streams}.dead"}}'
    )
    source = f'{{format: nats, servers: "{nats_server.url}", stream: {streams}_ALL}}'

    route, notes = preflight_of_reachable(Route.parse(f"name: r\nsource: {source}\n{sinks}", {}))

    assert dict(route.reads) == dict.fromkeys(("any", "one"), (f"{streams}.clean.>", f"{streams}.raw.*"))
    assert set(route.stored["one"]) == {f"{streams}.clean.>", f"{streams}.raw.*"}
    assert set(route.stored["any"]) >= set(route.stored["one"])
    assert set(route.stored) == {"any", "one"}
    assert len(notes) == 2
    assert notes[0].startswith("the sink gone could not be queried: ")
    assert notes[1].startswith(f"dead letters: 'one:{streams}.dead' is not stored by the stream {streams} of the sink")


def test_a_stream_that_does_not_exist(nats_server: NatsServer, streams: str) -> None:
    """Is said before anything runs, of the source as of a sink."""
    sink = f'sink: {{format: nats, servers: "{nats_server.url}", stream: NOT_{streams}}}'
    with pytest.raises(StreamError, match="not found"):
        reads(f'servers: "{nats_server.url}", stream: {streams}', sink)
    with pytest.raises(StreamError, match="not found"):
        reads(f'servers: "{nats_server.url}", stream: NOT_{streams}', sink)


class Session:
    """A stream with ten messages, created on the second."""

    def ends(self, source: Any) -> dict[str, StreamEnd]:
        return {"S": StreamEnd(1, 11, "2026-01-02T00:00:00Z")}

    def age(self, stream: str, sequence: int, now: float) -> float | None:
        return None


@pytest.mark.parametrize(("created", "waiting"), [("", 3), ("2026-01-02T00:00:00Z", 3), ("2026-01-01T00:00:00Z", 10)])
def test_a_stream_that_was_made_anew_is_unread(tmp_path: Path, created: str, waiting: int) -> None:
    """The position is one of the former stream; a checkpoint of an earlier release does not tell."""
    offset = {"S": 8} | ({"S.created": created} if created else {})

    lag = lag_of(None, checkpoint(tmp_path / "c", json.dumps(offset)), Session(), 0.0)  # type: ignore[arg-type]

    assert lag is not None
    assert lag.records == {"S": waiting}


ROUTE = """
name: hooked
source: {{format: nats, servers: "{url}", stream: IN}}
value: {{format: json}}
subscriptions: {{store: "memory://"}}
sink: {{format: nats, servers: "{url}"}}
{more}
"""


def route(url: str, more: str = "webhooks: {stream: MADE, subject: made}") -> Route:
    return Route.parse(ROUTE.format(url=url, more=more), {})


def test_streams_that_are_missing_are_made(nats_server: NatsServer) -> None:
    """A work queue of deliveries, and a stream of dead letters; the second time nothing changes."""
    make_webhook_streams(route(nats_server.url))
    make_webhook_streams(route(nats_server.url))

    with Connection.open(nats_server.url) as connection:
        waiting, dead = (stream_info(connection, name)["config"] for name in ("MADE", "MADE-dead"))
    assert (waiting["subjects"], waiting["retention"]) == (["made.*.*"], "workqueue")
    assert (dead["subjects"], dead["retention"]) == (["made-dead.>"], "limits")


def test_a_stream_of_the_users_stays(nats_server: NatsServer) -> None:
    """With its limits."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "OWN", "subjects": ["own.>"], "max_msgs": 7})
        make_webhook_streams(route(nats_server.url, "webhooks: {stream: OWN, subject: own}"))

        assert stream_info(connection, "OWN")["config"]["max_msgs"] == 7


def test_nothing_is_made_without_webhooks() -> None:
    """No server is contacted."""
    make_webhook_streams(route("nats://127.0.0.1:1", ""))


def test_a_server_that_does_not_answer() -> None:
    """The error is one sentence."""
    with pytest.raises(ConnectionLostError, match="refused"):
        make_webhook_streams(route(f"nats://127.0.0.1:{free_port()}"))


def test_what_a_run_would_make(nats_server: NatsServer) -> None:
    """Without creating them: the missing ones are named, and nothing is made."""
    asked = route(nats_server.url, "webhooks: {stream: DRY, subject: dry}")
    assert make_webhook_streams(asked, create=False) == ["DRY", "DRY-dead"]
    assert make_webhook_streams(asked) == ["DRY", "DRY-dead"]
    assert make_webhook_streams(asked, create=False) == make_webhook_streams(asked) == []


@pytest.mark.parametrize(
    ("name", "config", "problem"),
    [
        ("TAKEN", {"subjects": ["taken.orders.*"]}, "TAKEN2.*has such subjects|overlap"),
        ("NARROW", {"name": "NARROW", "subjects": ["narrow.a"]}, "the stream NARROW exists and does not take narrow."),
        ("LATE", {"name": "LATE-dead", "subjects": ["other.>"]}, "the stream LATE-dead exists and does not take late-"),
        ("DEAF", {"name": "DEAF", "subjects": ["deaf.>"], "no_ack": True}, "no_ack: true"),
    ],
)
def test_streams_in_the_way(nats_server: NatsServer, name: str, config: dict[str, object], problem: str) -> None:
    """A run and a question before it have the same answer: what stores no deliveries is an error."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": f"{name}2", **config})
    asked = route(nats_server.url, f"webhooks: {{stream: {name}, subject: {name.lower()}}}")

    for create in (False, True):
        with pytest.raises(StreamError, match=problem):
            make_webhook_streams(asked, create=create)


def test_a_user_who_may_not_make_them() -> None:
    """The permission is asked for, and nothing is made."""
    users = """
authorization {users: [
  {user: a, password: a, permissions: {publish: {allow: [">"], deny: ["$JS.API.STREAM.CREATE.>"]}}}
]}
"""
    with NatsServer(config=users) as server:
        url = server.url.replace("nats://", "nats://a:a@")
        with pytest.raises(StreamError, match=r"may not publish to \$JS.API.STREAM.CREATE.MADE"):
            make_webhook_streams(route(url), create=False)
