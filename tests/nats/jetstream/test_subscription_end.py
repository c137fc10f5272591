"""ADR-15 on a real server: how subscriptions end, and what they leave (B46 to B50)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.nats.jetstream.support import Errors, Proxy, asynchronous, eventually, push, stream_of_messages, unbound

from turnout.embedded import NatsServer
from turnout.nats.jetstream import ConsumerConfig, Message, connect
from turnout.nats.jetstream.errors import (
    ConsumerBoundError,
    ConsumerNotFoundError,
)
from turnout.nats.jetstream.subscribe import create_consumer


@asynchronous
async def test_b46_unsubscribe_deletes(nats_server: NatsServer) -> None:
    """B46: what was created here is deleted, after the subscription; a failure is raised."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        sub = await js.subscribe(f"{subject}.a", durable="D")
        pull = await js.pull_subscribe(f"{subject}.a", durable="P")
        await sub.unsubscribe()
        await pull.unsubscribe()
        tail = [frame.split(b" ")[0] for frame in proxy.sent if b"UNSUB" in frame or b"CONSUMER.DELETE" in frame]
        assert await stream.consumer_names() == []
        assert tail[:2] == [b"UNSUB", b"PUB"]

        again = await js.subscribe(f"{subject}.a", durable="D")
        await stream.delete_consumer("D")
        with pytest.raises(ConsumerNotFoundError):
            await again.unsubscribe()
        assert again.closed


@asynchronous
async def test_b47_what_existed_stays(nats_server: NatsServer) -> None:
    """B47: a consumer that was there before is not deleted, by unsubscribe or by drain."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        await create_consumer(js.api, stream.name, push("d47", durable_name="D"))
        await stream.create_consumer(ConsumerConfig(durable_name="P"))
        for end in ("unsubscribe", "drain"):
            await eventually(lambda: unbound(stream, "D"))
            for sub in (
                await js.subscribe(f"{subject}.a", lambda m: None, durable="D"),
                await js.pull_subscribe(f"{subject}.a", durable="P"),
            ):
                await getattr(sub, end)()
                assert sorted(await stream.consumer_names()) == ["D", "P"]


@asynchronous
async def test_b48_drain(nats_server: NatsServer) -> None:
    """B48: drain hands over what was received, then deletes; a failure goes to the error callback."""
    errors = Errors()
    messages: list[Any] = []
    async with connect(nats_server.url, error_callback=errors) as js:
        stream, subject = await stream_of_messages(js, 200)

        async def slow(message: Message) -> None:
            await asyncio.sleep(0.001)
            assert sub.consumer_name in await stream.consumer_names() if len(messages) == 100 else True
            messages.append(message)

        sub = await js.subscribe(f"{subject}.a", slow)
        await eventually(lambda: sub.pending > 50)
        received = len(messages) + sub.pending
        await sub.drain()
        assert errors == []
        assert len(messages) >= received
        assert await stream.consumer_names() == []

        doomed = await js.subscribe(f"{subject}.a", lambda m: None)
        await stream.delete_consumer(doomed.consumer_name)
        await doomed.drain()
        assert isinstance(errors[0], ConsumerNotFoundError)


@asynchronous
async def test_b49_discarded_subscription(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """B49: the subscription that lost the race does not delete the winner's consumer."""
    async with connect(nats_server.url) as js, connect(nats_server.url) as rival:
        stream, subject = await stream_of_messages(js, 1)
        await rival.subscribe(f"{subject}.a", durable="D", config=ConsumerConfig(max_ack_pending=5))
        real, calls = js.api.call, 0

        async def call(what: str, *args: Any, **kwargs: Any) -> dict[str, object]:
            nonlocal calls
            if what.startswith("CONSUMER.INFO") and not calls:
                calls += 1
                raise ConsumerNotFoundError("as it was a moment ago", code=404, err_code=10014)
            return await real(what, *args, **kwargs)

        monkeypatch.setattr(js.api, "call", call)
        with pytest.raises(ConsumerBoundError):
            await js.subscribe(f"{subject}.a", durable="D")
        assert await stream.consumer_names() == ["D"]


@asynchronous
async def test_b50_queue_members(nats_server: NatsServer) -> None:
    """B50: a queue's consumer outlives the member that made it, unless that member asks to delete it."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js)
        first = await js.subscribe(f"{subject}.a", queue="shared")
        second = await js.subscribe(f"{subject}.a", queue="shared")
        await first.unsubscribe()
        await js.publish(f"{subject}.a")
        await second.next()
        await second.unsubscribe()
        assert await stream.consumer_names() == ["shared"]

        await stream.delete_consumer("shared")
        owner = await js.subscribe(f"{subject}.a", queue="shared", delete_consumer=True)
        await owner.unsubscribe()
        assert await stream.consumer_names() == []
