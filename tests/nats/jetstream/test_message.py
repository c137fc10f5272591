"""ADR-15 on a real server: what a JSAck tells, and what acknowledgements do (B25 to B29)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.nats.jetstream.support import Proxy, asynchronous, push, stream_of_messages

from turnout.embedded import NatsServer
from turnout.nats.jetstream import AckPolicy, ConsumerConfig, JSAck, Message, connect
from turnout.nats.jetstream.errors import NotJetStreamMessageError, RequestTimeoutError
from turnout.nats.jetstream.subscribe import create_consumer


@asynchronous
async def test_b25_jsack(nats_server: NatsServer) -> None:
    """B25: the reply tells stream, consumer, sequences, time and what is left."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 3)
        async with await js.subscribe(f"{subject}.a", durable="D") as sub:
            await sub.next()
            place = (await sub.next()).metadata

        assert (stream.name, "D", 1, 2, 2, 1) == (
            place.stream, place.consumer, place.num_delivered, place.stream_seq, place.consumer_seq, place.num_pending,
        )  # fmt: skip
        assert abs((datetime.now(UTC) - place.timestamp).total_seconds()) < 60


def test_b25_version_2_on_a_real_server() -> None:
    """B25: version 2 acks, domain and all, serve every kind of consumer, the ordered one too."""
    config = "jetstream { domain: DOM }\nfeature_flags { js_ack_fc_v2: true }\n"

    async def check(url: str) -> None:
        async with connect(url) as js:
            _, subject = await stream_of_messages(js, 5)
            sub = await js.subscribe(f"{subject}.a")
            first = await sub.next()
            await first.double_ack()
            pull = await js.pull_subscribe(f"{subject}.a")
            ordered = await js.ordered(f"{subject}.a")
            sequences = [(await ordered.next()).sequence for _ in range(5)]

            assert (first.metadata.version, first.metadata.domain) == (2, "DOM")
            assert len(await pull.fetch(5)) == 5
            assert sequences == [1, 2, 3, 4, 5]

    with NatsServer(config=config) as server:
        asyncio.run(check(server.url))


@asynchronous
async def test_b26_kinds(nats_server: NatsServer) -> None:
    """B26: each kind of ack has its effect, and its bytes go to the reply verbatim."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        _, subject = await stream_of_messages(js, 5)
        pull = await js.pull_subscribe(f"{subject}.a", config=ConsumerConfig(ack_wait=0.6))
        acked, naked, delayed, term, working = await pull.fetch(5)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await acked.ack()
        await naked.nak()
        await delayed.nak(0.3)
        await term.term("bad data")
        again = await pull.fetch(1, timeout=1)
        for _ in range(3):
            await working.in_progress()
            await asyncio.sleep(0.25)
        late = await pull.fetch(1, timeout=1)

        assert [naked.sequence] == [m.sequence for m in again]
        assert [delayed.sequence] == [m.sequence for m in late]
        assert late[0].metadata.num_delivered == 2
        assert loop.time() - begun >= 0.3
        await again[0].ack()
        await late[0].ack()
        await working.double_ack()
        sent = {frame.split(b"\r\n")[1] for frame in proxy.sent if frame.startswith(b"PUB $JS.ACK.")}
        assert {b"+ACK", b"-NAK", b'-NAK {"delay": 300000000}', b"+TERM bad data", b"+WPI"} == sent
        info = await pull.info()
        assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 5)


@asynchronous
async def test_b27_once(nats_server: NatsServer) -> None:
    """B27: after a terminal ack every other is ignored, in silence; a failed one does not count."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        _, subject = await stream_of_messages(js, 2)
        pull = await js.pull_subscribe(f"{subject}.a")
        first, second = await pull.fetch(2)
        await first.ack()
        for call in (first.ack, first.nak, first.term, first.in_progress, first.double_ack):
            await call()
        await js.connection.round_trip(2)

        assert len([line for line in proxy.lines("PUB") if line.split()[1] == first.reply]) == 1
        real = proxy.drop_sent
        proxy.drop_sent = lambda frame: frame.startswith(b"PUB $JS.ACK.")
        with pytest.raises(RequestTimeoutError):
            await second.double_ack(timeout=0.2)
        assert not second.is_acked
        proxy.drop_sent = real
        await second.double_ack()
        assert second.is_acked


@asynchronous
async def test_b28_ack_policy_none(nats_server: NatsServer) -> None:
    """B28: where no acks are wanted, none is sent, and none is an error; so also on a bound consumer."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        await create_consumer(js.api, stream.name, push("d1", durable_name="N", ack_policy=AckPolicy.NONE))
        subscription = await js.subscribe(f"{subject}.a", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
        bound = await js.subscribe(stream=stream.name, consumer="N")
        for sub in (subscription, bound):
            message = await sub.next()
            for call in (message.ack, message.nak, message.term, message.in_progress, message.double_ack):
                await call()
        await js.connection.round_trip(2)

        assert not [line for line in proxy.lines("PUB") if "$JS.ACK." in line]


@pytest.mark.parametrize("reply", [b"", b"_INBOX.x", b"$JS.ACK.S.C.1.1.1.1", b"$JS.ACK.S.C.1.1.1.1.1.1", b"$JS.FC.a.b"])
@asynchronous
async def test_b29_not_a_jetstream_message(nats_server: NatsServer, reply: bytes) -> None:
    """B29: a message without a JSAck cannot be acknowledged."""
    async with connect(nats_server.url) as js:
        message = Message(js.connection, b"a", reply, b"", b"")
        for call in (message.ack, message.nak, message.term, message.in_progress, message.double_ack):
            with pytest.raises(NotJetStreamMessageError):
                await call()


def test_b25_text_again() -> None:
    """B25: the reply's own text is rebuilt from what was read, in both versions."""
    for reply in ("$JS.ACK.S.C.1.2.3.4.5", "$JS.ACK._.h.S.C.1.2.3.4.5", "$JS.ACK.D.h.S.C.1.2.3.4.5"):
        assert reply == str(JSAck.parse(reply))
