"""Streams of deliveries are made once, and left as they are."""

from __future__ import annotations

import pytest

from turnout.embedded import NatsServer
from turnout.embedded.nats_server import free_port
from turnout.errors import ConnectionLostError
from turnout.nats.wire import Connection, create_stream, stream_info
from turnout.routes import Route
from turnout.runtime.webhook_streams import make_webhook_streams

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
