"""Streams of a route's deliveries to webhooks, made before the first delivery is stored or posted."""

from __future__ import annotations

from turnout.nats.protocol.errors import StreamNotFoundError
from turnout.nats.wire import Connection, create_stream, stream_info
from turnout.routes import Route
from turnout.routes.endpoints import NatsSink

_DUPLICATE_WINDOW_NANOSECONDS = 3_600 * 10**9


def make_webhook_streams(route: Route) -> None:
    """Make the stream of waiting deliveries and that of dead letters, unless they exist.

    Args:
        route: the route; without webhooks nothing is made.

    Raises:
        ConnectionLostError: the server cannot be reached.
        StreamError: the server refuses one; another stream may have its subjects.
    """
    webhooks = route.webhooks
    if webhooks is None:
        return
    sink = list(route.sinks.values())[webhooks.sink_index(list(route.sinks))]
    assert isinstance(sink, NatsSink)
    with Connection.open(sink.connection) as connection:
        subjects, retentions = (webhooks.subject, webhooks.dead_subject), ("workqueue", "limits")
        for name, subject, retention in zip(webhooks.streams, subjects, retentions, strict=True):
            try:
                stream_info(connection, name)
            except StreamNotFoundError:
                config = {
                    "name": name,
                    "subjects": [f"{subject}.>"],
                    "retention": retention,
                    "duplicate_window": _DUPLICATE_WINDOW_NANOSECONDS,
                    "allow_direct": True,
                }
                create_stream(connection, config)
