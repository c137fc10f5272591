"""What a route learns from its stream before it starts."""

from __future__ import annotations

from typing import Any, cast

from turnout.embedded import NatsServer
from turnout.routes import Route
from turnout.spark.sampling import learn_from_stream
from turnout.wire import Connection, create_stream

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
source: {{format: nats, servers: "{url}", stream: S, user: reader, password: reader}}
sink: {{format: nats, servers: "{url}"}}
"""


def test_a_user_who_may_not_ask_for_messages() -> None:
    """Only speed depends on the sample: without the permission there is none, and nothing fails."""
    with NatsServer(config=CONFIG) as server:
        with Connection.open(server.url.replace("//", "//admin:secret@")) as connection:
            create_stream(connection, {"name": "S", "subjects": ["s.>"], "storage": "memory"})
            for n in range(300):
                connection.request(f"s.{n}", b"x")
        route = Route.parse(ROUTE.format(url=server.url), {})

        learn_from_stream(route, cast("Any", None), cast("Any", None))
