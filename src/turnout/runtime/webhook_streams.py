"""Streams, or Kafka topics, of a route's deliveries to webhooks, made before the first is stored or posted."""

from __future__ import annotations

from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of


def make_webhook_streams(route: Route, *, create: bool = True) -> list[str]:
    """Make the stream of waiting deliveries and that of dead letters, or their Kafka topics, unless they exist.

    Args:
        route: the route; without webhooks nothing is made.
        create: False to find out whether a run could make them, by the same questions.

    Returns:
        The names of those that were missing.

    Raises:
        ConfigError: the sink stores no deliveries.
        ConnectionLostError: the server cannot be reached.
        StreamError: the server refuses one; another stream may have its subjects, or an existing one not those.
    """
    webhooks = route.webhooks
    if webhooks is None:
        return []
    sink = list(route.sinks.values())[webhooks.sink_index(list(route.sinks))]
    adapter = adapter_of(sink)
    # An adapter of a package may know a run's call alone.
    return adapter.make_delivery_streams(webhooks) if create else adapter.make_delivery_streams(webhooks, create=False)
