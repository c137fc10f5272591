"""ADR-15 on a real server: creation of a consumer, and races with other clients (B20 to B24)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.nats.jetstream.support import Proxy, asynchronous, eventually, stream_of_messages

from turnout.embedded import NatsServer
from turnout.nats.jetstream import AckPolicy, ConsumerConfig, connect
from turnout.nats.jetstream.errors import ConsumerBoundError, FilterMismatchError, StreamError


@asynchronous
async def test_b20_interest_before_consumer(nats_server: NatsServer) -> None:
    """B20: the subscription goes out before the request that makes the consumer."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        _, subject = await stream_of_messages(js, 1)
        sub = await js.subscribe(f"{subject}.a", durable="D")
        verbs = [frame for frame in proxy.sent if f" {sub.subject} ".encode() in frame or b"CONSUMER.CREATE" in frame]

        assert [frame.split(b" ", 1)[0] for frame in verbs[:2]] == [b"SUB", b"PUB"]


@asynchronous
async def test_b21_what_is_created(nats_server: NatsServer) -> None:
    """B21: inbox for push and none for pull, the subject as filter, explicit acks, the queue as group."""
    async with connect(nats_server.url, inbox_prefix="_INBOX.mine") as js:
        _, subject = await stream_of_messages(js, 1)
        pushed = (await (await js.subscribe(f"{subject}.a")).consumer_info()).config
        pulled = (await (await js.pull_subscribe(f"{subject}.a")).info()).config
        queued = (await (await js.subscribe(f"{subject}.a", queue="q")).consumer_info()).config

        assert (pushed.deliver_subject or "").startswith("_INBOX.mine.")
        assert pulled.deliver_subject is None
        assert {f"{subject}.a"} == {pushed.filter_subject, pulled.filter_subject, queued.filter_subject}
        assert {AckPolicy.EXPLICIT} == {pushed.ack_policy, pulled.ack_policy, queued.ack_policy}
        assert queued.deliver_group == "q"


@pytest.mark.parametrize("kind", ["push", "queue", "pull", "other filter"])
@asynchronous
async def test_b22_race(nats_server: NatsServer, kind: str) -> None:
    """B22: a consumer that another client creates between lookup and creation is looked up again and checked."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js, connect(nats_server.url) as rival:
        stream, subject = await stream_of_messages(js, 2)
        lost: list[bytes] = []

        def hold_info(frame: bytes) -> bool:
            # The first answer "not found" reaches the client only after the rival has made the consumer.
            if b'"err_code":10014' in frame and not lost:
                lost.append(frame)
                return True
            return False

        proxy.drop = hold_info
        queue = "D" if kind == "queue" else ""
        creation: asyncio.Task[Any] = asyncio.create_task(
            js.pull_subscribe(f"{subject}.a", durable="D")
            if kind == "pull"
            else js.subscribe(f"{subject}.a", durable="D", queue=queue)
        )
        await eventually(lambda: bool(lost))
        if kind == "pull":
            await rival.pull_subscribe(f"{subject}.a", durable="D", config=ConsumerConfig(max_ack_pending=7))
        else:
            filtered = f"{subject}.b" if kind == "other filter" else f"{subject}.a"
            theirs = await rival.subscribe(
                filtered, durable="D", queue=queue, config=ConsumerConfig(max_ack_pending=7), delete_consumer=False
            )
        writer = next(
            iter(w for w in proxy._writers if w.get_extra_info("sockname")[1] == int(proxy.url.rsplit(":")[-1]))
        )
        writer.write(lost[0])
        if kind == "push":
            with pytest.raises(ConsumerBoundError):
                await creation
        elif kind == "other filter":
            with pytest.raises((FilterMismatchError, ConsumerBoundError)):
                await creation
        else:
            sub = await creation
            assert not sub.owns_consumer
            if kind == "queue":
                assert theirs.subject == sub.subject
            else:
                assert len(await sub.fetch(2)) == 2
        assert (await stream.consumer_info("D")).config.max_ack_pending == 7
        await eventually(lambda: len(js.connection.handlers) == (2 if kind in ("queue", "pull") else 1))


@asynchronous
async def test_b23_failed_creation(nats_server: NatsServer) -> None:
    """B23: a refused creation is raised, and its subscription removed."""
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js, 1)
        with pytest.raises(StreamError) as failure:
            await js.subscribe(f"{subject}.a", config=ConsumerConfig(opt_start_seq=3))

        assert failure.value.err_code == 10094
        assert len(js.connection.handlers) == 1
        assert len(js.connection._subs) == 1


@asynchronous
async def test_b24_created_by_us(nats_server: NatsServer) -> None:
    """B24: what was created here is remembered, with the name from the answer."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        sub = await js.subscribe(f"{subject}.a")

        assert sub.owns_consumer
        assert [sub.consumer_name] == await stream.consumer_names()
