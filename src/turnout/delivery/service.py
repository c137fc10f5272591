"""Run of a dispatcher: from a route to its streams, store and client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from turnout.delivery.client import Client
from turnout.delivery.dispatcher import DeliveryCounts, Dispatcher
from turnout.delivery.settings import Lanes
from turnout.delivery.streams import DeliveryStreams
from turnout.errors import ConfigError, ConnectionLostError, Mistake, StreamError
from turnout.nats.jetstream import connect
from turnout.routes import Route
from turnout.routes.endpoints import NatsSink
from turnout.routes.webhooks import WebhooksPart
from turnout.runtime.webhook_streams import make_webhook_streams
from turnout.subscriptions import open_store
from turnout.subscriptions.address import existing

_POLL_SECONDS = 0.25


def webhooks_of(route: Route) -> WebhooksPart:
    """Return the route's block.

    Raises:
        ConfigError: it has none.
    """
    if route.webhooks is None:
        raise ConfigError([Mistake("webhooks", f"the route {route.name} has none: no destination is a webhook")])
    return route.webhooks


@asynccontextmanager
async def opened_streams(route: Route) -> AsyncIterator[DeliveryStreams]:
    """Connect to the server of a route's deliveries, and make their streams unless they exist.

    Raises:
        ConnectionLostError: it cannot be reached.
        StreamError: it refuses a stream.
    """
    webhooks = webhooks_of(route)
    sink = list(route.sinks.values())[webhooks.sink_index(list(route.sinks))]
    assert isinstance(sink, NatsSink)
    await asyncio.to_thread(make_webhook_streams, route)
    async with connect(sink.connection) as js:
        yield await DeliveryStreams.open(js, webhooks)


async def deliver(
    route: Route,
    stop: threading.Event,
    *,
    drain: bool = False,
    ready: Callable[[DeliveryCounts], None] = lambda _: None,
) -> DeliveryCounts:
    """Deliver the messages for a route's webhooks.

    Args:
        route: the route.
        stop: ends it.
        drain: end when nothing waits, neither for a first attempt nor for a further one.
        ready: called with the counts, which continue to grow, before the first delivery.

    Raises:
        ConfigError: the route has no webhooks.
        ConnectionLostError: the server cannot be reached.
        StreamError: it refuses a stream, or the consumer is deleted.
        SubscriptionError: the store cannot be opened.
    """
    webhooks = webhooks_of(route)
    assert route.subscriptions is not None
    store = open_store(existing(route.subscriptions.store))
    with contextlib.closing(store):
        async with opened_streams(route) as streams, Client(webhooks.networks) as client:
            dispatcher = Dispatcher(streams, Lanes(webhooks, store), client, await streams.attempts())
            ready(dispatcher.counts)
            running = asyncio.create_task(dispatcher.run())
            try:
                while not stop.is_set() and not running.done():
                    await asyncio.wait([running], timeout=_POLL_SECONDS)
                    if drain and not dispatcher.held and await _is_drained(streams):
                        break
            finally:
                running.cancel()
                await asyncio.wait([running])
            if not running.cancelled():
                running.result()
            return dispatcher.counts


async def _is_drained(streams: DeliveryStreams) -> bool:
    """Return True if no delivery waits; False if that is unknown for now."""
    try:
        return await streams.is_drained()
    except (StreamError, ConnectionLostError):
        return False
