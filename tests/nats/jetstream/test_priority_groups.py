"""Priority groups of pull consumers on a real server (ADR-42)."""

from __future__ import annotations

import asyncio

import pytest
from tests.nats.jetstream.support import Errors, asynchronous, eventually, stream_of_messages

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import ConsumerConfig, JetStream, PriorityGroup, PriorityPolicy, PullOptions, connect
from turnout.nats.jetstream.errors import PinLostError, RequestTimeoutError, StatusError, StreamError

GROUP = PriorityGroup(name="jobs")


def _config(policy: PriorityPolicy, priority_timeout: float | None = None) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name="C", priority_policy=policy, priority_groups=["jobs"], priority_timeout=priority_timeout
    )


@asynchronous
async def test_overflow(nats_server: NatsServer) -> None:
    """A request with a threshold gets nothing below it; either of its two thresholds is enough."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 4)
        consumer = await stream.create_consumer(_config(PriorityPolicy.OVERFLOW))
        five = PriorityGroup(name="jobs", min_pending=5)
        assert await consumer.fetch(1, timeout=0.3, group=five) == []
        await js.publish(f"{subject}.a")
        assert [m.sequence for m in await consumer.fetch(5, timeout=0.5, group=five)] == [1]
        busy = PriorityGroup(name="jobs", min_pending=100, min_ack_pending=2)
        assert await consumer.fetch(1, timeout=0.3, group=busy) == []
        assert (await consumer.next(group=GROUP)).sequence == 2
        assert (await consumer.next(group=busy)).sequence == 3
        async with await consumer.messages(PullOptions(group=five)) as messages:
            with pytest.raises(RequestTimeoutError):
                await messages.next(0.3)
            for _ in range(4):
                await js.publish(f"{subject}.a")
            assert (await messages.next(5)).sequence == 4


@asynchronous
async def test_prioritized(nats_server: NatsServer) -> None:
    """Of the requests that wait, the one with the lowest number gets the message."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js)
        consumer = await stream.create_consumer(_config(PriorityPolicy.PRIORITIZED))

        async def first(priority: int) -> int:
            message = await consumer.next(10, group=PriorityGroup(name="jobs", priority=priority))
            await message.ack()
            return priority

        waiting = [asyncio.create_task(first(priority)) for priority in (7, 2, 5)]
        await eventually(lambda: _waiting(consumer, 3))
        order = []
        for _ in waiting:
            await js.publish(f"{subject}.a")
            done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            order += [task.result() for task in done]
            waiting = list(pending)

        assert order == [2, 5, 7]


async def _waiting(consumer, count):
    return (await consumer.info()).num_waiting >= count


async def _pinned(js: JetStream, stream: str):
    """A second client's view of the consumer."""
    return await (await js.stream(stream)).consumer("C")


@asynchronous
async def test_pinned_client(nats_server: NatsServer) -> None:
    """One client gets everything and sends its id; another waits, and takes over when the pin is taken away."""
    async with connect(nats_server.url) as js, connect(nats_server.url) as other:
        stream, subject = await stream_of_messages(js, 3)
        first = await stream.create_consumer(_config(PriorityPolicy.PINNED_CLIENT, priority_timeout=60))
        second = await _pinned(other, stream.name)
        pins: list[str | None] = []
        told = PriorityGroup(name="jobs", on_pin=pins.append)

        for message in await first.fetch(2, group=told):
            await message.ack()
        state = (await first.info()).priority_groups[0]
        assert (state.group, state.pinned_client_id) == ("jobs", first.pin_id)
        assert state.pinned_ts is not None
        assert await second.fetch(1, timeout=0.3, group=GROUP) == []
        assert second.pin_id is None
        assert (await first.next(group=told)).sequence == 3

        await first.unpin("jobs")
        await js.publish(f"{subject}.a")
        assert (await second.next(group=GROUP)).sequence == 4
        with pytest.raises(PinLostError) as failure:
            await first.fetch(1, timeout=1, group=told)
        assert failure.value.code == 423
        assert pins == [state.pinned_client_id, None]
        # Without its old id it waits for the pin again.
        assert await first.fetch(1, timeout=0.3, group=told) == []


@asynchronous
async def test_pinned_pulls(nats_server: NatsServer) -> None:
    """A continuous pull reports the loss of its pin, goes on waiting, and is the next to be pinned."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js, connect(nats_server.url) as other:
        stream, subject = await stream_of_messages(js, 1)
        first = await stream.create_consumer(_config(PriorityPolicy.PINNED_CLIENT, priority_timeout=60))
        second = await _pinned(other, stream.name)
        async with await first.messages(PullOptions(group=GROUP, max_messages=4)) as ours:
            assert (await ours.next()).sequence == 1
            async with await second.messages(PullOptions(group=GROUP)) as theirs:
                await second.unpin("jobs")
                got: list[int] = []
                for number in range(2, 8):
                    await js.publish(f"{subject}.a")
                    takers = [asyncio.create_task(m.next(5)) for m in (ours, theirs)]
                    done, pending = await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED)
                    got += [task.result().sequence for task in done]
                    for task in pending:
                        task.cancel()
                    await asyncio.gather(*pending, return_exceptions=True)
                    assert got[-1] == number
                assert got == list(range(2, 8))
                assert second.pin_id is not None
            await errors.expect(PinLostError)
            await second.unpin("jobs")
            await js.publish(f"{subject}.a")
            assert (await ours.next(10)).sequence == 8
            assert first.pin_id is not None


@asynchronous
async def test_a_silent_client_loses_its_pin(nats_server: NatsServer) -> None:
    """Without requests for the consumer's time another client is pinned; the stored header of a message is none."""
    async with connect(nats_server.url) as js, connect(nats_server.url) as other:
        stream, subject = await stream_of_messages(js, 2)
        first = await stream.create_consumer(_config(PriorityPolicy.PINNED_CLIENT, priority_timeout=0.5))
        second = await _pinned(other, stream.name)
        await first.next(group=GROUP)
        assert (await second.next(10, group=GROUP)).sequence == 2

        plain = await stream.create_consumer(
            ConsumerConfig(priority_policy="overflow", priority_groups=["jobs"], deliver_policy="new")
        )
        for _ in range(2):
            await js.publish(f"{subject}.a", headers={"Nats-Pin-Id": "someone's"})
            assert len(await plain.fetch(1, group=GROUP)) == 1
        assert plain.pin_id is None


@asynchronous
async def test_refusals(nats_server: NatsServer) -> None:
    """A missing or unknown group, and fields of another policy, are the server's errors; what cannot be is ours."""
    async with connect(nats_server.url) as js:
        stream, _ = await stream_of_messages(js, 1)
        consumer = await stream.create_consumer(_config(PriorityPolicy.PRIORITIZED))
        for group, text in (
            (None, "Priority Group missing"),
            (PriorityGroup(name="other"), "Invalid Priority Group"),
            (PriorityGroup(name="jobs", min_pending=1), "Not a Overflow"),
        ):
            with pytest.raises(StatusError, match=text):
                await consumer.fetch(1, timeout=1, group=group)
            with pytest.raises(StatusError, match=text):
                async with await consumer.messages(PullOptions(group=group)) as messages:
                    await messages.next(5)
        for bad in ({"name": "a b"}, {"name": "g", "priority": 10}, {"name": "g", "min_pending": 0}):
            with pytest.raises(ConfigError):
                PriorityGroup(**bad)
        with pytest.raises(StreamError) as failure:
            await stream.create_consumer(ConsumerConfig(priority_policy="overflow"))
        assert failure.value.err_code == 10159
        # The same configuration binds to the consumer that it made.
        same = _config(PriorityPolicy.PRIORITIZED)
        assert (await js.pull_subscribe(stream=stream.name, durable="C", config=same)).name == "C"
