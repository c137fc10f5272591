"""Run of a dispatcher: from a route to its queue, store and client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pkgutil import resolve_name

from turnout.delivery.client import Client
from turnout.delivery.consent import Consents
from turnout.delivery.dispatcher import Dispatcher
from turnout.delivery.failures import DeliveryCounts
from turnout.delivery.guard import Proxies
from turnout.delivery.queue import DeadDelivery, DeliveryQueue
from turnout.delivery.settings import Lanes
from turnout.errors import ConfigError, ConnectionLostError, Mistake, StreamError
from turnout.routes import Route
from turnout.routes.endpoints.formats import format_of
from turnout.routes.webhooks import WebhooksPart
from turnout.runtime.preflight import make_webhook_streams
from turnout.subscriptions import open_store
from turnout.subscriptions.sealing import secret_keys
from turnout.subscriptions.store_url import existing

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
async def opened_queue(route: Route) -> AsyncIterator[DeliveryQueue]:
    """Connect to the server of a route's deliveries, and make their streams or topics unless they exist.

    Raises:
        ConfigError: the route has no webhooks.
        ConnectionLostError: it cannot be reached.
        StreamError: it refuses a stream.
    """
    webhooks = webhooks_of(route)
    sink = list(route.sinks.values())[webhooks.sink_index(list(route.sinks))]
    await asyncio.to_thread(make_webhook_streams, route)
    opens = format_of(sink).deliveries
    assert opens is not None, "the reader of routes has checked it"
    opened: AbstractAsyncContextManager[DeliveryQueue] = resolve_name(opens)(sink, webhooks)
    async with opened as queue:
        yield queue


async def deliver(
    route: Route,
    stop: threading.Event,
    *,
    drain: bool = False,
    ready: Callable[[Dispatcher], None] = lambda _: None,
    watch: Callable[[], None] = lambda: None,
) -> DeliveryCounts:
    """Deliver the messages for a route's webhooks.

    Args:
        route: the route.
        stop: ends it.
        drain: end when nothing waits, neither for a first attempt nor for a further one.
        ready: called with the dispatcher, whose counts continue to grow, before the first delivery.
        watch: called several times a second while it delivers.

    Raises:
        ConfigError: the route has no webhooks, or a key for the secrets of subscriptions is none.
        ConnectionLostError: the server cannot be reached.
        StreamError: it refuses a stream, or the consumer is deleted.
        SubscriptionError: the store cannot be opened.
    """
    webhooks = webhooks_of(route)
    assert route.subscriptions is not None
    secret_keys()
    store = open_store(existing(route.subscriptions.store))
    with contextlib.closing(store):
        async with opened_queue(route) as queue, _client(webhooks) as client:
            log = await queue.attempts()
            consents = Consents(webhooks.consent, webhooks.origin or "", client, log)
            dispatcher = Dispatcher(queue, Lanes(webhooks, store, client), client, log, consents)
            ready(dispatcher)
            running = asyncio.create_task(dispatcher.run())
            try:
                while not stop.is_set() and not running.done():
                    await asyncio.wait([running], timeout=_POLL_SECONDS)
                    watch()
                    if drain and not dispatcher.held and await _is_drained(queue):
                        break
            finally:
                running.cancel()
                await asyncio.wait([running])
            if not running.cancelled():
                running.result()
            return dispatcher.counts


def _client(webhooks: WebhooksPart) -> Client:
    proxies = Proxies(webhooks.proxy, resolves=webhooks.proxy_lookups)
    return Client(webhooks.networks, proxies=proxies)


async def letters_of(route: Route, count: int) -> list[DeadDelivery]:
    """Return the last dead letters of a route's deliveries, the newest first.

    Raises:
        ConfigError: the route has no webhooks.
        ConnectionLostError: the server cannot be reached.
        StreamError: it refuses a stream.
    """
    async with opened_queue(route) as queue:
        return await queue.letters(count)


async def redrive(route: Route, positions: Collection[str] | None = None) -> int:
    """Move dead letters back among the deliveries, and return their number.

    Args:
        route: the route.
        positions: positions of the letters, as `letters_of` gives them; None for all.

    Raises:
        ConfigError: the route has no webhooks.
        ConnectionLostError: the server cannot be reached.
        StreamError: it refuses a stream.
    """
    async with opened_queue(route) as queue:
        return await queue.redrive(positions)


async def enable(route: Route, destinations: Sequence[str]) -> list[str]:
    """Let disabled endpoints have requests; return those that were disabled.

    Raises:
        ConfigError: the route has no webhooks.
        ConnectionLostError: the server cannot be reached.
        StreamError: it refuses a stream.
    """
    async with opened_queue(route) as queue:
        log = await queue.attempts()
        return [destination for destination in destinations if await log.enable(destination)]


async def _is_drained(queue: DeliveryQueue) -> bool:
    """Return True if no delivery waits; False if that is unknown for now."""
    try:
        return await queue.is_drained()
    except (StreamError, ConnectionLostError):
        return False
