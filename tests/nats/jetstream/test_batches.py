"""Batches on a real server: stored together or not at all, and stored fast (ADR-50)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.nats.jetstream.support import Errors, Proxy, asynchronous, stream_of_messages

from turnout.embedded import NatsServer
from turnout.errors import ConfigError, StreamError
from turnout.nats.jetstream import Expect, PublishOptions, connect
from turnout.nats.jetstream.errors import (
    BatchIncompleteError,
    BatchPublishError,
    BatchTooLargeError,
    NoRespondersError,
    TooManyBatchesError,
    WrongLastSequenceError,
)


@asynchronous
async def test_all_or_nothing(nats_server: NatsServer) -> None:
    """Nothing is stored before the commit; then everything, one behind the other, and the ack counts it."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1, allow_atomic=True)
        batch = js.atomic_batch(ack_every=2)
        for number in range(4):
            assert await batch.add(f"{subject}.{number}", b"%d" % number, headers={"N": str(number)}) == number + 1
        assert (await stream.info()).state.messages == 1
        ack = await batch.commit(f"{subject}.last", b"end", msg_id="m")

        assert (ack.stream, ack.seq, ack.batch, ack.count) == (stream.name, 6, batch.id, 5)
        assert batch.closed
        stored = [await stream.get_message(sequence) for sequence in range(2, 7)]
        assert [m.data for m in stored] == [b"0", b"1", b"2", b"3", b"end"]
        assert stored[1].header("N") == "1"
        with pytest.raises(BatchPublishError, match="has ended"):
            await batch.add(f"{subject}.a")


@asynchronous
async def test_block_and_list(nats_server: NatsServer) -> None:
    """The end of a block commits without one more message, an exception gives the batch up; a list is one batch."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, allow_atomic=True)
        async with js.atomic_batch() as batch:
            await batch.add(f"{subject}.a", b"1")
            await batch.add(f"{subject}.b", b"2")
        assert batch.ack is not None
        assert (batch.ack.count, batch.ack.seq) == (2, 2)
        given_up = js.atomic_batch()
        await given_up.__aenter__()
        await given_up.add(f"{subject}.a", b"1")
        await given_up.__aexit__(ValueError, ValueError(), None)
        assert given_up.closed
        options: PublishOptions = {"msg_id": "x"}
        ack = await js.publish_batch([(f"{subject}.c", b"3"), (f"{subject}.d", b"4", options)])

        assert (ack.count, ack.seq) == (2, 4)
        assert (await stream.get_message(4)).header("Nats-Msg-Id") == "x"
        assert (await stream.info()).state.messages == 4
        with pytest.raises(BatchPublishError, match="no messages"):
            await js.publish_batch([])


@asynchronous
async def test_refusals_of_atomic_batches(nats_server: NatsServer) -> None:
    """A stream without batches, duplicates, expectations, gaps and sizes are refused by name; nothing is stored."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        _, plain = await stream_of_messages(js)
        with pytest.raises(BatchPublishError) as failure:
            await js.atomic_batch().add(f"{plain}.a")
        assert failure.value.err_code == 10174
        stream, subject = await stream_of_messages(js, 1, allow_atomic=True)
        await js.publish(f"{subject}.a", msg_id="there")
        name = f"{subject}.a"

        cases: tuple[tuple[list[Any], type[StreamError], int], ...] = (
            ([(name, b"", {"msg_id": "there"}), (name, b"")], BatchPublishError, 10201),
            ([(name, b"", {"expect": Expect(last_msg_id="there")}), (name, b"")], BatchPublishError, 10177),
            ([(name, b"", {"expect": Expect(last_seq=9)}), (name, b"")], WrongLastSequenceError, 10071),
            ([(name, b"")] * 1001, BatchTooLargeError, 10199),
        )
        for bad, kind, code in cases:
            with pytest.raises(kind) as refused:
                await js.publish_batch(bad)
            assert refused.value.err_code == code
        with pytest.raises(NoRespondersError):
            await js.publish_batch([("nobody.takes.it", b""), (name, b"")])
        batch = js.atomic_batch()
        await batch.add(name)
        proxy.drop_sent = lambda frame: b"lost on the way" in frame
        await batch.add(name, b"lost on the way")
        with pytest.raises(BatchIncompleteError):
            await batch.commit(name)
        assert (await stream.info()).state.messages == 2
        good = await js.publish_batch([(name, b"", {"expect": Expect(last_seq=2)}), (name, b"1")])
        assert good.seq == 4


@asynchronous
async def test_too_many_open_batches(nats_server: NatsServer) -> None:
    """The fifty-first open batch of a stream is refused, as one that may work later."""
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js, allow_atomic=True)
        batches = [js.atomic_batch() for _ in range(51)]
        for batch in batches[:50]:
            await batch.add(f"{subject}.a")
        with pytest.raises(TooManyBatchesError):
            await batches[50].add(f"{subject}.a")
        assert (await batches[0].commit()).count == 1


@pytest.mark.parametrize("flow", [1, 7, 100])
@asynchronous
async def test_fast_batch(nats_server: NatsServer, flow: int) -> None:
    """Every message is stored in order, never with more unconfirmed than the server allows."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, allow_batched=True)
        batch = js.fast_batch(flow=flow, max_outstanding=2)
        for number in range(500):
            assert await batch.add(f"{subject}.a", b"%d" % number) == number + 1
            assert batch.size - batch.acked < 2 * flow
        ack = await batch.commit(f"{subject}.end", b"end")

        assert (ack.stream, ack.seq, ack.count, batch.acked) == (stream.name, 501, 501, 501)
        assert [(await stream.get_message(s)).data for s in (1, 250, 500, 501)] == [b"0", b"249", b"499", b"end"]
        async with js.fast_batch() as block:
            await block.add(f"{subject}.b")
        assert block.ack is not None
        assert (block.ack.count, (await stream.info()).state.messages) == (1, 502)
        alone = js.fast_batch()
        assert (await alone.commit(f"{subject}.b")).count == 1


@asynchronous
async def test_refusals_of_fast_batches(nats_server: NatsServer) -> None:
    """A stream without fast batches, a subject without a stream, and numbers that cannot be."""
    async with connect(nats_server.url) as js:
        _, plain = await stream_of_messages(js)
        with pytest.raises(StreamError) as failure:
            await js.fast_batch().add(f"{plain}.a")
        assert failure.value.err_code == 10205
        with pytest.raises(NoRespondersError):
            await js.fast_batch().add("nobody.takes.it")
        with pytest.raises(ConfigError, match="max_outstanding"):
            js.fast_batch(max_outstanding=9)
        with pytest.raises(BatchPublishError, match="no messages"):
            await js.fast_batch().commit()


@asynchronous
async def test_gaps_of_fast_batches(nats_server: NatsServer) -> None:
    """A lost message ends a batch in front of it; where gaps are allowed it is reported, and the rest is stored."""
    errors = Errors()
    async with Proxy(nats_server.port) as proxy, connect(proxy.url, error_callback=errors) as js:
        stream, subject = await stream_of_messages(js, allow_batched=True)
        proxy.drop_sent = lambda frame: b"lost on the way" in frame
        batch = js.fast_batch(flow=10)

        async def send_all() -> None:
            for number in range(200):
                await batch.add(f"{subject}.a", b"lost on the way" if number == 3 else b"x")
            await batch.commit()

        with pytest.raises(BatchIncompleteError, match="3 of"):
            await send_all()
        assert (batch.acked, (await stream.info()).state.messages) == (3, 3)

        tolerant = js.fast_batch(flow=10, gaps=True)
        for number in range(50):
            await tolerant.add(f"{subject}.a", b"lost on the way" if number in (3, 4) else b"x")
        await tolerant.commit()
        assert (await stream.info()).state.messages == 3 + 48
        assert "messages 4 to 5" in str(await errors.expect(BatchIncompleteError))


@asynchronous
async def test_lost_confirmations_are_asked_for(nats_server: NatsServer) -> None:
    """A confirmation that is lost stops a fast batch only until it has asked the server."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        stream, subject = await stream_of_messages(js, allow_batched=True)
        batch = js.fast_batch(flow=5, max_outstanding=1, timeout=3)
        await batch.add(f"{subject}.a")
        left = 2

        def drop(frame: bytes) -> bool:
            nonlocal left
            if left and b'"type":"ack"' in frame:
                left -= 1
                return True
            return False

        proxy.drop = drop
        for _ in range(60):
            await batch.add(f"{subject}.a")
        ack = await batch.commit()

        assert (left, ack.count) == (0, 61)
        assert (await stream.info()).state.messages == 61


@asynchronous
async def test_server_restarts_under_batches() -> None:
    """A server that is killed ends both kinds of batch with an error, and stores no atomic one in part."""
    with NatsServer() as server:
        async with connect(server.url, error_callback=Errors(), timeout=3) as js:
            stream, subject = await stream_of_messages(js, allow_batched=True, allow_atomic=True, storage="file")
            atomic, fast = js.atomic_batch(), js.fast_batch(timeout=6)
            await atomic.add(f"{subject}.a")
            await fast.add(f"{subject}.b")
            back = asyncio.Event()
            js.connection.on_reconnected.append(back.set)
            await asyncio.to_thread(server.restart, kill=True)
            await asyncio.wait_for(back.wait(), 20)
            with pytest.raises(BatchIncompleteError):
                await atomic.commit(f"{subject}.a")
            with pytest.raises(BatchIncompleteError):
                await fast.commit(f"{subject}.b")
            subjects = (await stream.info(subjects=">")).state.subjects
            assert f"{subject}.a" not in (subjects or {})
