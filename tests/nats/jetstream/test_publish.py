"""Publishing with the server's word, and reading a stream without a consumer."""

from __future__ import annotations

import asyncio

import pytest
from tests.nats.jetstream.support import Errors, Proxy, asynchronous, eventually, fresh, stream_of_messages

from turnout.embedded import NatsServer
from turnout.errors import ConfigError, ConnectionLostError, StreamError
from turnout.nats.jetstream import ConsumerConfig, Expect, PubAck, StorageType, StreamConfig, connect
from turnout.nats.jetstream.errors import (
    MessageNotFoundError,
    NoRespondersError,
    RequestTimeoutError,
    StreamNameInUseError,
    StreamNotFoundError,
    WrongLastSequenceError,
)


@asynchronous
async def test_ack_and_duplicate(nats_server: NatsServer) -> None:
    """The ack names stream and sequence; a second message with the same id is not stored."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js)
        first = await js.publish(f"{subject}.a", b"1", msg_id="one")
        again = await js.publish(f"{subject}.a", b"2", msg_id="one")

        assert first == PubAck(stream.name, 1)
        assert again == PubAck(stream.name, 1, duplicate=True)
        assert (await stream.get_message(1)).data == b"1"


@pytest.mark.parametrize(
    "expect",
    [Expect(last_seq=5), Expect(last_subject_seq=5), Expect(last_msg_id="other"), Expect(stream="OTHER")],
)
@asynchronous
async def test_expectations(nats_server: NatsServer, expect: Expect) -> None:
    """If an expectation does not hold, nothing is stored; the server's code is kept."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        with pytest.raises(StreamError) as failure:
            await js.publish(f"{subject}.a", expect=expect)

        assert failure.value.err_code in (10060, 10070, 10071)
        assert isinstance(failure.value, WrongLastSequenceError) == (failure.value.err_code == 10071)
        assert (await stream.info()).state.messages == 1
        good = Expect(stream=stream.name, last_seq=1, last_subject_seq=1)
        assert (await js.publish(f"{subject}.a", expect=good)).seq == 2


@asynchronous
async def test_headers_and_ttl(nats_server: NatsServer) -> None:
    """Headers keep their values in order; a TTL removes the message; a header cannot smuggle another."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, allow_msg_ttl=True)
        await js.publish(f"{subject}.a", b"x", headers={"A": ["1", "2"], "B": "ü: v"}, ttl=1)
        async with await js.subscribe(f"{subject}.a") as sub:
            message = await sub.next()

        assert message.headers["A"] == ["1", "2"]
        assert message.header("B") == "ü: v"
        for bad in ({"A": "x\r\nNats-Rollup: all"}, {"A B": "x"}, {"": "x"}):
            with pytest.raises(ConfigError):
                await js.publish(f"{subject}.a", headers=bad)
        with pytest.raises(StreamError, match="not a subject"):
            await js.publish("a b\r\nPUB evil 0\r\n\r\n")

        async def gone() -> bool:
            return (await stream.info()).state.messages == 0

        await eventually(gone)


@asynchronous
async def test_no_stream(nats_server: NatsServer) -> None:
    """A subject that no stream takes is told at once, after the retries."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        with pytest.raises(NoRespondersError) as failure:
            await js.publish("nobody.takes.this", retries=2, retry_wait=0.01)

        assert failure.value.code == 503
        assert len([line for line in proxy.lines("PUB") if "nobody.takes.this" in line]) == 3
        with pytest.raises(NoRespondersError):
            await (await js.publish_async("nobody.takes.this"))


@asynchronous
async def test_async_waits_for_room(nats_server: NatsServer) -> None:
    """No more than max_pending are unconfirmed; all are confirmed in the end."""
    async with connect(nats_server.url, max_pending=10) as js:
        stream, subject = await stream_of_messages(js)
        highest = 0
        futures = []
        for _ in range(500):
            futures.append(await js.publish_async(f"{subject}.a"))
            highest = max(highest, js.publish_async_pending)
        await js.publish_async_complete()

        assert highest == 10
        assert sorted([(await future).seq for future in futures]) == list(range(1, 501))
        assert (await stream.info()).state.messages == 500


@asynchronous
async def test_async_fails_with_the_connection(nats_server: NatsServer) -> None:
    """A connection that goes away fails what is unconfirmed, at once; the same ids can be published again."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url, error_callback=Errors()) as js:
        stream, subject = await stream_of_messages(js)
        proxy.drop = lambda frame: b'"seq"' in frame
        futures = [await js.publish_async(f"{subject}.a", msg_id=str(n)) for n in range(20)]
        await asyncio.sleep(0.1)
        proxy.cut()
        for future in futures:
            with pytest.raises(ConnectionLostError):
                await future
        proxy.drop = lambda frame: False
        acks = [await js.publish(f"{subject}.a", msg_id=str(n)) for n in range(20)]

        assert all(ack.duplicate for ack in acks)
        assert (await stream.info()).state.messages == 20


@asynchronous
async def test_timeouts(nats_server: NatsServer) -> None:
    """A server that does not answer is a timeout, for a publish, an asynchronous one, a request and a fetch."""
    with NatsServer() as server:
        async with connect(server.url, timeout=0.3, error_callback=Errors()) as js:
            _, subject = await stream_of_messages(js, 1)
            pull = await js.pull_subscribe(f"{subject}.a")
            server.pause()
            # The signal is on its way: a server that still runs on the other core would answer.
            await asyncio.sleep(0.1)
            try:
                future = await js.publish_async(f"{subject}.a")
                calls = (
                    lambda: js.publish_async_complete(0.1),
                    lambda: js.publish(f"{subject}.a"),
                    js.account_info,
                    lambda: future,
                )
                for call in calls:
                    with pytest.raises(RequestTimeoutError) as failure:
                        await call()
                    assert isinstance(failure.value, TimeoutError)
                assert await pull.fetch(2, timeout=0.2) == []
            finally:
                server.resume()


@asynchronous
async def test_too_large(nats_server: NatsServer) -> None:
    """A message for which the server would close the connection is refused before it is sent."""
    async with connect(nats_server.url) as js:
        with pytest.raises(StreamError, match="larger than"):
            await js.publish("a", b"x" * 2_000_000)
        await js.account_info()


@asynchronous
async def test_stream_management(nats_server: NatsServer) -> None:
    """Streams and consumers are made, changed, listed and deleted; a configuration survives the round trip."""
    async with connect(nats_server.url) as js:
        name = fresh()
        config = StreamConfig(
            name=name, subjects=[f"{name}.>"], storage=StorageType.MEMORY, max_age=3600.5, duplicate_window=5,
            metadata={"k": "v"}, description="d", max_msgs_per_subject=3, allow_direct=True,
        )  # fmt: skip
        stream = await js.create_stream(config)
        assert stream.cached_info.config.max_age == 3600.5
        with pytest.raises(StreamNameInUseError):
            await js.create_stream(StreamConfig(name=name, subjects=["other"]))
        changed = await js.update_stream(
            StreamConfig(**{**{f: getattr(stream.cached_info.config, f) for f in config.__slots__}, "description": "e"})
        )
        assert changed.cached_info.config.description == "e"
        assert changed.cached_info.config.max_age == 3600.5
        assert name in await js.stream_names()
        assert [info.config.name async for info in js.streams(f"{name}.x")] == [name]
        assert await js.stream_name_by_subject(f"{name}.x") == name

        for number in range(5):
            await js.publish(f"{name}.{number % 2}", str(number).encode(), headers={"N": str(number)})
        last = await stream.get_last_message(f"{name}.1")
        assert (last.data, last.sequence, last.header("N")) == (b"3", 4, "3")
        assert last.time is not None
        assert (await stream.get_message(1, next_by_subject=f"{name}.1")).sequence == 2
        assert (await stream.info(subjects=">")).state.subjects == {f"{name}.0": 3, f"{name}.1": 2}
        await stream.delete_message(2)
        with pytest.raises(MessageNotFoundError):
            await stream.get_message(2)
        assert (await stream.info(deleted=True)).state.deleted == (2,)
        assert await stream.purge(f"{name}.0", keep=1) == 2

        consumer = await stream.create_consumer(ConsumerConfig(durable_name="C", ack_wait=1.5, backoff=[0.5, 1.25]))
        assert consumer.cached_info is not None
        assert consumer.cached_info.config.backoff == (0.5, 1.25)
        updated = await stream.update_consumer(ConsumerConfig(durable_name="C", description="new", ack_wait=2))
        assert updated.cached_info is not None
        assert updated.cached_info.config.description == "new"
        await stream.create_or_update_consumer(ConsumerConfig(durable_name="E"))
        assert sorted([info.name async for info in stream.consumers()]) == ["C", "E"]
        await stream.delete_consumer("E")
        assert await stream.consumer_names() == ["C"]
        await js.delete_stream(name)
        with pytest.raises(StreamNotFoundError) as failure:
            await js.stream(name)
        assert isinstance(failure.value, LookupError)
        assert (failure.value.code, failure.value.err_code) == (404, 10059)


@asynchronous
async def test_reads_of_a_stream_without_direct_get(nats_server: NatsServer) -> None:
    """If the stream allows no direct gets, the stored message is read, with its headers."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js)
        await js.publish(f"{subject}.a", b"\x00\xff", headers={"H": "v"})
        message = await stream.get_last_message(f"{subject}.a")

        assert (message.data, message.header("H"), message.subject) == (b"\x00\xff", "v", f"{subject}.a")
        with pytest.raises(MessageNotFoundError):
            await stream.get_last_message(f"{subject}.none")


@asynchronous
async def test_nobody_there() -> None:
    """A server that is not there is an error in the time given, and leaves nothing running."""
    before = len(asyncio.all_tasks())
    with pytest.raises(ConnectionLostError):
        async with connect("nats://127.0.0.1:1", connect_timeout=0.5):
            raise AssertionError("connected")
    await asyncio.sleep(0.05)

    assert len(asyncio.all_tasks()) == before
