"""Streams of deliveries are made once, and left as they are."""

from __future__ import annotations

import pytest

from turnout.embedded import NatsServer
from turnout.embedded.nats_server import free_port
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.wire import Connection, create_stream, stream_info
from turnout.routes import Route
from turnout.runtime.preflight import make_webhook_streams

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
    assert (waiting["subjects"], waiting["retention"]) == (["made.>"], "workqueue")
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
