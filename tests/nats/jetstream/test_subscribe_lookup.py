"""ADR-15 on a real server: how the stream and the consumer are found (B7 to B11)."""

from __future__ import annotations

import pytest
from tests.nats.jetstream.support import Proxy, asynchronous, eventually, stream_of_messages

from turnout.embedded import NatsServer
from turnout.nats.jetstream import ConsumerConfig, connect
from turnout.nats.jetstream.errors import (
    ConsumerNotFoundError,
    NoMatchingStreamError,
)

FEW = 40


@asynchronous
async def test_b07_stream_of_a_subject(nats_server: NatsServer) -> None:
    """B7: the subject finds the stream; none or several are an error."""
    async with connect(nats_server.url) as js:
        stream, one = await stream_of_messages(js, 1)
        await stream_of_messages(js, 1)

        async with await js.subscribe(f"{one}.a") as sub:
            assert stream.name == sub.stream
        with pytest.raises(NoMatchingStreamError, match="none does"):
            await js.subscribe("nobody.has.this")
        with pytest.raises(NoMatchingStreamError, match=r"[2-9]\d* streams do|\d{2,} streams do"):
            await js.subscribe("*.a")


@asynchronous
async def test_b08_given_stream(nats_server: NatsServer) -> None:
    """B8: a given stream is not looked up, and the subject is still the filter."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        stream, subject = await stream_of_messages(js, 2)
        async with await js.subscribe(f"{subject}.b", stream=stream.name) as sub:
            info = await sub.consumer_info()

            assert f"{subject}.b" == info.config.filter_subject
            assert not [line for line in proxy.lines("PUB") if "STREAM.NAMES" in line]


@asynchronous
async def test_b09_bind(nats_server: NatsServer) -> None:
    """B9: a consumer to bind to must exist, but a pull subscription goes on without it."""
    async with connect(nats_server.url) as js:
        stream, _ = await stream_of_messages(js, 3)
        with pytest.raises(ConsumerNotFoundError):
            await js.subscribe(stream=stream.name, consumer="none")
        pull = await js.pull_subscribe(stream=stream.name, consumer="later")

        await stream.create_consumer(ConsumerConfig(durable_name="later"))
        assert len(await pull.fetch(3)) == 3


@asynchronous
async def test_b10_durable(nats_server: NatsServer) -> None:
    """B10: a durable is looked up first, and made where there is none."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        sub = await js.subscribe(f"{subject}.a", durable="D")
        requests = [line.split()[1] for line in proxy.lines("PUB") if "CONSUMER" in line]

        assert [
            f"$JS.API.CONSUMER.INFO.{stream.name}.D",
            f"$JS.API.CONSUMER.CREATE.{stream.name}.D.{subject}.a",
        ] == requests
        assert sub.owns_consumer


@asynchronous
async def test_b11_queue_is_durable(nats_server: NatsServer) -> None:
    """B11: a queue subscription without a name uses the queue's as durable; both members share the messages."""
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js)
        subjects: list[str] = []
        subscription = await js.subscribe(f"{subject}.a", lambda m: subjects.append("one"), queue="workers")
        two = await js.subscribe(f"{subject}.a", lambda m: subjects.append("two"), queue="workers")
        for _ in range(FEW):
            await js.publish(f"{subject}.a")
        await eventually(lambda: len(subjects) >= FEW)

        info = await subscription.consumer_info()
        assert (info.config.durable_name, info.config.deliver_group) == ("workers", "workers")
        assert subscription.consumer_name == two.consumer_name
        assert {"one", "two"} == set(subjects)
        assert len(subjects) == FEW
        other = await js.subscribe(f"{subject}.a", durable="elsewhere", queue="workers")
        assert other.consumer_name == "elsewhere"
