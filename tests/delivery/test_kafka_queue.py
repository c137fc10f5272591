"""Deliveries from a Kafka topic: the dispatcher with a real broker and a real HTTP endpoint."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook

from tests.delivery.kafka_hooks import KafkaHooks
from tests.delivery.receiver import SECRET, Receiver, Request, fine
from tests.engine.batches import batch
from tests.integration.kafka_broker import KafkaBroker
from tests.kafka.conftest import broker  # noqa: F401 - a fixture
from turnout.conditions import exists
from turnout.delivery.dispatcher import deliver, opened_queue
from turnout.delivery.failures import DeliveryCounts
from turnout.engine import Program
from turnout.routes.endpoints import KafkaSink
from turnout.runtime.kafka.publisher import KafkaSinkOptions
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index

FAST = {"retry": [0.05, 0.05], "jitter": 0}


def run(
    broker: KafkaBroker,  # noqa: F811 - the fixture
    answer: Callable[[Request], Any],
    work: Callable[[KafkaHooks, Receiver], Any],
    **endpoint: Any,
) -> Receiver:
    """Do *work* with a receiver that answers so, and return the receiver."""
    receiver = Receiver(answer)

    async def all_of_it() -> None:
        async with receiver.serving():
            await work(KafkaHooks(broker.servers, receiver, **endpoint), receiver)

    asyncio.run(all_of_it())
    return receiver


def test_from_a_route_to_an_endpoint(broker: KafkaBroker) -> None:  # noqa: F811
    """The engine's message for a URL is written to the topic, and is posted once, signed, under one id."""

    async def work(hooks: KafkaHooks, receiver: Receiver) -> None:
        async with opened_queue(hooks.route):
            pass
        subscriptions = [
            Subscription([receiver.url, "webhook:e", f"{hooks.name}-attempts"], exists("subject"), id="s"),
            Subscription([hooks.name, f"{hooks.name}-out.x"], exists("subject"), id="forger"),
        ]
        document = {**hooks.document, "errors": {"tolerance": "all"}}
        route = hooks.route.parse(json.dumps(document))
        result = Program(route).run(batch([{"topic": "a", "value": {"n": 1}, "key": b"k"}]), Index.of(subscriptions))
        (sink,) = route.sinks.values()
        assert isinstance(sink, KafkaSink)
        publisher = KafkaSinkOptions.of(sink).publisher()
        publisher.send(result.messages, lambda _, reason: (_ for _ in ()).throw(reason))
        assert publisher.flush().stored == 2
        publisher.close()
        counts = await hooks.deliver()

        assert result.counts.undeliverable == 3
        assert (counts.delivered, counts.requests, counts.dead) == (2, 2, 0)

    seen = run(broker, fine, work).requests
    assert len({request.headers["webhook-id"] for request in seen}) == 2
    for request in seen:
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert Webhook(SECRET).verify(request.body, headers) == {"n": 1}


def test_retries_dead_letters_and_redrive(broker: KafkaBroker) -> None:  # noqa: F811
    """A failed delivery holds up no other; exhausted it is a dead letter, which a redrive sends under the same id."""
    broken = [True]

    async def work(hooks: KafkaHooks, receiver: Receiver) -> None:
        await hooks.publish(b"bad", *(b"%d" % number for number in range(20)), headers={"Kept": "yes"})
        counts = await hooks.deliver()
        ((body, headers),) = await hooks.dead()
        attempts = json.loads(headers["Turnout-Attempts"])

        assert (counts.delivered, counts.failed, counts.dead) == (20, 3, 1)
        assert (body, headers["Kept"]) == (b"bad", "yes")
        assert headers["Turnout-Reason"] == "the last of 3 attempts failed"
        assert [one["status"] for one in attempts] == [503] * 3

        broken[0] = False
        async with opened_queue(hooks.route) as queue:
            (letter,) = await queue.letters(10)
            assert await queue.redrive() == 1
            assert await queue.redrive() == 0
            assert await queue.letters(10) == []
        assert (letter.position, letter.destination, letter.reason) == ("0:0", "webhook:e", headers["Turnout-Reason"])
        assert [attempt.status for attempt in letter.attempts] == [503] * 3
        assert (await hooks.deliver()).delivered == 1
        tries = [request for request in receiver.requests if request.body == b"bad"]
        assert len(tries) == 4
        assert len({request.headers["webhook-id"] for request in tries}) == 1

    run(
        broker, lambda seen: web.Response(status=503 if broken[0] and seen.body == b"bad" else 200), work, delivery=FAST
    )


def test_single_letters_are_redriven(broker: KafkaBroker) -> None:  # noqa: F811
    """In any order; the others stay in the list, and a redrive of all moves these alone."""
    broken = [True]

    async def work(hooks: KafkaHooks, receiver: Receiver) -> None:
        await hooks.publish(*(b"%d" % number for number in range(4)))
        assert (await hooks.deliver()).dead == 4
        broken[0] = False
        async with opened_queue(hooks.route) as queue:
            listed = sorted(letter.position for letter in await queue.letters(10))
            assert await queue.redrive(["0:2"]) == 1
            assert await queue.redrive(["0:2", "0:7", "x"]) == 0
            assert await queue.redrive(["0:0"]) == 1
            left = sorted(letter.position for letter in await queue.letters(10))
            assert await queue.redrive() == 2
            assert await queue.letters(10) == []
        assert (listed, left) == (["0:0", "0:1", "0:2", "0:3"], ["0:1", "0:3"])
        assert (await hooks.deliver()).delivered == 4

    run(broker, lambda _: web.Response(status=503 if broken[0] else 200), work, delivery={**FAST, "breakerFailures": 0})


def test_gone_disables(broker: KafkaBroker) -> None:  # noqa: F811
    """After 410 an endpoint gets no request; another process enables it while a dispatcher runs."""
    broken = [True]

    async def work(hooks: KafkaHooks, receiver: Receiver) -> None:
        await hooks.publish(b"1")
        assert (await hooks.deliver()).dead == 1
        async with opened_queue(hooks.route) as queue:
            log = await queue.attempts()
            assert log.disabled == {"webhook:e"}
            broken[0] = False
            running = Running(hooks)
            await running.until(lambda counts: True)
            assert await log.enable("webhook:e")
            while await queue.redrive():
                await asyncio.sleep(0.5)
            await running.until(lambda counts: counts.delivered == 1)
            await running.stop()

    run(broker, lambda _: web.Response(status=410 if broken[0] else 200), work)


def test_backlog_notice_and_consent(broker: KafkaBroker) -> None:  # noqa: F811
    """The topic tells how many deliveries wait and since when; notices and consents are stored in topics, too."""
    begun = datetime.now(UTC)

    def answer(request: Request) -> web.Response:
        if b"turnout.challenge" in request.body:
            return web.json_response({"response": json.loads(request.body)["challenge"]})
        return web.Response(status=410 if request.body == b"gone" else 204)

    async def work(hooks: KafkaHooks, receiver: Receiver) -> None:
        hooks.others = {"ops": {"url": f"{receiver.url}/ops"}}
        hooks.webhooks = {"consent": "challenge", "notices": "webhook:ops"}
        await hooks.publish(b"1", b"2", to=f"{receiver.url}/own")
        await hooks.publish(b"gone")
        async with opened_queue(hooks.route) as queue:
            backlog = await queue.backlog()
            assert backlog.waiting == 3
            assert backlog.oldest is not None
            assert -2 <= (backlog.oldest - begun).total_seconds() < 120
        counts = await hooks.deliver()
        assert (counts.delivered, counts.dead) == (3, 1)
        async with opened_queue(hooks.route) as queue:
            assert (await queue.backlog()).waiting == 0
            consent = await (await queue.attempts()).consent(f"{receiver.url}/own")
            assert consent is not None
            assert consent.is_granted
        (notice,) = [json.loads(request.body) for request in receiver.requests if request.path == "/in/ops"]
        assert (notice["destination"], notice["reason"]) == ("webhook:e", "disabled by 410")

    run(broker, answer, work)


class Running:
    """Dispatcher in this process."""

    def __init__(self, hooks: KafkaHooks) -> None:
        self._stop = threading.Event()
        self._counts: list[DeliveryCounts] = []
        ready = lambda one: self._counts.append(one.counts)  # noqa: E731
        self._task = asyncio.create_task(deliver(hooks.route, self._stop, ready=ready))

    async def until(self, reached: Callable[[DeliveryCounts], bool]) -> DeliveryCounts:
        """Wait for counts."""
        async with asyncio.timeout(60):
            while not self._counts or not reached(self._counts[0]):
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.02)
        return self._counts[0]

    async def stop(self) -> DeliveryCounts:
        self._stop.set()
        return await self._task


def test_a_restart_repeats_only_what_is_unfinished(broker: KafkaBroker) -> None:  # noqa: F811
    """A delivery that waits for hours holds back the offset; what was delivered behind it is not sent again."""

    async def work(hooks: KafkaHooks, receiver: Receiver) -> None:
        await hooks.publish(b"bad", *(b"%d" % number for number in range(50)), subscription="s")
        running = Running(hooks)
        await running.until(lambda counts: counts.delivered == 50 and counts.failed == 1)
        await running.stop()
        assert len(receiver.requests) == 51

        await hooks.publish(b"later", subscription="s")
        running = Running(hooks)
        await running.until(lambda counts: counts.delivered == 1)
        counts = await running.stop()
        assert receiver.bodies[51:] == [b"later"]
        assert counts.failed == 0

    run(
        broker,
        lambda seen: web.Response(status=503 if seen.body == b"bad" else 200),
        work,
        delivery={"retry": [3600.0], "jitter": 0},
    )


def test_order(broker: KafkaBroker) -> None:  # noqa: F811
    """``ordered`` blocks the subscription's deliveries behind a failure."""
    tries: list[bytes] = []

    async def work(hooks: KafkaHooks, receiver: Receiver) -> None:
        hooks.subscribe("s", ordered=True, **FAST)
        await hooks.publish(*(b"%d" % number for number in range(20)), subscription="s")
        assert (await hooks.deliver()).delivered == 20
        assert list(dict.fromkeys(receiver.bodies)) == [b"%d" % number for number in range(20)]
        assert receiver.bodies.count(b"3") == 3

    def answer(request: Request) -> web.Response:
        tries.append(request.body)
        return web.Response(status=500 if request.body == b"3" and tries.count(b"3") < 3 else 200)

    run(broker, answer, work)


def test_isolation(broker: KafkaBroker) -> None:  # noqa: F811
    """An endpoint that hangs, with more messages than are kept in memory, holds up no other; its own arrive later."""
    release, others = asyncio.Event(), [0]

    async def answer(request: Request) -> web.Response:
        if request.path == "/hangs":
            await release.wait()
        else:
            others[0] += 1
            if others[0] == 4 * 50:
                release.set()
        return web.Response()

    async def work(hooks: KafkaHooks, receiver: Receiver) -> None:
        address = receiver.url.removesuffix("/in")
        await hooks.publish(*(b"%d" % n for n in range(1_500)), to=f"{address}/hangs")
        for number in range(4):
            await hooks.publish(*(b"%d" % n for n in range(50)), to=f"{address}/works/{number}")
        counts = await hooks.deliver(120)
        assert counts.delivered == 1_500 + 4 * 50
        assert counts.parked > 0
        assert counts.requests == counts.delivered

    run(broker, answer, work)


def test_two_dispatchers(broker: KafkaBroker) -> None:  # noqa: F811
    """A second dispatcher takes over some endpoints, ends, and gives them back: each message arrives."""

    async def work(hooks: KafkaHooks, receiver: Receiver) -> None:
        for number in range(12):
            hooks.subscribe(f"s{number}", **FAST)
        first = Running(hooks)
        for number in range(12):
            await hooks.publish(*(b"%d:%d" % (number, n) for n in range(40)), subscription=f"s{number}")
        second = Running(hooks)
        await second.until(lambda counts: True)
        for number in range(12):
            await hooks.publish(*(b"%d:%d" % (number, n) for n in range(40, 80)), subscription=f"s{number}")
        await second.until(lambda counts: counts.delivered > 0)
        await second.stop()
        async with opened_queue(hooks.route):
            await first.until(lambda _: len(set(receiver.bodies)) == 12 * 80)
        await first.stop()

    seen = run(broker, fine, work).bodies
    assert set(seen) == {b"%d:%d" % (number, n) for number in range(12) for n in range(80)}
