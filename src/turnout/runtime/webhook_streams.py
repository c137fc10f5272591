"""Streams, or Kafka topics, of a route's deliveries to webhooks, made before the first is stored or posted."""

from __future__ import annotations

from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of


def make_webhook_streams(route: Route) -> None:
    """Make the stream of waiting deliveries and that of dead letters, or their Kafka topics, unless they exist.

    Args:
        route: the route; without webhooks nothing is made.

    Raises:
        ConfigError: the sink stores no deliveries.
        ConnectionLostError: the server cannot be reached.
        StreamError: the server refuses one; another stream may have its subjects.
    """
    webhooks = route.webhooks
    if webhooks is None:
        return
    sink = list(route.sinks.values())[webhooks.sink_index(list(route.sinks))]
    adapter_of(sink).make_delivery_streams(webhooks)
