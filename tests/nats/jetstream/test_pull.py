"""ADR-15 on a real server: what the server says in place of data (B40 to B45)."""

from __future__ import annotations

import asyncio

import pytest
from tests.nats.jetstream.support import Errors, asynchronous, eventually, forge, push, stream_of_messages

from turnout.embedded import NatsServer
from turnout.nats.jetstream import ConsumerConfig, PullOptions, connect
from turnout.nats.jetstream.errors import (
    ConsumerDeletedError,
    ConsumerNotFoundError,
    NoRespondersError,
    RequestTimeoutError,
    StatusError,
)
from turnout.nats.jetstream.subscribe import create_consumer
from turnout.nats.protocol.headers import Status


@asynchronous
async def test_b40_pull_404_408(nats_server: NatsServer) -> None:
    """B40: nothing there and nothing came are empty batches; an iterator goes on over them."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js, 2)
        pull = await js.pull_subscribe(f"{subject}.a")

        assert len(await pull.fetch(5, no_wait=True)) == 2
        assert await pull.fetch(5, no_wait=True) == []
        assert await pull.fetch(5, timeout=0.2) == []
        with pytest.raises(RequestTimeoutError):
            await pull.next(timeout=0.2)
        async with await pull.messages(PullOptions(expires=1, heartbeat=0.2)) as messages:
            later = asyncio.create_task(messages.next(5))
            await asyncio.sleep(1.3)
            await js.publish(f"{subject}.a")
            assert (await later).sequence == 3
        assert not errors


@asynchronous
async def test_b41_pull_409(nats_server: NatsServer) -> None:
    """B41: a conflict is raised with its text; a deleted consumer is its own error; a begun batch keeps what came."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 3, size=300)
        small = await stream.create_consumer(ConsumerConfig(max_batch=2))
        with pytest.raises(StatusError, match="Exceeded MaxRequestBatch of 2") as failure:
            await small.fetch(5)
        assert failure.value.code == 409

        await create_consumer(js.api, stream.name, push("b41", durable_name="P"))
        with pytest.raises(StatusError, match="push based"):
            await _raw_consumer(js, stream.name, "P").fetch(1)

        bytes_limited = await (await stream.create_consumer(ConsumerConfig())).fetch(3, max_bytes=900)
        assert 1 <= len(bytes_limited) < 3
        assert isinstance(bytes_limited.error, StatusError)

        doomed = await stream.create_consumer(ConsumerConfig(filter_subject=f"{subject}.none"))
        waiting = asyncio.create_task(doomed.fetch(1, timeout=5))
        iterating = asyncio.create_task(_first(doomed))
        await eventually(lambda: _waits(doomed, 2))
        await doomed.delete()
        for task in (waiting, iterating):
            with pytest.raises(ConsumerDeletedError):
                await task


def _raw_consumer(js, stream, name):
    from turnout.nats.jetstream.consumer import Consumer

    return Consumer(js.api, stream, name)


async def _waits(consumer, count):
    return (await consumer.info()).num_waiting >= count


async def _first(consumer):
    async with await consumer.messages() as messages:
        async for message in messages:
            return message
    return None


@pytest.mark.parametrize(("code", "text"), [(409, "Something"), (503, ""), (299, "Odd"), (423, "Wrong Pin")])
@asynchronous
async def test_b42_push_statuses(nats_server: NatsServer, code: int, text: str) -> None:
    """B42: error statuses and unknown ones go to the error callback, and are not delivered."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js)
        sub = await js.subscribe(f"{subject}.a")
        forge(js, sub.subject, code, text, {})
        failure = await errors.expect(StatusError)

        assert (failure.code, failure.status.description) == (code, text)
        assert sub.pending == 0


@asynchronous
async def test_b43_pull_503(nats_server: NatsServer) -> None:
    """B43: a missing consumer is told at once, by fetch and by the iterator."""
    async with connect(nats_server.url) as js:
        stream, _ = await stream_of_messages(js, 1)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(NoRespondersError):
            await _raw_consumer(js, stream.name, "none").fetch(1)
        with pytest.raises(ConsumerNotFoundError):
            await _first(_raw_consumer(js, stream.name, "none"))

        assert loop.time() - begun < 2


@asynchronous
async def test_b44_unknown_status(nats_server: NatsServer) -> None:
    """B44: what is not known is raised with its code and text."""
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js)
        pull = await js.pull_subscribe(f"{subject}.a")
        with pytest.raises(StatusError, match="heartbeat value too large") as failure:
            await pull.fetch(1, timeout=1, heartbeat=0.9)

        assert failure.value.code == 400


@asynchronous
async def test_b45_headers_that_say_status(nats_server: NatsServer) -> None:
    """B45: a message whose headers include Status is data, with a payload or without; only a status line is none."""
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js)
        sub = await js.subscribe(f"{subject}.a")
        pull = await js.pull_subscribe(f"{subject}.a")
        headers = {"Status": "409", "Description": "mine"}
        await js.publish(f"{subject}.a", b"", headers=headers)
        await js.publish(f"{subject}.a", b"data", headers=headers)

        for messages in ([await sub.next(), await sub.next()], await pull.fetch(2)):
            assert [m.data for m in messages] == [b"", b"data"]
            assert {"409"} == {m.header("Status") for m in messages}
        assert Status.of(b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"data") is None
