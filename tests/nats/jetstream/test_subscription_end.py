"""ADR-15 on a real server: how subscriptions end, and what they leave (B46 to B50)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.nats.jetstream.support import Errors, Proxy, asynchronous, eventually, push, stream_of_messages, unbound

from turnout.embedded import NatsServer
from turnout.nats.jetstream import Consumer, ConsumerConfig, JetStream, Message, connect
from turnout.nats.jetstream.errors import ConsumerBoundError, ConsumerNotFoundError, StreamError
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


async def _durables(js: JetStream, subject: str) -> None:
    """Make a push and a pull durable, a queue's, a consumer with a name, and ephemerals."""
    await js.subscribe(f"{subject}.a", durable="push")
    await js.pull_subscribe(f"{subject}.a", durable="pull")
    await js.pull_subscribe(f"{subject}.a", config=ConsumerConfig(durable_name="configured"))
    await js.pull_subscribe(f"{subject}.a", config=ConsumerConfig(name="named", inactive_threshold=60))
    await js.subscribe(f"{subject}.a", queue="queue")
    await js.subscribe(f"{subject}.a")
    await js.pull_subscribe(f"{subject}.a")
    await js.ordered(f"{subject}.a")


_KEPT = ["configured", "named", "pull", "push", "queue"]


@asynchronous
async def test_closing_keeps_what_has_a_name(nats_server: NatsServer) -> None:
    """The end of a connection, also by an exception or a drain, deletes ephemerals and keeps what has a name."""
    async with connect(nats_server.url) as watch:
        for end in ("block", "exception", "close", "drain"):
            stream, subject = await stream_of_messages(watch, 3)
            with contextlib.suppress(ZeroDivisionError):
                async with connect(nats_server.url) as js:
                    await _durables(js, subject)
                    if end == "exception":
                        raise ZeroDivisionError
                    if end != "block":
                        await getattr(js, end)()

            assert (end, sorted(await stream.consumer_names())) == (end, _KEPT)


@asynchronous
async def test_the_next_start_goes_on(nats_server: NatsServer) -> None:
    """A program that begins again continues behind its acknowledgements, by pull and by push."""
    async with connect(nats_server.url) as watch:
        stream, subject = await stream_of_messages(watch, retention="interest")
        async with connect(nats_server.url) as js:
            await js.pull_subscribe(f"{subject}.a", durable="pull")
            await js.subscribe(f"{subject}.a", durable="push")
        await eventually(lambda: unbound(stream, "push"))
        for number in range(4):
            await watch.publish(f"{subject}.a", b"%d" % number)
        received: dict[str, list[bytes]] = {"pull": [], "push": []}
        for _ in range(2):
            async with connect(nats_server.url) as js:
                for message in await (await js.pull_subscribe(f"{subject}.a", durable="pull")).fetch(2):
                    received["pull"].append(message.data)
                    await message.double_ack()
                async with await js.subscribe(f"{subject}.a", durable="push") as pushed:
                    for _ in range(2):
                        message = await pushed.next()
                        received["push"].append(message.data)
                        await message.double_ack()
            await eventually(lambda: unbound(stream, "push"))

        assert received == {"pull": [b"0", b"1", b"2", b"3"], "push": [b"0", b"1", b"2", b"3"]}


@asynchronous
async def test_leaving_the_block_of_a_subscription(nats_server: NatsServer) -> None:
    """The end of a subscription's block keeps a durable and deletes an ephemeral; *delete_consumer* overrides both."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        async with (
            await js.subscribe(f"{subject}.a", durable="D"),
            await js.pull_subscribe(f"{subject}.a", durable="P"),
        ):
            pass
        async with await js.subscribe(f"{subject}.a"), await js.pull_subscribe(f"{subject}.a"):
            pass
        assert sorted(await stream.consumer_names()) == ["D", "P"]

        for name in ("D", "P"):
            await stream.delete_consumer(name)
        async with await js.subscribe(f"{subject}.a", durable="D", delete_consumer=True):
            await js.pull_subscribe(f"{subject}.a", durable="P", delete_consumer=True)
            ephemeral = await js.pull_subscribe(f"{subject}.a", delete_consumer=False)
    async with connect(nats_server.url) as js:
        assert await (await js.stream(stream.name)).consumer_names() == [ephemeral.consumer_name]


@asynchronous
async def test_closing_gives_back_what_was_not_taken(nats_server: NatsServer) -> None:
    """Messages that a closed push subscription had received go to the next one without a wait for their acks."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 5)
        async with await js.subscribe(f"{subject}.a", durable="D", config=ConsumerConfig(ack_wait=600)) as first:
            await eventually(lambda: first.pending == 5)
        await eventually(lambda: unbound(stream, "D"))
        async with await js.subscribe(f"{subject}.a", durable="D") as second:
            assert sorted([(await second.next()).sequence for _ in range(5)]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("end", ["unsubscribe", "drain", "close"])
@pytest.mark.parametrize("state", ["idle", "fetching", "pulling", "foreign"])
@asynchronous
async def test_shared_pull_durable(nats_server: NatsServer, end: str, state: str) -> None:
    """The first worker of a shared pull durable ends, and the others go on; the last one to end is not its owner."""
    async with connect(nats_server.url) as first, connect(nats_server.url) as second:
        stream, subject = await stream_of_messages(first)
        creator = await first.pull_subscribe(f"{subject}.a", durable="D")
        other: Consumer
        if state == "foreign":
            # A client of another library: nothing but its pull request is visible.
            other = Consumer(second.api, stream.name, "D")
        else:
            other = await second.pull_subscribe(f"{subject}.a", durable="D")
        waiting: asyncio.Task[Message] | None = None
        if state == "pulling":
            waiting = asyncio.create_task((await other.messages()).next(20))
        elif state != "idle":
            waiting = asyncio.create_task(other.next(20))
        await eventually(lambda: _requests(creator, 0 if waiting is None else 1))

        await getattr(creator, end)()
        await first.publish(f"{subject}.a", b"on")
        message = await (other.next(20) if waiting is None else waiting)
        assert message.data == b"on"
        assert await stream.consumer_names() == ["D"]


@asynchronous
async def test_own_requests_do_not_share(nats_server: NatsServer) -> None:
    """A subscription that ends while its own requests wait deletes the durable that it created."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js)
        pull = await js.pull_subscribe(f"{subject}.a", durable="D")
        fetching = asyncio.create_task(pull.fetch(1, timeout=20))
        iterating = asyncio.create_task(anext(await pull.messages()))
        await eventually(lambda: _requests(pull, 2))
        await pull.unsubscribe()

        assert await stream.consumer_names() == []
        with pytest.raises(StreamError):
            await fetching
        with pytest.raises(StopAsyncIteration):
            await iterating


async def _requests(consumer: Consumer, count: int) -> bool:
    return (await consumer.info()).num_waiting >= count
