"""Preflight check for loops: subjects of a sink's server that the route itself reads."""

from __future__ import annotations

from dataclasses import replace

from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of


def preflight(route: Route) -> Route:
    """Check that the route's servers are reachable and have the streams, before Spark is started.

    Only nats-servers are asked.

    Returns:
        The route, which knows now what it reads itself on the servers of its sinks.

    Raises:
        ConnectionLostError: a server cannot be reached.
        StreamError: a stream does not exist.
    """
    streams = adapter_of(route.source).source_streams()
    fed_back = [name for name, sink in route.sinks.items() if adapter_of(sink).feeds(streams)]
    return replace(route, reads=dict.fromkeys(fed_back, () if streams is None else streams.subjects))
