"""Spark properties that a route sets or needs."""

from __future__ import annotations

from turnout import Route
from turnout.spark.session.route_properties import needed_properties, session_properties

TEXT = """
name: r
source: {format: nats, servers: "nats://localhost:4222", stream: IN}
sink: {format: nats, servers: "nats://localhost:4222"}
"""
SOCKETS = "spark.python.unix.domain.socket.enabled"


def test_low_latency() -> None:
    """The properties of short micro-batches are needed with it alone."""
    assert needed_properties(Route.parse(TEXT, {})) == {}
    assert needed_properties(Route.parse(TEXT + "trigger: {latency: low}\n", {}))[SOCKETS] == "true"


def test_properties_of_the_route_have_precedence() -> None:
    """A route may set what turnout would set otherwise."""
    route = Route.parse(TEXT + f'trigger: {{latency: low}}\nspark: {{{SOCKETS}: "false", spark.a: "1"}}\n', {})

    properties = session_properties(route)

    assert (properties[SOCKETS], properties["spark.a"]) == ("false", "1")
