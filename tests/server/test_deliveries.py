"""Dispatchers inside a server: one for each route with webhooks, by its newest version."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.delivery.receiver import Hooks, Receiver
from tests.server.conftest import wait_for
from tests.server.fakes import FakeRunner
from turnout.base import background
from turnout.delivery.failures import DeliveryCounts, DeliveryEvent
from turnout.delivery.lane import EndpointStatus
from turnout.delivery.queue import Backlog
from turnout.embedded import NatsServer
from turnout.errors import StreamError
from turnout.nats.wire import Connection, create_stream, stream_info
from turnout.routes import Route
from turnout.runtime.preflight import make_delay_stream
from turnout.server.config import ServerConfig
from turnout.server.deliveries import Ready, ScheduledDeliveries, WebhookDeliveries, WebhookState
from turnout.server.health import Health, Survey
from turnout.server.metrics import Metrics
from turnout.server.serving import RouteServer
from turnout.subscriptions import open_store


@pytest.fixture(autouse=True)
def _soon_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_STEADY_SECONDS", 0.2)


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
    problem: str = ""
    backlog: Backlog | None = None
    report: Callable[[DeliveryEvent], None] = lambda _: None

    def endpoints(self) -> list[EndpointStatus]:
        return []


def test_metrics_of_the_state() -> None:
    """Backlog, age of the oldest message, endpoints by state and whether the dispatcher delivers are gauges; what is
    unknown is not there."""
    states = {
        "hooks": WebhookState(True, 7, 90.5, {"closed": 3, "open": 1, "disabled": 2}),
        "down": WebhookState(False, None, None, {"closed": 0, "open": 0, "disabled": 0}),
    }
    metrics = Metrics()
    metrics.watch_webhooks(lambda: {"hooks": {"not_sent": 4, "retried": 5}}, lambda: states)
    text = metrics.text().decode()

    assert 'turnout_route_webhook_up{route="hooks"} 1.0' in text
    assert 'turnout_route_webhook_up{route="down"} 0.0' in text
    assert 'turnout_route_webhook_waiting{route="hooks"} 7.0' in text
    assert 'turnout_route_webhook_oldest_seconds{route="hooks"} 90.5' in text
    assert 'turnout_route_webhook_endpoints{route="hooks",state="disabled"} 2.0' in text
    assert 'turnout_route_webhook_attempts_total{outcome="not_sent",route="hooks"} 4.0' in text
    assert 'turnout_route_webhook_attempts_total{outcome="retried",route="hooks"} 5.0' in text
    assert 'turnout_route_webhook_waiting{route="down"}' not in text


def test_state_and_events() -> None:
    """The state is that of the running dispatcher, and changes of its endpoints are events of the route."""
    begun = threading.Event()
    published: list[tuple[str, str, object]] = []
    backlog = Backlog(2, datetime.now(UTC) - timedelta(hours=1))

    def deliver(route: Route, stop: threading.Event, ready: Ready) -> None:
        dispatcher = FakeDispatcher(DeliveryCounts(), backlog=backlog)
        ready(dispatcher)  # type: ignore[arg-type]
        dispatcher.report(DeliveryEvent("endpoint.disabled", "https://a.example/", "acme", "410"))
        begun.set()
        stop.wait()

    deliveries = WebhookDeliveries(
        lambda: {"hooks": HOOKS}, deliver, lambda kind, route, detail: published.append((kind, route, detail))
    )
    deliveries.start()
    assert begun.wait(30)
    state = deliveries.states()["hooks"]
    deliveries.close()

    assert (state.is_up, state.waiting, state.endpoints["closed"]) == (True, 2, 0)
    assert state.oldest_seconds is not None
    assert 3_600 <= state.oldest_seconds < 3_700
    detail = {"destination": "https://a.example/", "tenant": "acme", "reason": "410"}
    assert published == [("webhook.endpoint.disabled", "hooks", detail)]


def test_newest_version() -> None:
    """A changed route's dispatcher is replaced, one of a route that is gone ends, and others have none."""
    routes = {"hooks": HOOKS, "plain": PLAIN}
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)
    seen: list[Route] = []

    def deliver(route: Route, stop: threading.Event, ready: Ready) -> None:
        seen.append(route)
        ready(FakeDispatcher(DeliveryCounts(delivered=2, failed=1, unstored=3, stored_late=1)))  # type: ignore[arg-type]
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
    assert 'turnout_route_webhook_unstored_total{route="hooks"} 6.0' in text
    assert 'turnout_route_webhook_unstored_now{route="hooks"} 4.0' in text


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


@pytest.mark.parametrize("failure", [StreamError("away"), ValueError("a bug"), OSError(5, "io"), SystemExit(1)])
def test_whatever_ends_a_dispatcher_it_begins_again(failure: BaseException) -> None:
    """After any failure; meanwhile the route, readiness and metrics say so, and afterwards no more."""
    begun = threading.Semaphore(0)
    attempts: list[int] = []

    def deliver(route: Route, stop: threading.Event, ready: Ready) -> None:
        attempts.append(1)
        begun.release()
        if len(attempts) == 1:
            raise failure
        ready(FakeDispatcher(DeliveryCounts()))  # type: ignore[arg-type]
        stop.wait()

    deliveries = WebhookDeliveries(lambda: {"hooks": HOOKS}, deliver)
    health = Health(FakeRunner(), Survey(list))
    metrics = Metrics()
    deliveries.start()
    try:
        assert begun.acquire(timeout=30)
        wait_for(lambda: deliveries.problem("hooks"))
        problem = health.ready().problems["thread webhooks of hooks"]
        text = metrics.text().decode()
        assert begun.acquire(timeout=30)
        wait_for(lambda: not deliveries.problem("hooks"))
    finally:
        deliveries.close()

    assert str(failure) in problem
    assert 'turnout_background_up{work="webhooks of hooks"} 0.0' in text
    assert 'turnout_background_failures_total{work="webhooks of hooks"} 1.0' in text
    assert not any("hooks" in part for part in health.ready().problems)
    assert 'work="webhooks of hooks"' not in metrics.text().decode()


def test_a_dispatcher_that_does_not_end(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The next version waits for a while, which is told, and then begins without it."""
    monkeypatch.setattr("turnout.server.deliveries._SLOW_STOP_SECONDS", 0.0)
    monkeypatch.setattr("turnout.server.deliveries._HUNG_STOP_SECONDS", 3.0)
    routes, end = {"hooks": HOOKS}, threading.Event()
    seen: list[Route] = []

    def deliver(route: Route, stop: threading.Event, _ready: Ready) -> None:
        seen.append(route)
        stop.wait()
        if len(seen) == 1:
            end.wait(60)

    deliveries = WebhookDeliveries(lambda: routes, deliver)
    deliveries.start()
    try:
        wait_for(lambda: seen)
        routes["hooks"] = replace(HOOKS, cluster="west")
        wait_for(lambda: "has not ended" in deliveries.problem("hooks"))
        wait_for(lambda: len(seen) == 2)
        wait_for(lambda: not deliveries.problem("hooks"))
    finally:
        end.set()
        deliveries.close()

    assert "deliveries wait for its end" in caplog.text
    assert "deliveries continue without it" in caplog.text


def test_the_end_waits_no_longer_than_its_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A dispatcher that does not end is left, and named with what becomes of its messages."""
    monkeypatch.setattr("turnout.server.deliveries._CLOSE_SECONDS", 0.2)
    end, begun = threading.Event(), threading.Event()

    def deliver(_route: Route, _stop: threading.Event, _ready: Ready) -> None:
        begun.set()
        end.wait()

    deliveries = WebhookDeliveries(lambda: {"hooks": HOOKS}, deliver)
    deliveries.start()
    try:
        assert begun.wait(30)
        deliveries.close()
        assert deliveries._running["hooks"].work.is_alive()
    finally:
        end.set()
        assert deliveries._running["hooks"].work.join(30)

    assert "route hooks: its dispatcher has not ended in 0 s and is left" in caplog.text
    assert "delivered again after the next start" in caplog.text


WAITING = """
name: later
source: {{format: nats, servers: "{url}", stream: IN}}
sink: {{format: nats, servers: "{url}", delay: 1}}
scheduled: {{stream: WAITING}}
"""


def test_a_delay_stream_is_published(nats_server: NatsServer) -> None:
    """A server leads the delay streams of its routes, and its metrics have what waits and what was late."""
    url = nats_server.url
    route = Route.parse(WAITING.format(url=url))
    make_delay_stream(route)
    due = datetime.now(UTC)
    with Connection.open(url) as connection:
        create_stream(connection, {"name": "LATER", "subjects": ["later.>"]})
        for name, at in (("now", due), ("later", due + timedelta(hours=1))):
            headers = {
                "Turnout-Deliver-At": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z", "Turnout-Deliver-To": "later.a",
                "Turnout-Deliver-Sink": "", "Turnout-Deliver-Id": name,
            }  # fmt: skip
            connection.request(f"scheduled.{name}.A", b"x", headers)
        deliveries, metrics = ScheduledDeliveries(lambda: {"later": route, "plain": PLAIN}), Metrics()
        metrics.watch_scheduled(deliveries.states)
        deliveries.start()
        try:
            wait_for(lambda: b'turnout_route_scheduled_pending{route="later"} 1.0' in metrics.text())
            wait_for(lambda: b'_messages_total{outcome="published",route="later"} 1.0' in metrics.text())
            assert stream_info(connection, "LATER")["state"]["messages"] == 1
            text = metrics.text().decode()
            assert 'turnout_route_scheduled_late_seconds{route="later"} 0.0' in text
            assert 'turnout_route_scheduled_delay_seconds_count{route="later"} 1.0' in text
        finally:
            deliveries.close()
        assert list(deliveries.states()) == ["later"]
        assert b'turnout_route_scheduled_pending{route="later"}' not in metrics.text()
        assert stream_info(connection, "WAITING")["state"]["messages"] == 1


def test_servers_that_stand_by_deliver_as_well(nats_server: NatsServer, tmp_path: Path) -> None:
    """Two servers divide the endpoints of a route; when the leader ends, the other one has all of them."""

    async def work() -> None:
        sent = 0
        receiver = Receiver()
        async with receiver.serving():
            hooks = Hooks(nats_server.url, receiver)
            hooks.store_url = f"sqlite:///{tmp_path}/store.db"
            open_store(hooks.store_url).close()
            hooks.others = {f"e{number}": {"url": f"{receiver.url}/{number}"} for number in range(8)}
            folder = tmp_path / "routes"
            folder.mkdir()
            (folder / "route.yaml").write_text(json.dumps(hooks.document))
            ha = {"lease": nats_server.url, "name": hooks.name.lower(), "folder": tmp_path / "shared", "seconds": 2}
            config = ServerConfig.model_validate({"listen": "127.0.0.1:0", "interval": "20ms", "ha": ha})
            servers = [RouteServer(config, [folder], runner_of=lambda *_: FakeRunner()) for _ in range(2)]
            stops = [threading.Event() for _ in servers]

            def serve(server: RouteServer, stop: threading.Event) -> None:
                with server:
                    server.wait(stop)

            async def publish() -> None:
                nonlocal sent
                for number in range(8):
                    await hooks.publish(*(b"%d" % n for n in range(sent, sent + 5)), to=f"webhook:e{number}")
                sent += 5

            def delivered(server: RouteServer) -> int:
                return sum(one["delivered"] for one in server._webhooks.totals().values())

            tasks = [asyncio.create_task(asyncio.to_thread(serve, *pair)) for pair in zip(servers, stops, strict=True)]
            try:
                async with asyncio.timeout(90):
                    while not all(map(delivered, servers)):
                        await publish()
                        await asyncio.sleep(0.2)
                    leader = next(at for at, server in enumerate(servers) if hasattr(server, "parts"))
                    stops[leader].set()
                    await tasks[leader]
                    await publish()
                    while len(receiver.requests) < 8 * sent:
                        await asyncio.sleep(0.05)
            finally:
                for stop in stops:
                    stop.set()
                await asyncio.gather(*tasks)
            found = Counter((request.path, request.body) for request in receiver.requests)
            assert (len(found), max(found.values())) == (8 * sent, 1)

    asyncio.run(work())


def test_a_bug_of_the_look_is_survived() -> None:
    """The list of routes may fail: the thread that looks after the dispatchers goes on, and says so."""
    looks: list[int] = []
    looked = threading.Event()

    def routes() -> dict[str, Route]:
        looks.append(1)
        if len(looks) < 3:
            raise KeyError("hooks")
        looked.set()
        return {}

    deliveries = WebhookDeliveries(routes)
    deliveries.start()
    try:
        wait_for(lambda: "thread webhooks" in Health(FakeRunner(), Survey(list)).ready().problems)
        assert looked.wait(30)
    finally:
        deliveries.close()
