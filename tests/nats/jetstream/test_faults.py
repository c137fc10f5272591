"""Servers that restart or freeze, slow consumers, cut connections, cancelled callers: nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.nats.jetstream.support import Errors, Proxy, asynchronous, eventually, fresh, stream_of_messages

from turnout.embedded import NatsServer
from turnout.errors import ConnectionLostError
from turnout.nats.jetstream import (
    AckPolicy,
    ConsumerConfig,
    Delivery,
    JetStream,
    Message,
    PullOptions,
    StorageType,
    connect,
)
from turnout.nats.jetstream.errors import (
    ConsumerDeletedError,
    HeartbeatMissedError,
    RequestTimeoutError,
    SlowConsumerError,
    StatusError,
    StreamError,
    StreamNotFoundError,
    SubscriptionClosedError,
)

QUICK = PullOptions(max_messages=50, expires=2, heartbeat=0.3)


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


async def nothing_left(js: JetStream, stream_name: str, handlers: int = 1) -> None:
    """No subscription but that for answers, and no consumer."""

    async def clean() -> bool:
        names = await (await js.stream(stream_name)).consumer_names()
        return not names and len(js.connection.handlers) == handlers and len(js.connection._subs) == handlers

    await eventually(clean)


@pytest.mark.parametrize("kill", [False, True])
@asynchronous
async def test_server_restart(own_server: NatsServer, kill: bool) -> None:
    """Over a restart an ordered consumer misses nothing and repeats nothing; pull iterators and callbacks go on."""
    async with connect(own_server.url, error_callback=Errors()) as js:
        stream, subject = await stream_of_messages(js, 100, storage=StorageType.FILE)
        ordered = await js.ordered(f"{subject}.a", config=ConsumerConfig(idle_heartbeat=0.5))
        pull = await js.pull_subscribe(f"{subject}.a", durable="P")
        received: list[int] = []
        consuming = await pull.consume(lambda message: received.append(message.sequence), QUICK)
        sequences = [(await ordered.next()).sequence for _ in range(50)]
        await asyncio.to_thread(own_server.restart, kill=kill)
        await eventually(lambda: js.connection.is_connected, 10)
        for _ in range(50):
            await _publish_until_stored(js, f"{subject}.a")
        last = (await stream.info()).state.last_seq
        while sequences[-1] < last:
            sequences.append((await ordered.next(10)).sequence)
        await eventually(lambda: set(range(1, last + 1)) <= set(received), 20)
        await consuming.stop()

        assert sequences == list(range(1, last + 1))


async def _publish_until_stored(js: JetStream, subject: str) -> None:
    name = fresh("id")
    for _ in range(40):
        try:
            await js.publish(subject, msg_id=name, timeout=1)
        except (StreamError, ConnectionLostError):
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("never stored")


@asynchronous
async def test_frozen_server(own_server: NatsServer) -> None:
    """A frozen server is an alarm within three heartbeats; when it thaws everything goes on."""
    errors = Errors()
    async with connect(own_server.url, error_callback=errors, timeout=0.5) as js:
        _, subject = await stream_of_messages(js, 5)
        config = ConsumerConfig(idle_heartbeat=0.2)
        sub = await js.subscribe(f"{subject}.a", config=config)
        ordered = await js.ordered(f"{subject}.a", config=config)
        pull = await js.pull_subscribe(f"{subject}.a")
        async with await pull.messages(PullOptions(expires=1, heartbeat=0.2)) as messages:
            for source in (sub, ordered, messages):
                for _ in range(5):
                    await source.next()
            own_server.pause()
            try:
                await errors.expect(HeartbeatMissedError, 3)
                await asyncio.sleep(1.5)
            finally:
                own_server.resume()
            await _publish_until_stored(js, f"{subject}.a")
            for source in (sub, ordered, messages):
                assert (await source.next(10)).data == b""


@pytest.mark.parametrize("times", [3])
@asynchronous
async def test_cut_connections(nats_server: NatsServer, times: int) -> None:
    """Connections that are cut again and again lose no message of a pull iterator, and none of an ordered consumer."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url, error_callback=Errors()) as js:
        _, subject = await stream_of_messages(js, 2000)
        received: set[int] = set()
        ordered: list[int] = []
        pull = await js.pull_subscribe(f"{subject}.a", durable="P", config=ConsumerConfig(ack_wait=0.5))

        async def take(message: Message) -> None:
            await message.ack()
            received.add(message.sequence)
            await asyncio.sleep(0)

        consuming = await pull.consume(take, QUICK)
        sub = await js.ordered(f"{subject}.a", lambda m: ordered.append(m.sequence))
        for _ in range(times):
            await asyncio.sleep(0.05)
            proxy.cut()
        await eventually(lambda: len(received) == 2000 and len(ordered) >= 2000, 30)
        await consuming.stop()

        assert ordered == list(range(1, 2001))
        assert sub.closed is False


@asynchronous
async def test_slow_consumer(nats_server: NatsServer) -> None:
    """A full buffer drops and says so; an ordered consumer with a full buffer still sees everything."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js, 500)
        small = Delivery(max_messages=10)
        sub = await js.subscribe(f"{subject}.a", delivery=small)
        failure = await errors.expect(SlowConsumerError)
        assert failure.dropped == 1
        await eventually(lambda: sub.dropped == 490)

        from turnout.nats.jetstream.ordered import subscribe_ordered

        ordered = await subscribe_ordered(js.api, subject=f"{subject}.a", delivery=small)
        seen = []
        for _ in range(500):
            seen.append((await ordered.next()).sequence)
            await asyncio.sleep(0)
        await ordered.unsubscribe()
        assert seen == list(range(1, 501))
        assert ordered.resets > 0


@asynchronous
async def test_deleted_in_mid_stream(nats_server: NatsServer) -> None:
    """Messages that the stream deletes meanwhile are not waited for, and are no gap."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        stream, subject = await stream_of_messages(js, 100)
        for sequence in range(40, 60):
            await stream.delete_message(sequence)
        ordered = await js.ordered(f"{subject}.a", config=ConsumerConfig(idle_heartbeat=0.2))
        sequences = [(await ordered.next()).sequence for _ in range(80)]
        await stream.purge()
        await asyncio.sleep(0.8)
        await js.publish(f"{subject}.a")
        sequences.append((await ordered.next()).sequence)

        assert sequences == [*range(1, 40), *range(60, 102)]
        assert ordered.resets == 0
        assert errors == []


@asynchronous
async def test_deleted_stream(nats_server: NatsServer) -> None:
    """When the stream goes, an ordered consumer and a pull iterator end by an error that says so."""
    async with connect(nats_server.url, error_callback=Errors()) as js:
        stream, subject = await stream_of_messages(js, 2)
        ordered = await js.ordered(f"{subject}.a", config=ConsumerConfig(idle_heartbeat=0.1))
        pull = await js.pull_subscribe(f"{subject}.a")
        async with await pull.messages() as messages:
            for source in (ordered, messages):
                await source.next()
                await source.next()
            await js.delete_stream(stream.name)
            with pytest.raises(StreamNotFoundError):
                await ordered.next(5)
            with pytest.raises(ConsumerDeletedError):
                await messages.next(5)


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.002, 0.004, 0.008, 0.05])
@asynchronous
async def test_cancelled_subscribe(nats_server: NatsServer, delay: float) -> None:
    """A call that is cancelled at any moment leaves no subscription and no consumer behind."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        for call in (
            lambda: js.subscribe(f"{subject}.a"),
            lambda: js.subscribe(f"{subject}.a", durable="D"),
            lambda: js.pull_subscribe(f"{subject}.a", durable="P"),
            lambda: js.ordered(f"{subject}.a"),
        ):
            task: asyncio.Task[Any] = asyncio.create_task(call())
            await asyncio.sleep(delay)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).unsubscribe()
            await nothing_left(js, stream.name)


@asynchronous
async def test_cancelled_waiting(nats_server: NatsServer) -> None:
    """Cancelled readers take no message with them: what came is given back, and the next reader gets it."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 3)
        pull = await js.pull_subscribe(f"{subject}.a", durable="P", config=ConsumerConfig(ack_wait=5))
        for _ in range(3):
            task = asyncio.create_task(pull.fetch(10, timeout=20))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        # A message that arrives after the cancellation is delivered again when the server has waited for its ack.
        again: set[int] = set()
        while missing := 3 - len(again):
            again |= {message.sequence for message in await pull.fetch(missing, timeout=20)}
        assert again == {1, 2, 3}

        sub = await js.subscribe(f"{subject}.b")
        waiting = [asyncio.create_task(sub.next(5)) for _ in range(2)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        await js.publish(f"{subject}.b", b"for the second")
        assert (await waiting[1]).data == b"for the second"
        await sub.unsubscribe()
        await pull.unsubscribe()
        await nothing_left(js, stream.name)


@asynchronous
async def test_cancelled_drain(nats_server: NatsServer) -> None:
    """A drain that is cancelled still removes the subscription and the consumer that it owns."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 50)

        async def endless(message: Message) -> None:
            await asyncio.sleep(30)

        sub = await js.subscribe(f"{subject}.a", endless)
        await eventually(lambda: sub.pending > 10)
        task = asyncio.create_task(sub.drain())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await nothing_left(js, stream.name)


@asynchronous
async def test_drain_takes_too_long(nats_server: NatsServer) -> None:
    """A drain has an end: it reports what was left, and deletes the consumer all the same."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        stream, subject = await stream_of_messages(js, 5)
        sub = await js.subscribe(f"{subject}.a")
        await eventually(lambda: sub.pending == 5)
        await sub.drain(timeout=0.2)

        assert "5 are left" in str(errors.of(RequestTimeoutError)[0])
        await nothing_left(js, stream.name)


@asynchronous
async def test_iterators_end(nats_server: NatsServer) -> None:
    """Unsubscribing ends an iteration that waits, and a next that waits."""
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js, 2)
        sub = await js.subscribe(f"{subject}.a")

        async def iterate() -> list[int]:
            return [message.sequence async for message in sub]

        iterating = asyncio.create_task(iterate())
        await eventually(lambda: sub.pending == 0)
        await asyncio.sleep(0.02)
        waiting = asyncio.create_task(sub.next(5))
        await asyncio.sleep(0.01)
        await sub.unsubscribe()

        assert await iterating == [1, 2]
        with pytest.raises(SubscriptionClosedError):
            await waiting


@asynchronous
async def test_drained_iterator(nats_server: NatsServer) -> None:
    """Draining lets an iteration take what has come, then ends it."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 100)
        sub = await js.subscribe(f"{subject}.a")
        await eventually(lambda: sub.pending == 100)

        async def iterate() -> int:
            return len([message async for message in sub])

        iterating = asyncio.create_task(iterate())
        await sub.drain()
        assert await iterating == 100
        await nothing_left(js, stream.name)


@asynchronous
async def test_statuses_for_the_user(nats_server: NatsServer) -> None:
    """In the mode that hands statuses over, all of them come in their places and nothing is done about them."""
    errors = Errors()
    statuses: list[Any] = []
    data: list[Any] = []
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js, 2)
        await js.subscribe(
            f"{subject}.a",
            data.append,
            config=ConsumerConfig(idle_heartbeat=0.1, flow_control=True),
            delivery=Delivery(on_status=statuses.append, heartbeat_alarm=0.01),
        )
        await eventually(lambda: len(statuses) >= 3)

        assert len(data) == 2
        assert {status.code for status in statuses} == {100}
        assert errors == []


@asynchronous
async def test_a_callback_that_fails(nats_server: NatsServer) -> None:
    """Exceptions of a callback go to the error callback, and the next message is delivered; `consume` does the same."""
    errors, received = Errors(), []

    def odd(message: Message) -> None:
        received.append(message.sequence)
        if message.sequence % 2:
            raise ValueError(f"odd {message.sequence}")

    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js, 4)
        await js.subscribe(f"{subject}.a", odd)
        await eventually(lambda: received == [1, 2, 3, 4])
        consuming = await (await js.pull_subscribe(f"{subject}.a")).consume(odd)
        await eventually(lambda: received == [1, 2, 3, 4] * 2)
        await consuming.drain()

        assert [str(failure) for failure in errors] == ["odd 1", "odd 3"] * 2


@asynchronous
async def test_closing_leaves_nothing(nats_server: NatsServer) -> None:
    """The end of a connection deletes the ephemeral consumers that it made and no others, and ends its tasks."""
    before = len(asyncio.all_tasks())
    async with connect(nats_server.url) as watch:
        stream, subject = await stream_of_messages(watch, 3)
        async with connect(nats_server.url) as js:
            await (await js.stream(stream.name)).create_consumer(ConsumerConfig(durable_name="KEPT"))
            await js.subscribe(f"{subject}.a", durable="D")
            await js.subscribe(f"{subject}.a", lambda m: None)
            await js.ordered(f"{subject}.a", config=ConsumerConfig(idle_heartbeat=1))
            pull = await js.pull_subscribe(f"{subject}.a")
            await pull.consume(lambda m: None)
        assert sorted(await stream.consumer_names()) == ["D", "KEPT"]
        async with connect(nats_server.url) as js:
            received: list[int] = []
            await js.subscribe(f"{subject}.a", lambda m: received.append(m.sequence))
            await eventually(lambda: len(received) == 3)
            await js.drain()
        assert sorted(await stream.consumer_names()) == ["D", "KEPT"]
    await asyncio.sleep(0.1)
    assert len(asyncio.all_tasks()) == before


@asynchronous
async def test_a_connection_that_ends_for_good(nats_server: NatsServer) -> None:
    """Without reconnecting, all waiting calls on a lost connection end with an error."""
    async with Proxy(nats_server.port) as proxy:
        options: dict[str, Any] = {"allow_reconnect": False, "error_callback": Errors()}
        async with connect(proxy.url, **options) as js, connect(nats_server.url) as other:
            stream, subject = await stream_of_messages(other)
            push = await js.subscribe(f"{subject}.a", durable="D")
            pull = await (await js.pull_subscribe(f"{subject}.a", durable="P")).messages()
            ordered = await js.ordered(f"{subject}.a")
            waiting = [asyncio.create_task(source.next(20)) for source in (push, pull, ordered)]
            await asyncio.sleep(0.05)
            proxy.cut()
            for task in waiting:
                with pytest.raises(ConnectionLostError):
                    await task
            for call in (js.account_info, lambda: js.publish(f"{subject}.a"), lambda: js.subscribe(f"{subject}.a")):
                with pytest.raises(ConnectionLostError):
                    await call()
            assert {"D", "P"} <= set(await stream.consumer_names())


@asynchronous
async def test_a_message_over_max_bytes(nats_server: NatsServer) -> None:
    """An iterator whose next message alone is over its max_bytes says so, and does not ask again without end."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        stream, _ = await stream_of_messages(js, 3, size=2000)
        consumer = await stream.create_consumer(ConsumerConfig())
        async with await consumer.messages(PullOptions(max_bytes=500)) as messages:
            with pytest.raises(StatusError, match="Message Size Exceeds MaxBytes"):
                await messages.next()

        assert len([line for line in proxy.lines("PUB") if "MSG.NEXT" in line]) == 1


@asynchronous
async def test_requests_that_are_used_up_to_the_last_byte(nats_server: NatsServer) -> None:
    """The server ends these without a word; neither a batch nor an iterator waits until its silence is noticed."""
    async with connect(nats_server.url) as js:
        stream, _ = await stream_of_messages(js, 20, size=10)
        for limit in range(200, 300):
            # Among as many limits as a message has bytes there are some that messages of one size meet exactly.
            consumer = await stream.create_consumer(ConsumerConfig(ack_policy=AckPolicy.NONE))
            async with asyncio.timeout(20):
                assert await consumer.fetch(20, max_bytes=limit, timeout=60)
            options = PullOptions(max_bytes=limit, max_messages=20, expires=60, heartbeat=30)
            async with asyncio.timeout(20), await consumer.messages(options) as messages:
                while (await messages.next(60)).metadata.num_pending:
                    pass


@asynchronous
async def test_pause_resume_reset(nats_server: NatsServer) -> None:
    """A paused consumer delivers nothing until it is resumed; a reset one delivers again."""
    async with connect(nats_server.url) as js:
        stream, _ = await stream_of_messages(js, 3)
        consumer = await stream.create_consumer(ConsumerConfig(durable_name="C"))
        await consumer.pause(datetime.now(UTC) + timedelta(seconds=60))
        assert (await consumer.info()).paused
        assert await consumer.fetch(1, timeout=0.2) == []
        await consumer.resume()
        for message in await consumer.fetch(3):
            await message.ack()
        await message.double_ack()
        await consumer.reset(2)
        assert [m.sequence for m in await consumer.fetch(2, timeout=1)] == [2, 3]


@asynchronous
async def test_unpin(nats_server: NatsServer) -> None:
    """A priority group that the consumer has can be unpinned; another one is an error of the server's."""
    async with connect(nats_server.url) as js:
        stream, _ = await stream_of_messages(js, 1)
        groups = {"priority_groups": ["g"], "priority_policy": "pinned_client"}
        consumer = await stream.create_consumer(ConsumerConfig(durable_name="C", extra=groups))
        await consumer.unpin("g")
        with pytest.raises(StreamError):
            await consumer.unpin("other")
