"""Dispatchers inside a server: one for each route with webhooks, by its newest version."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from turnout.delivery.counts import DeliveryCounts
from turnout.errors import StreamError
from turnout.routes import Route
from turnout.server.deliveries import Ready, WebhookDeliveries
from turnout.server.metrics import Metrics

HOOKS = Route.parse("""
name: hooks
source: {format: nats, servers: "nats://a", stream: S}
subscriptions: {store: "memory://deliveries"}
webhooks: {}
sink: {format: nats, servers: "nats://a"}
""")
PLAIN = replace(HOOKS, name="plain", webhooks=None)


@dataclass
class FakeDispatcher:
    counts: DeliveryCounts


def test_newest_version() -> None:
    """A changed route's dispatcher is replaced, one of a route that is gone ends, and others have none."""
    routes = {"hooks": HOOKS, "plain": PLAIN}
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)
    seen: list[Route] = []

    def deliver(route: Route, stop: threading.Event, ready: Ready) -> None:
        seen.append(route)
        ready(FakeDispatcher(DeliveryCounts(delivered=2, failed=1)))  # type: ignore[arg-type]
        begun.release()
        stop.wait()
        ended.release()

    deliveries = WebhookDeliveries(lambda: routes, deliver)
    deliveries.start()
    assert begun.acquire(timeout=30)
    routes["hooks"] = replace(HOOKS, cluster="west")
    assert ended.acquire(timeout=30)
    assert begun.acquire(timeout=30)
    metrics = Metrics()
    metrics.watch_webhooks(deliveries.totals)
    text = metrics.text().decode()
    del routes["hooks"]
    assert ended.acquire(timeout=30)
    deliveries.close()

    assert seen == [HOOKS, replace(HOOKS, cluster="west")]
    assert 'turnout_route_webhook_messages_total{outcome="delivered",route="hooks"} 4.0' in text
    assert 'turnout_route_webhook_requests_total{outcome="failed",route="hooks"} 2.0' in text


def test_failures_are_retried() -> None:
    """A dispatcher whose server is away is started again, and closing does not wait for it."""
    begun = threading.Event()

    def deliver(route: Route, _stop: threading.Event, _ready: Ready) -> None:
        begun.set()
        raise StreamError("away")

    deliveries = WebhookDeliveries(lambda: {"hooks": HOOKS}, deliver)
    deliveries.start()
    assert begun.wait(30)
    deliveries.close()
