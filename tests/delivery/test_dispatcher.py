"""The dispatcher with a real nats-server and a real HTTP endpoint."""

from __future__ import annotations

import asyncio
import hmac
import json
import ssl
import threading
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from tests.certificates import make_certificates
from tests.delivery.receiver import SECRET, Hooks, Receiver, Request, fine, run
from turnout.delivery import dispatcher, failures, settings
from turnout.delivery import queue as queue_module
from turnout.delivery.dispatcher import Dispatcher, deliver, opened_queue
from turnout.delivery.failures import DeliveryEvent, Failures
from turnout.delivery.lane import Delivery
from turnout.delivery.queue import AttemptLog, Backlog, JetStreamBucket
from turnout.delivery.requests import request_of
from turnout.delivery.streams import DeliveryStreams
from turnout.embedded import NatsServer
from turnout.errors import ConnectionLostError
from turnout.nats.jetstream import Message, connect
from turnout.nats.wire import Connection
from turnout.server.inputs import messages_of
from turnout.subscriptions import Subscription
from turnout.subscriptions.credentials import new_secret
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.destinations import delivery_subject
from turnout.subscriptions.sealing import SECRET_KEY, SECRET_KEY_FILE, new_key
from turnout.subscriptions.stores.memory import MemoryStore

OTHER_SECRET = f"whsec_{b64encode(bytes(range(32))).decode()}"
FAST = {"retry": [0.05, 0.05], "jitter": 0}


def test_delivered_and_signed(nats_server: NatsServer) -> None:
    """Every message is posted once, with signatures that the reference library verifies, by either of two secrets."""

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(b'{"n": 1}', b"\xff\x00", headers={"Content-Type": "application/x"})
        counts = await hooks.deliver()

        assert (counts.delivered, counts.requests, counts.failed, counts.dead) == (2, 2, 0, 0)

    seen = run(nats_server, fine, work, secrets=[SECRET, OTHER_SECRET]).requests

    assert sorted(request.body for request in seen) == [b'{"n": 1}', b"\xff\x00"]
    assert {request.headers["Content-Type"] for request in seen} == {"application/x"}
    assert len({request.headers["webhook-id"] for request in seen}) == 2
    for request in seen:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if request.body.isascii():
            assert Webhook(SECRET).verify(request.body, headers) == {"n": 1}
            assert Webhook(OTHER_SECRET).verify(request.body, headers) == {"n": 1}


@asynccontextmanager
async def running_dispatcher(hooks: Hooks, seconds: float) -> AsyncIterator[Dispatcher]:
    """A dispatcher that runs for the length of the block, which may take so many seconds."""
    stop, dispatchers = threading.Event(), list[Dispatcher]()
    running = asyncio.create_task(deliver(hooks.route, stop, ready=dispatchers.append))
    try:
        async with asyncio.timeout(seconds):
            while not dispatchers:
                await asyncio.sleep(0.01)
            yield dispatchers[0]
    finally:
        stop.set()
        await running


def test_signed_with_the_subscriptions_own_secrets(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its secrets replace the endpoint's; while both are stored during a rotation, either one verifies."""
    monkeypatch.setenv(SECRET_KEY, new_key())
    first, second = new_secret(), new_secret()

    async def work(hooks: Hooks, _: Receiver) -> None:
        hooks.subscribe("own", secrets=[first])
        hooks.subscribe("plain", **FAST)
        await hooks.publish(b'{"n": 1}', subscription="own")
        await hooks.publish(b'{"n": 2}', subscription="plain")
        assert (await hooks.deliver()).delivered == 2
        stored = hooks.store.read("own")
        assert stored.delivery is not None
        both = DeliverySettings.from_mapping({"secrets": [second, *(one.text for one in stored.delivery.secrets)]})
        hooks.store.update("own", replace(stored, delivery=both))
        await hooks.publish(b'{"n": 3}', subscription="own")
        assert (await hooks.deliver()).delivered == 1

    def verifies(request: Request, *secrets: str) -> list[bool]:
        return [_is_verified(Webhook(secret), request.body, _headers(request)) for secret in secrets]

    seen = run(nats_server, fine, work).requests
    by_body = {request.body: verifies(request, SECRET, first, second) for request in seen}

    assert by_body == {
        b'{"n": 1}': [False, True, False],
        b'{"n": 2}': [True, False, False],
        b'{"n": 3}': [False, True, True],
    }


def test_chosen_names_of_headers(nats_server: NatsServer) -> None:
    """A receiver gets id, time and signatures under the names of the settings, and none under others."""

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(b'{"n": 1}')
        assert (await hooks.deliver()).delivered == 1

    names = {
        "id": "X-Id",
        "timestamp": "X-Time",
        "signature": "X-Sign",
        "receiver": "X-To",
        "receiverSignature": "X-Seal",
    }
    (request,) = run(nats_server, fine, work, delivery={"headerNames": names}).requests
    standard = {"webhook-id": "X-Id", "webhook-timestamp": "X-Time", "webhook-signature": "X-Sign"}
    headers = {name: request.headers[chosen] for name, chosen in standard.items()}

    assert Webhook(SECRET).verify(request.body, headers) == {"n": 1}
    assert request.headers["X-To"].endswith("/in")
    assert request.headers["X-Seal"].startswith("v1,")
    assert not [name for name in request.headers if name.lower().startswith("webhook-")]


def _is_verified(webhook: Webhook, body: bytes, headers: dict[str, str]) -> bool:
    try:
        webhook.verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


def test_new_secrets_take_effect_in_a_running_dispatcher(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are signed with the secrets of the newest version, without a restart."""
    monkeypatch.setenv(SECRET_KEY, new_key())
    first, second = new_secret(), new_secret()

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.subscribe("own", secrets=[first])
        await hooks.publish(b'{"n": 0}', subscription="own")
        stop = threading.Event()
        running = asyncio.create_task(deliver(hooks.route, stop))
        stored = hooks.store.read("own")
        number = 0
        try:
            async with asyncio.timeout(30):
                while not receiver.requests or not _is_verified(
                    Webhook(second), receiver.requests[-1].body, _headers(receiver.requests[-1])
                ):
                    number += 1
                    if receiver.requests and stored.revision == hooks.store.read("own").revision:
                        settings = DeliverySettings.from_mapping({"secrets": [second]})
                        hooks.store.update("own", replace(stored, delivery=settings))
                    await hooks.publish(b'{"n": %d}' % number, subscription="own")
                    await asyncio.sleep(0.1)
        finally:
            stop.set()
            await running

    seen = run(nats_server, fine, work).requests

    assert _is_verified(Webhook(first), seen[0].body, _headers(seen[0]))


def _headers(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def test_secrets_that_no_key_opens(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The attempt fails with the subscription and the variable, and nothing is sent; the right key delivers it."""
    keys, right = tmp_path / "keys", new_key()
    keys.write_text(right)
    monkeypatch.setenv(SECRET_KEY_FILE, str(keys))
    secret = new_secret()

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.subscribe("own", secrets=[secret], retry=[0.2] * 40, breakerFailures=0, jitter=0)
        keys.write_text(new_key())
        await hooks.publish(b"x", subscription="own")
        async with running_dispatcher(hooks, 30) as dispatcher:
            while not dispatcher.counts.failed:
                await asyncio.sleep(0.05)
            (endpoint,) = dispatcher.endpoints()
            assert endpoint.last_error == (
                "the secrets of the subscription 'own' cannot be used: "
                "none of the keys in TURNOUT_SECRET_KEY decrypts it"
            )
            assert receiver.requests == []
            keys.write_text(right)
            while not dispatcher.counts.delivered:
                await asyncio.sleep(0.05)
        assert dispatcher.counts.dead == 0

    (request,) = run(nats_server, fine, work).requests

    assert "webhook-signature" in _headers(request)


def test_retried_until_taken(nats_server: NatsServer) -> None:
    """A failed delivery is tried again under the same id, with a new signature, and others are not held up."""

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(b"bad", *(b"%d" % number for number in range(20)))
        counts = await hooks.deliver()

        assert (counts.delivered, counts.failed, counts.dead) == (21, 2, 0)

    tries: list[Request] = []

    def answer(request: Request) -> web.Response:
        if request.body == b"bad":
            tries.append(request)
        return web.Response(status=503 if request.body == b"bad" and len(tries) < 3 else 200)

    run(nats_server, answer, work, delivery=FAST)

    assert len(tries) == 3
    assert len({request.headers["webhook-id"] for request in tries}) == 1


def test_dead_letters_and_redrive(nats_server: NatsServer) -> None:
    """An exhausted delivery is a dead letter that lists its attempts; redriven, it goes out under the same id."""
    broken = [True]

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        await hooks.publish(b"x", headers={"Kept": "yes"})
        counts = await hooks.deliver()
        ((body, headers),) = await hooks.dead()
        attempts = json.loads(headers["Turnout-Attempts"])

        assert (counts.delivered, counts.failed, counts.dead) == (0, 3, 1)
        assert body == b"x"
        assert headers["Kept"] == "yes"
        assert headers["Turnout-Reason"] == "the last of 3 attempts failed"
        assert [(one["status"], one["error"]) for one in attempts] == [(500, "no <b>")] * 3
        assert all(one["at"] for one in attempts)

        broken[0] = False
        async with opened_queue(hooks.route) as queue:
            assert await queue.redrive() == 1
        assert (await hooks.deliver()).delivered == 1
        assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1

    run(nats_server, lambda _: web.Response(status=500 if broken[0] else 200, text="no <b>"), work, delivery=FAST)


def test_letters_of_a_stream_that_is_made_anew(nats_server: NatsServer) -> None:
    """Their sequences are those of earlier letters, their ids are not: each is stored, and redriven."""
    broken = [True]

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        for body in (b"first", b"second"):
            await hooks.publish(body)
            await hooks.deliver()
            async with connect(hooks.server) as js:
                await js.delete_stream(hooks.name)
        assert [body for body, _ in await hooks.dead()] == [b"first", b"second"]

        broken[0] = False
        for body in (b"third", b"fourth"):
            async with opened_queue(hooks.route) as queue:
                await queue.redrive()
                assert isinstance(queue, DeliveryStreams)
                await hooks.deliver()
                assert await queue.dead.purge() == 0
            async with connect(hooks.server) as js:
                await js.delete_stream(f"{hooks.name}-dead")
            broken[0] = True
            await hooks.publish(body)
            await hooks.deliver()
            broken[0] = False
        assert [request.body for request in receiver.requests if request.body == b"third"] == [b"third"] * 4

    run(nats_server, lambda _: web.Response(status=500 if broken[0] else 200), work, delivery=FAST)


def test_headers_that_cannot_be_stored_again(nats_server: NatsServer) -> None:
    """A delivery that another program has stored with such a name is dead-lettered and redriven without it."""
    broken = [True]

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        async with opened_queue(hooks.route):
            pass
        with Connection.open(hooks.server) as raw:
            subject = delivery_subject(f"{hooks.name}-out", "webhook:e", "").encode()
            head = "NATS/1.0\r\nä: 4\r\nKept: yes\r\n\r\n".encode()
            raw.send(b"HPUB %b %d %d\r\n%bx\r\n" % (subject, len(head), len(head) + 1, head))
            assert raw.ping()
        assert (await hooks.deliver()).dead == 1
        ((body, headers),) = await hooks.dead()
        assert (body, headers["Kept"], "ä" in headers) == (b"x", "yes", False)

        broken[0] = False
        async with opened_queue(hooks.route) as queue:
            assert await queue.redrive() == 1
        assert (await hooks.deliver()).delivered == 1

    run(nats_server, lambda _: web.Response(status=500 if broken[0] else 200), work, delivery=FAST)


def test_single_letters_are_redriven(nats_server: NatsServer) -> None:
    """In any order; the others stay in the list."""
    broken = [True]

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        await hooks.publish(*(b"%d" % number for number in range(4)))
        assert (await hooks.deliver()).dead == 4
        broken[0] = False
        async with opened_queue(hooks.route) as queue:
            assert await queue.redrive(["3"]) == 1
            assert await queue.redrive(["3", "7", "x", "0"]) == 0
            assert await queue.redrive(["1"]) == 1
            assert [letter.position for letter in await queue.letters(10)] == ["4", "2"]
        assert (await hooks.deliver()).delivered == 2

    run(
        nats_server,
        lambda _: web.Response(status=503 if broken[0] else 200),
        work,
        delivery={**FAST, "breakerFailures": 0},
    )


def test_disabled_endpoints_outlast_their_bucket(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list does not expire with attempts; neither does one of an earlier release, once the bucket is opened."""
    monkeypatch.setattr(queue_module, "_KEPT_SECONDS", 2.0)

    async def work() -> None:
        async with connect(nats_server.url) as js:
            bucket = await JetStreamBucket.open(js, "lasting")
            log = await AttemptLog.open(bucket, "HOOKS.1")
            await log.disable("https://new.example/")
            await js.publish("$KV.lasting.disabled", b'["https://old.example/"]')
            await JetStreamBucket.open(js, "lasting")
            await bucket.put("other", b"1")
            while await bucket.get("other") is not None:
                await asyncio.sleep(0.1)
            later = await AttemptLog.open(await JetStreamBucket.open(js, "lasting"), "HOOKS.1")

            assert later.disabled == {"https://old.example/"}
            assert list(later.reasons) == ["https://new.example/"]
            await js.delete_key_value("lasting")

    asyncio.run(work())


def test_gone_disables(nats_server: NatsServer) -> None:
    """After 410 an endpoint gets no request, also not from the next dispatcher, until it is enabled."""
    broken = [True]

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        await hooks.publish(b"1")
        assert (await hooks.deliver()).dead == 1
        await hooks.publish(b"2")
        assert (await hooks.deliver()).dead == 1
        assert len(receiver.requests) == 1

        broken[0] = False
        async with opened_queue(hooks.route) as queue:
            log = await queue.attempts()
            assert await log.enable("webhook:e")
            assert not await log.enable("webhook:other")
            assert await queue.redrive() == 2
        assert (await hooks.deliver()).delivered == 2

    run(nats_server, lambda _: web.Response(status=410 if broken[0] else 200), work)


def _redirect(_: Request) -> web.Response:
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})


async def _slow(_: Request) -> web.Response:
    await asyncio.sleep(5)
    return web.Response()


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (_redirect, 302, ""),
        (_slow, None, "no response within 0.2 s"),
        (lambda _: web.Response(status=400, body=b"a" * 100_000), 400, "a" * 200),
        (lambda _: web.Response(status=200, body=b"a" * 100_000), 200, ""),
    ],
)
def test_limits(nats_server: NatsServer, answer: Any, status: int | None, error: str) -> None:
    """Redirects are not followed, slow answers not waited for, and long ones not read to their end."""

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        await hooks.publish(b"1")
        counts = await hooks.deliver()
        assert len(receiver.requests) == 1
        if status == 200:
            assert counts.delivered == 1
            return
        ((_, headers),) = await hooks.dead()
        (attempt,) = json.loads(headers["Turnout-Attempts"])
        assert (attempt["status"], attempt["error"]) == (status, error)

    run(nats_server, answer, work, delivery={"retry": [], "timeout": 0.2, "maxResponse": 1000})


@pytest.mark.parametrize(
    ("allow", "url", "error"),
    [
        ([], None, "127.0.0.1 is no public address"),
        ([], "http://localhost:1/", "localhost: 127.0.0.1 is no public address"),
        ([], "https://[::ffff:169.254.169.254]/", "::ffff:169.254.169.254 is no public address"),
        ([], "http://2130706433/", "is no address in its usual form"),
        ([], "http://1.1.1.1/", "1.1.1.1 is in no allowed network, and is reached by https:// alone"),
    ],
)
def test_private_addresses(nats_server: NatsServer, allow: list[str], url: str | None, error: str) -> None:
    """No request leads to a private network that is not allowed, whether by address or by name."""

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.allow = allow
        hooks.subscribe("s", retry=[])
        await hooks.publish(b"1", to=url or receiver.url, subscription="s")
        await hooks.deliver()
        ((_, headers),) = await hooks.dead()
        (attempt,) = json.loads(headers["Turnout-Attempts"])
        assert attempt["status"] is None
        assert error in attempt["error"]

    assert run(nats_server, fine, work).requests == []


def test_unknown_endpoint_and_foreign_subject(nats_server: NatsServer) -> None:
    """A name that the route does not have is retried, as it may be added; a foreign subject is a dead letter."""

    async def work(hooks: Hooks, _: Receiver) -> None:
        from turnout.nats.jetstream import connect

        hooks.subscribe("s", retry=[0.05])
        await hooks.publish(b"1", to="webhook:none", subscription="s")
        async with connect(nats_server.url) as js:
            await js.publish(f"{hooks.name}-out.for.eign", b"2")
            for destination in ("http://a b/", "https:///in", "http://a/ HTTP/1.1\r\nX: y"):
                await js.publish(delivery_subject(f"{hooks.name}-out", destination, ""), b"3")
        counts = await hooks.deliver()
        reasons = {headers["Turnout-Reason"] for _, headers in await hooks.dead()}

        assert (counts.dead, counts.failed, counts.requests) == (5, 2, 0)
        assert {reason.partition(":")[0] for reason in reasons} == {
            "its subject has no endpoint",
            "the last of 2 attempts failed",
        }
        assert "its subject has no endpoint: 'https:///in' is no URL of a webhook: it has no host" in reasons

    run(nats_server, fine, work)


def test_order(nats_server: NatsServer) -> None:
    """``ordered`` blocks the queue behind a failure."""
    tries: list[bytes] = []

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.subscribe("s", ordered=True, **FAST)
        await hooks.publish(*(b"%d" % number for number in range(10)), subscription="s")
        assert (await hooks.deliver()).delivered == 10
        assert list(dict.fromkeys(receiver.bodies)) == [b"%d" % number for number in range(10)]
        assert receiver.bodies.count(b"3") == 3

    def answer(request: Request) -> web.Response:
        tries.append(request.body)
        return web.Response(status=500 if request.body == b"3" and tries.count(b"3") < 3 else 200)

    run(nats_server, answer, work)


def test_order_by(nats_server: NatsServer) -> None:
    """``orderBy`` blocks the messages of the same key alone."""
    tries: list[bytes] = []

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.subscribe("s", orderBy="value.k", **FAST)
        bodies = [json.dumps({"k": key, "n": number}).encode() for number in range(5) for key in "ab"]
        await hooks.publish(*bodies, subscription="s")
        assert (await hooks.deliver()).delivered == 10
        events = [json.loads(body) for body in receiver.bodies]
        for key in "ab":
            assert list(dict.fromkeys(event["n"] for event in events if event["k"] == key)) == [0, 1, 2, 3, 4]
        last_b = max(index for index, event in enumerate(events) if event["k"] == "b")
        first_a_1 = min(index for index, event in enumerate(events) if event == {"k": "a", "n": 1})
        assert last_b < first_a_1

    def answer(request: Request) -> web.Response:
        tries.append(request.body)
        first = b'{"k": "a", "n": 0}'
        return web.Response(status=500 if request.body == first and tries.count(first) < 3 else 200)

    run(nats_server, answer, work)


def test_cloudevents_batch(nats_server: NatsServer) -> None:
    """A batched request is a JSON list, signed as it is sent; its events are those that an input reads."""

    async def work(hooks: Hooks, _: Receiver) -> None:
        headers = {"ce_type": "order.new", "ce_subject": "ü"}
        await hooks.publish(b'{"n": 1}', b"\xff", headers=headers)
        assert (await hooks.deliver()).delivered == 2

    seen = run(nats_server, fine, work, delivery={"format": "cloudevents-batched"}).requests
    found = []
    for request in seen:
        headers = {name.lower(): value for name, value in request.headers.items()}
        (event,) = Webhook(SECRET).verify(request.body, headers)
        (message,) = messages_of("cloudevents", headers, request.body)
        assert headers["content-type"] == "application/cloudevents-batch+json"
        assert (event["id"], event["type"], event["subject"]) == (headers["webhook-id"], "order.new", "ü")
        assert message.headers["ce-type"] == "order.new"
        found.append(message.body)

    assert sorted(found) == [b'{"n": 1}', b"\xff"]


def test_concurrency(nats_server: NatsServer) -> None:
    """No more requests are under way than the settings allow, and as many are."""
    now, most = [0], [0]

    async def answer(_: Request) -> web.Response:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.02)
        now[0] -= 1
        return web.Response()

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(*(b"%d" % number for number in range(40)))
        assert (await hooks.deliver()).delivered == 40

    run(nats_server, answer, work, delivery={"concurrency": 4})

    assert most[0] == 4


def test_too_many_wait(nats_server: NatsServer) -> None:
    """Messages beyond ``maxWaiting`` are dead letters, and no message is lost."""

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(*(b"%d" % number for number in range(20)))
        counts = await hooks.deliver()
        assert counts.delivered + counts.dead == 20
        assert counts.dead >= 10
        assert {headers["Turnout-Reason"] for _, headers in await hooks.dead()} == {"5 messages wait for the endpoint"}

    async def answer(_: Request) -> web.Response:
        await asyncio.sleep(0.3)
        return web.Response()

    run(nats_server, answer, work, delivery={"concurrency": 1, "maxWaiting": 5})


def test_breaker(nats_server: NatsServer) -> None:
    """A dead endpoint gets probes alone, which use up few attempts; once it is back, everything arrives."""
    broken = [True]

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        await hooks.publish(*(b"%d" % number for number in range(30)))
        delivering = asyncio.create_task(hooks.deliver())
        await asyncio.sleep(1.0)
        while_broken = len(receiver.requests)
        broken[0] = False
        counts = await delivering
        assert counts.delivered == 30
        assert counts.dead == 0
        assert while_broken <= 8

    settings = {"concurrency": 2, "breakerFailures": 2, "breakerPause": 0.2, "retry": [0.1] * 20}
    run(nats_server, lambda _: web.Response(status=503 if broken[0] else 200), work, delivery=settings)


def test_isolation(nats_server: NatsServer) -> None:
    """Endpoints that hang, with more messages than are kept in memory, hold up no other: those get everything first."""
    release, others = asyncio.Event(), [0]

    async def answer(request: Request) -> web.Response:
        if request.path.startswith("/hangs"):
            await release.wait()
        else:
            others[0] += 1
            if others[0] == 10 * 50:
                release.set()
        return web.Response()

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        address = receiver.url.removesuffix("/in")
        for number in range(5):
            await hooks.publish(*(b"%d" % n for n in range(1_500)), to=f"{address}/hangs/{number}")
        for number in range(10):
            await hooks.publish(*(b"%d" % n for n in range(50)), to=f"{address}/works/{number}")
        counts = await hooks.deliver(150)
        assert counts.delivered == 5 * 1_500 + 10 * 50

    run(nats_server, answer, work)


def test_quota_of_a_tenant(nats_server: NatsServer) -> None:
    """Requests above it wait over all lanes of the tenant, none is lost, and other tenants' are delivered meanwhile.

    A higher quota takes effect in the running dispatcher.
    """
    count = 60

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        for id_, delivery in (("@acme/a", DeliverySettings(max_waiting=10)), ("@acme/b", None)):
            hooks.store.create(Subscription(["d"], "a:1", id=id_, delivery=delivery, deliveries=2))
        hooks.store.create(Subscription(["d"], "a:1", id="@bolt/a"))
        for id_ in ("@acme/a", "@acme/b", "@bolt/a"):
            await hooks.publish(*(b"%b %d" % (id_.encode(), n) for n in range(count)), subscription=id_)
        async with running_dispatcher(hooks, 60) as dispatcher:
            while sum(body.startswith(b"@bolt") for body in receiver.bodies) < count:
                await asyncio.sleep(0.05)
            lanes = {(one.subscription, one.tenant): one.waiting for one in dispatcher.endpoints()}
            assert lanes.keys() == {("@acme/a", "acme"), ("", "acme"), ("", "")}
            assert lanes["@acme/a", "acme"] > 10
            assert sum(body.startswith(b"@acme") for body in receiver.bodies) < count
            hooks.store.update("@acme/b", replace(hooks.store.read("@acme/b"), deliveries=1_000))
            while dispatcher.counts.delivered < 3 * count:
                await asyncio.sleep(0.05)
        assert dispatcher.counts.dead == 0

    assert len(set(run(nats_server, fine, work).bodies)) == 3 * count


def test_messages_above_a_quota_go_back_to_the_queue(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full lane that waits for its quota holds up no others, and none of its messages becomes a dead letter."""
    monkeypatch.setattr(settings, "_MAX_HELD_DELIVERIES", 8)
    count = 60

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        limited = DeliverySettings(max_waiting=10, concurrency=2)
        hooks.store.create(Subscription(["d"], "a:1", id="@acme/a", delivery=limited, deliveries=1))
        for id_ in ("@acme/a", "@bolt/a"):
            await hooks.publish(*(b"%b %d" % (id_.encode(), n) for n in range(count)), subscription=id_)
        async with running_dispatcher(hooks, 60) as dispatcher:
            while sum(body.startswith(b"@bolt") for body in receiver.bodies) < count:
                await asyncio.sleep(0.05)

        assert dispatcher.counts.parked > count // 2
        assert (dispatcher.counts.dead, dispatcher.counts.failed) == (0, 0)
        assert sum(body.startswith(b"@acme") for body in receiver.bodies) < count

    run(nats_server, fine, work)


def test_certificates_are_verified(nats_server: NatsServer, tmp_path: Path) -> None:
    """An endpoint with a certificate of an unknown authority gets no request."""
    made = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made / "server.pem", made / "server.key")

    async def work(hooks: Hooks, _: Receiver) -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        async with server:
            hooks.subscribe("s", retry=[])
            hooks.allow = ["127.0.0.0/8", "::1/128"]
            url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
            await hooks.publish(b"1", to=url, subscription="s")
            await hooks.deliver()
        ((_body, headers),) = await hooks.dead()
        assert "CERTIFICATE_VERIFY_FAILED" in headers["Turnout-Attempts"]

    run(nats_server, fine, work)


def test_server_restarts(tmp_path: Path) -> None:
    """A restart of nats-server ends no dispatcher, and every message arrives."""

    async def answer(request: Request) -> web.Response:
        await asyncio.sleep(0.01)
        return web.Response(status=503 if request.number % 10 == 0 else 200)

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        bodies = [b"%d" % number for number in range(600)]
        await hooks.publish(*bodies)
        delivering = asyncio.create_task(hooks.deliver(150))
        while len(receiver.requests) < 100:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.restart)
        counts = await delivering
        assert counts.dead == 0
        assert set(receiver.bodies) == set(bodies)

    with NatsServer(tmp_path) as server:
        run(server, answer, work, delivery={"retry": [0.1] * 20})


ABSURD = [
    "Thu, 01 Jan 99999999999999999999 00:00:00 GMT",
    "Thu, 99999999999999999999 Jan 2026 00:00:00 GMT",
    f"Thu, 01 Jan 2026 00:01:00 +{'9' * 20}",
    "-1",
    "1e9",
    "",
]


def test_absurd_waits(nats_server: NatsServer) -> None:
    """No Retry-After of an endpoint stops the dispatcher: such a text is none."""
    asked = iter([*ABSURD, *ABSURD])

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(*(b"%d" % number for number in range(6)))
        counts = await hooks.deliver()

        assert (counts.delivered, counts.failed, counts.dead) == (6, 12, 0)

    def answer(request: Request) -> web.Response:
        text = next(asked, None)
        status = 204 if text is None else 503 if len(text) % 2 else 429
        return web.Response(status=status, headers={} if text is None else {"Retry-After": text})

    run(nats_server, answer, work, delivery={"retry": [0.05] * 12, "jitter": 0, "breakerFailures": 0})


@pytest.mark.parametrize(
    "settings", [{"format": "cloudevents-structured"}, {"format": "cloudevents-batched"}, {"orderBy": "value.a"}]
)
def test_bodies_that_are_no_text(nats_server: NatsServer, settings: dict[str, str]) -> None:
    """A record that is not UTF-8 is delivered, in base64 where the form is JSON, and so are the others."""
    bodies = (b'{"a":"\xff"}', b'{"a":"x"}', b'{"\xff":1}', b"[" * 50_000, b"\xff")

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(*bodies)
        assert (await hooks.deliver()).delivered == len(bodies)

    run(nats_server, fine, work, delivery=settings)


def test_a_record_without_a_request(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of which no request can be made fails by its schedule; it says nothing about its endpoint."""
    make = request_of

    def broken(settings: Any, identity: str, headers: Any, body: bytes, *rest: Any) -> Any:
        if body.startswith(b"bad"):
            raise LookupError("a bug")
        return make(settings, identity, headers, body, *rest)

    monkeypatch.setattr(dispatcher, "request_of", broken)

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(*(b"bad%d" % number for number in range(10)), *(b"%d" % number for number in range(10)))
        async with running_dispatcher(hooks, 30) as running:
            while running.counts.dead + running.counts.delivered < 20:
                await asyncio.sleep(0.02)
            (state,) = running.endpoints()
            assert state.state == "closed"
            assert (running.counts.delivered, running.counts.dead) == (10, 10)
        headers = (await hooks.dead())[0][1]
        assert "no request can be made of it: LookupError: a bug" in headers["Turnout-Attempts"]

    run(nats_server, fine, work, delivery={**FAST, "breakerFailures": 2, "breakerPause": "10m"})


@pytest.mark.parametrize("failure", [ValueError("a bug"), KeyError(1), RecursionError(), OverflowError()])
@pytest.mark.parametrize("place", ["next_attempt", "identity", "_accept"])
def test_a_bug_in_one_delivery(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, place: str, failure: Exception
) -> None:
    """Whatever is raised for one message, the others are delivered, and it comes again."""
    owner: Any = Dispatcher if place == "_accept" else Failures
    usual = getattr(owner, place)
    raised: list[int] = []

    def wrapped(self: Any, *args: Any) -> Any:
        message = args[2] if place == "_accept" else next(arg for arg in args if isinstance(arg, Delivery)).message
        if message.data == b"bad" and len(raised) < 3:
            raised.append(1)
            raise failure
        return usual(self, *args)

    monkeypatch.setattr(owner, place, wrapped)
    monkeypatch.setattr(dispatcher, "_PARK_SECONDS", (0.05, 0.05))

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(b"bad", *(b"%d" % number for number in range(5)))
        counts = await hooks.deliver()
        assert (counts.delivered, counts.dead) == (5, 1) if place == "next_attempt" else (6, 0)

    seen = run(
        nats_server,
        lambda request: web.Response(status=503 if request.body == b"bad" and place == "next_attempt" else 204),
        work,
        delivery={"retry": [0.05] * 8, "jitter": 0, "breakerFailures": 0},
    )
    assert raised == [1, 1, 1]
    assert {request.body for request in seen.requests} == {b"bad", *(b"%d" % number for number in range(5))}


def test_one_unreadable_subscription(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription that the store cannot read is a failure of its own deliveries, which says why."""
    read = MemoryStore.read

    def broken(self: MemoryStore, id_: str) -> Subscription:
        if id_ == "bad":
            raise ValueError("damaged")
        return read(self, id_)

    async def work(hooks: Hooks, _: Receiver) -> None:
        hooks.subscribe("good", **FAST)
        await hooks.publish(b"1", subscription="bad")
        await hooks.publish(b"2", b"3", subscription="good")
        async with running_dispatcher(hooks, 30) as running:
            while running.counts.delivered < 2 or not running.counts.failed:
                await asyncio.sleep(0.02)

    monkeypatch.setattr(MemoryStore, "read", broken)
    assert run(nats_server, fine, work).bodies == [b"2", b"3"]


@pytest.mark.parametrize("room", [800, 300, 100, 0])
def test_a_delivery_as_large_as_the_server_takes(nats_server: NatsServer, room: int) -> None:
    """It becomes a dead letter after its schedule, with what fits of its end, and can be redriven."""
    body = b"x" * ((1 << 20) - room)

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        async with opened_queue(hooks.route):
            pass
        async with connect(nats_server.url) as js:
            await js.publish(delivery_subject(f"{hooks.name}-out", "webhook:e", ""), body)
        counts = await hooks.deliver()
        assert (counts.failed, counts.dead, len(receiver.requests)) == (3, 1, 3)
        ((letter, headers),) = await hooks.dead()
        assert letter == body
        assert ("Turnout-Webhook-Id" in headers) == (room > 99)
        async with opened_queue(hooks.route) as queue:
            assert await queue.redrive() == 1
        assert (await hooks.deliver()).dead == 1

    run(nats_server, lambda _: web.Response(status=500, text="e" * 200), work, delivery=FAST)


def test_an_outcome_that_cannot_be_stored(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that an endpoint has taken is not posted again while its acknowledgement fails, nor a dead one."""
    failures = iter(range(6))

    def away(*_: Any) -> None:
        if next(failures, None) is not None:
            raise ConnectionLostError("away")

    ack, store_dead = Message.ack_now, DeliveryStreams.store_dead

    def unsure_ack(self: Message) -> None:
        away()
        ack(self)

    dispatchers: list[Dispatcher] = []
    problems: list[str] = []
    init = Dispatcher.__init__

    def noted(self: Dispatcher, *args: Any) -> None:
        init(self, *args)
        dispatchers.append(self)

    async def unsure_letter(self: DeliveryStreams, *args: Any) -> None:
        problems.extend(one.problem for one in dispatchers)
        away()
        await store_dead(self, *args)

    monkeypatch.setattr(Dispatcher, "__init__", noted)

    monkeypatch.setattr(Message, "ack_now", unsure_ack)
    monkeypatch.setattr(DeliveryStreams, "store_dead", unsure_letter)
    monkeypatch.setattr(dispatcher, "_SERVER_SECONDS", 0.05)

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(b"good", b"bad")
        counts = await hooks.deliver()
        assert (counts.delivered, counts.dead, counts.requests) == (1, 1, 4)
        assert [one.problem for one in dispatchers] == [""]
        assert (counts.unstored, counts.stored_late) == (2, 2)

    run(nats_server, lambda request: web.Response(status=204 if request.body == b"good" else 500), work, delivery=FAST)
    assert any("wait to be stored, as dead letters or attempts: away" in problem for problem in problems)


def test_the_signature_names_the_receiver(nats_server: NatsServer) -> None:
    """Its own signature binds a request to its URL; the usual library still verifies the usual one."""

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(b'{"n": 1}')
        assert (await hooks.deliver()).delivered == 1

    receiver = run(nats_server, fine, work, secrets=[SECRET, OTHER_SECRET])
    headers = _headers(receiver.requests[0])
    key = b64decode(SECRET.removeprefix("whsec_"))

    def signature(url: str) -> str:
        content = f"receiver\n{url}\n{headers['webhook-signature']}".encode()
        return f"v1,{b64encode(hmac.digest(key, content, 'sha256')).decode()}"

    assert headers["webhook-receiver"] == receiver.url
    assert signature(receiver.url) in headers["webhook-receiver-signature"].split(" ")
    assert signature("https://other.example/in") not in headers["webhook-receiver-signature"].split(" ")
    assert _is_verified(Webhook(SECRET), receiver.requests[0].body, headers)
    forged = {**headers, "webhook-signature": headers["webhook-receiver-signature"]}
    assert not _is_verified(Webhook(SECRET), receiver.requests[0].body, forged)


def test_retry_after_holds_for_the_endpoint(nats_server: NatsServer) -> None:
    """After a 503 with Retry-After no message of the endpoint is sent until then, of other settings as well; the
    pause ends by the longest that the settings allow."""
    times: list[float] = []

    def answer(_: Request) -> web.Response:
        times.append(asyncio.get_running_loop().time())
        return web.Response(status=503, headers={"Retry-After": "3000"}) if len(times) == 1 else fine(_)

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.subscribe("a", retryAfter="1s", concurrency=1, **FAST)
        hooks.subscribe("b", retryAfter="2s", **FAST)
        async with running_dispatcher(hooks, 60):
            await hooks.publish(b"a1", b"a2", subscription="a")
            while not receiver.requests:
                await asyncio.sleep(0.01)
            await hooks.publish(b"b1", b"b2", subscription="b")
            while len(receiver.requests) < 5:
                await asyncio.sleep(0.01)

    bodies = run(nats_server, answer, work).bodies

    assert sorted(bodies) == [b"a1", b"a1", b"a2", b"b1", b"b2"]
    assert bodies[0] == b"a1"
    assert {body[:1] for body in bodies[:3]} == {b"a"}
    assert min(times[1:]) - times[0] >= 0.95
    assert min(time for time, body in zip(times, bodies, strict=True) if body.startswith(b"b")) - times[0] >= 1.95


def test_retry_after_of_a_message(nats_server: NatsServer) -> None:
    """The Retry-After of another status holds for its message: others are sent meanwhile."""

    def answer(request: Request) -> web.Response:
        return web.Response(status=409, headers={"Retry-After": "3000"}) if request.body == b"1" else fine(request)

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        async with running_dispatcher(hooks, 30):
            await hooks.publish(b"1")
            while not receiver.requests:
                await asyncio.sleep(0.01)
            await hooks.publish(b"2")
            while b"2" not in receiver.bodies:
                await asyncio.sleep(0.01)

    run(nats_server, answer, work, delivery=FAST)


LASTING = {"retry": [0.02] * 30, "jitter": 0, "disableAfter": "100ms", "breakerFailures": 0}


def test_disabled_after_failures(nats_server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    """An endpoint that has failed for long is disabled with an error in the log, an event and a notice; the next
    dispatcher keeps it so, and the command enables it with its failures forgotten."""
    notices = Receiver()
    events: list[object] = []
    broken = [True]

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        async with notices.serving():
            hooks.webhooks = {"notices": "webhook:ops"}
            hooks.others = {"ops": {"url": notices.url, "secrets": [SECRET]}}
            await hooks.publish(b"1", b"2")

            def ready(dispatcher: Dispatcher) -> None:
                dispatcher.report = events.append

            counts = await deliver(hooks.route, threading.Event(), drain=True, ready=ready)
            assert (counts.dead, counts.delivered) == (2, 1)
            assert counts.failed == counts.retried + counts.dead - counts.discarded
            assert counts.requests + counts.not_sent == counts.delivered + counts.failed
            reasons = [headers["Turnout-Reason"] for _, headers in await hooks.dead()]
            assert all(reason.startswith("the endpoint is disabled by failures since ") for reason in reasons)
            sent = len(receiver.requests)
            await hooks.publish(b"3")
            assert (await hooks.deliver()).not_sent == 1
            assert len(receiver.requests) == sent
            broken[0] = False
            assert await dispatcher.enable(hooks.route, ["webhook:e"]) == ["webhook:e"]
            await hooks.publish(b"4")
            assert (await hooks.deliver()).delivered == 1

    run(nats_server, lambda _: web.Response(status=500 if broken[0] else 204), work, delivery=LASTING)

    (notice,) = [json.loads(body) for body in notices.bodies]
    assert (notice["type"], notice["destination"]) == ("endpoint.disabled", "webhook:e")
    assert notice["reason"].startswith("disabled by failures since ")
    ((event),) = events
    assert isinstance(event, DeliveryEvent)
    assert (event.kind, event.destination) == ("endpoint.disabled", "webhook:e")
    assert "webhook:e is disabled by failures since" in caplog.text


def test_disabled_for_one_tenant(nats_server: NatsServer) -> None:
    """The failures of a tenant's messages disable an endpoint for this tenant alone."""

    def answer(request: Request) -> web.Response:
        return web.Response(status=401 if request.body.startswith(b"a") else 204)

    async def work(hooks: Hooks, _: Receiver) -> None:
        hooks.subscribe("@acme/s", **LASTING)
        hooks.subscribe("@other/s", **LASTING)
        await hooks.publish(b"a1", subscription="@acme/s")
        assert (await hooks.deliver()).dead == 1
        await hooks.publish(b"a2", subscription="@acme/s")
        await hooks.publish(b"b1", subscription="@other/s")
        counts = await hooks.deliver()
        assert (counts.dead, counts.not_sent, counts.delivered) == (1, 1, 1)
        assert await dispatcher.enable(hooks.route, ["webhook:e"]) == ["webhook:e"]

    run(nats_server, answer, work)


def test_failures_outlive_a_dispatcher(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of failures goes on over a restart, and a success forgets it."""
    monkeypatch.setattr(failures, "_KEPT_SECONDS", 0.0)
    broken = [True]
    settings = {**LASTING, "retry": [0.02] * 7, "disableAfter": "1ms"}

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(b"1")
        assert (await hooks.deliver()).failed == 8
        async with opened_queue(hooks.route) as queue:
            log = await queue.attempts()
            assert not log.disabled
            kept = await log.failing("webhook:e")
            assert kept is not None
            assert kept.failures == 8
        await hooks.publish(b"2")
        assert (await hooks.deliver()).failed == 2
        broken[0] = False
        await dispatcher.enable(hooks.route, ["webhook:e"])
        await hooks.publish(b"3")
        assert (await hooks.deliver()).delivered == 1
        async with opened_queue(hooks.route) as queue:
            assert await (await queue.attempts()).failing("webhook:e") is None

    run(nats_server, lambda _: web.Response(status=500 if broken[0] else 204), work, delivery=settings)


@asynccontextmanager
async def _one_under_way(
    hooks: Hooks, receiver: Receiver
) -> AsyncIterator[tuple[threading.Event, Any, list[Dispatcher]]]:
    """A dispatcher whose first request is at the receiver; yields its stop, its task and itself."""
    await hooks.publish(b"1")
    stop, dispatchers = threading.Event(), list[Dispatcher]()
    running = asyncio.create_task(deliver(hooks.route, stop, ready=dispatchers.append))
    while not receiver.requests:
        await asyncio.sleep(0.01)
    yield stop, running, dispatchers


def test_requests_under_way_end(nats_server: NatsServer) -> None:
    """A dispatcher that is stopped waits for the outcome of its request, and begins no other; nothing is repeated."""
    let_go = asyncio.Event()

    async def answer(request: Request) -> web.Response:
        await let_go.wait()
        return fine(request)

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        async with _one_under_way(hooks, receiver) as (stop, running, (first,)):
            await hooks.publish(b"2")
            while first.held < 2:
                await asyncio.sleep(0.01)
            stop.set()
            while not first._is_ending:
                await asyncio.sleep(0.01)
            let_go.set()
            counts = await running
            assert (counts.delivered, counts.requests, counts.unfinished) == (1, 1, 0)
        assert (await hooks.deliver(60)).delivered == 1

    assert run(nats_server, answer, work, delivery={"concurrency": 1}).bodies == [b"1", b"2"]


def test_the_end_is_bounded(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that does not answer holds up no end; the request is counted as unfinished."""
    monkeypatch.setattr(dispatcher, "_END_SECONDS", 0.1)

    async def answer(_: Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        async with _one_under_way(hooks, receiver) as (stop, running, _):
            stop.set()
            counts = await running
            assert (counts.requests, counts.unfinished, counts.delivered) == (1, 1, 0)

    run(nats_server, answer, work)


def test_backlog(nats_server: NatsServer) -> None:
    """The queue and its dispatcher tell how many messages wait, those between attempts included, and since when."""
    broken = [True]
    begun = datetime.now(UTC)

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        await hooks.publish(b"1", b"2", b"3")
        async with opened_queue(hooks.route) as queue:
            backlog = await queue.backlog()
            assert backlog.waiting == 3
            assert backlog.oldest is not None
            assert -2 <= (backlog.oldest - begun).total_seconds() < 60
            async with running_dispatcher(hooks, 60) as running:
                while len(receiver.requests) < 3 or running.backlog is None:
                    await asyncio.sleep(0.01)
                assert running.backlog.waiting == 3
                assert (await queue.backlog()).waiting == 3
            broken[0] = False
            assert (await hooks.deliver()).delivered == 3
            assert await queue.backlog() == Backlog(0, None)

    retry = {"retry": [5.0] * 10, "jitter": 0}
    run(nats_server, lambda _: web.Response(status=500 if broken[0] else 204), work, delivery=retry)
