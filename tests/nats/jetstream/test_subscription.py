"""ADR-15 on a real server: heartbeats, gaps and flow control (B30 to B39)."""

from __future__ import annotations

import asyncio
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.nats.jetstream.support import (
    Errors,
    Proxy,
    asynchronous,
    eventually,
    forge,
    push,
    stream_of_messages,
    unbound,
)

from turnout.embedded import NatsServer
from turnout.nats.jetstream import AckPolicy, ConsumerConfig, Delivery, Message, PushSubscription, connect
from turnout.nats.jetstream._client import Frame
from turnout.nats.jetstream.connection import Api, NatsConnection
from turnout.nats.jetstream.errors import HeartbeatMissedError, SequenceGapError
from turnout.nats.jetstream.subscribe import create_consumer
from turnout.nats.protocol.options import Prefix

_REPLY = b"$JS.ACK.S.C.1.%d.%d.1700000000000000000.5"
_STATUS = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 9\r\n\r\n"
# NEXT is the sequence of the next message.
_ODD: tuple[Frame, ...] = (
    (b"s", _REPLY % (50, 7), b"", b"a gap"),
    (b"s", b"$JS.ACK.S.C.1.50.NEXT.1700000000000000000.5", b"NATS/1.0\r\nA: b\r\n\r\n", b"with headers"),
    (b"s", b"$JS.ACK.S.C.1.50.NEXT.1700000000000000000.5", b"NATS/1.0\r\nA: b\r\n\r\n", b""),
    (b"s", b"$JS.ACK.S.C.1.50.NEXT.1700000000000000000.5", b"", b""),
    (b"s", b"$JS.ACK.S.C.1.50.NEXT.1700000000000000000.5", _STATUS, b""),
    (b"s", b"$JS.ACK.S.D.1.3.NEXT.1700000000000000000.5", b"", b"another consumer"),
    (b"s", b"$JS.ACK._.hash.S.C.1.9.NEXT.1700000000000000000.5", b"", b"more tokens"),
    (b"s", b"$JS.ACK.S.C.1.x.NEXT.1700000000000000000.5", b"", b"no number"),
    (b"s", b"$JS.ACK.S.C.1.99999999999999999999.NEXT.1700000000000000000.5", b"", b"a large number"),
    (b"s", b"$JS.ACK.S.C.1.3.0NEXT.1700000000000000000.5", b"", b"a leading zero"),
    (b"s", b"$JS.ACK.S.C.1.3.NEXT.1700000000000000000.5.6", b"", b"one token more"),
    (b"s", b"answer.to", b"", b"no message of JetStream"),
    (b"s", b"", b"", b"no reply"),
    (b"s", b"-", b"", b"a reply of one token"),
    (b"s", b"", _STATUS, b""),
    (b"s", b"$JS.FC.S.C.x", b"NATS/1.0 100 FlowControl Request\r\n\r\n", b""),
)


@settings(max_examples=examples(300))
@given(st.lists(st.integers(1, 30) | st.sampled_from(_ODD), max_size=8))
def test_together_or_one_by_one(parts: list[int | Frame]) -> None:
    """Messages that are received together are taken, counted and reported like each by itself."""
    frames: list[Frame] = []
    sequence = 0
    for part in parts:
        if isinstance(part, tuple):
            subject, reply, headers, data = part
            frames.append((subject, reply.replace(b"NEXT", b"%d" % (sequence + 1)), headers, data))
            sequence += b".50.NEXT" in reply and headers is not _STATUS
            continue
        for _ in range(part):
            sequence += 1
            frames.append((b"s.%d" % sequence, _REPLY % (sequence + 100, sequence), b"", b"%d" % sequence))

    async def receive(together: bool) -> tuple[object, ...]:
        reports: list[str] = []
        connection = NatsConnection(lambda failure: reports.append(str(failure)))
        sub = PushSubscription(Api(connection, Prefix.of(), 1.0), Delivery())
        for some in [frames] if together else [[frame] for frame in frames]:
            if some:
                sub._receive(some)
        taken = [(message.subject, message.reply, message.headers, message.data) for message in sub._mailbox.rest()]
        return taken, reports, sub._position.consumer_seq, sub._position.stream_seq, sub._received

    assert asyncio.run(receive(True)) == asyncio.run(receive(False))


@asynchronous
async def test_b30_silence(nats_server: NatsServer) -> None:
    """B30: three intervals without a sign of life are an alarm, repeated each period; the subscription stays."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        stream, subject = await stream_of_messages(js, 1)
        sub = await js.subscribe(f"{subject}.a", config=ConsumerConfig(idle_heartbeat=0.2))
        await sub.next()
        await asyncio.sleep(0.8)
        assert not errors

        loop = asyncio.get_running_loop()
        await stream.delete_consumer(sub.consumer_name)
        begun = loop.time()
        failure = await errors.expect(HeartbeatMissedError)
        assert 0.35 <= loop.time() - begun <= 1.0
        assert 0.6 <= failure.idle <= 0.9
        await eventually(lambda: len(errors.of(HeartbeatMissedError)) >= 2)
        assert not sub.closed
        sub._owns_consumer = False


@asynchronous
async def test_b30_configurable_alarm(nats_server: NatsServer) -> None:
    """B30: the time until the alarm can be chosen."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js, 1)
        config = ConsumerConfig(idle_heartbeat=30)
        await js.subscribe(f"{subject}.a", config=config, delivery=Delivery(heartbeat_alarm=0.2))
        assert (await errors.expect(HeartbeatMissedError)).idle < 1


@asynchronous
async def test_b31_gap(nats_server: NatsServer) -> None:
    """B31: a message that is missing between two others is reported once, with what was expected and what came."""
    errors = Errors()
    async with Proxy(nats_server.port) as proxy, connect(proxy.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js, 6)
        proxy.drop = lambda frame: frame.startswith(b"MSG") and bool(re.search(rb"\.1\.3\.3\.\d+\.", frame))
        async with await js.subscribe(f"{subject}.a") as sub:
            sequences = [(await sub.next()).sequence for _ in range(5)]

        assert sequences == [1, 2, 4, 5, 6]
        (failure,) = errors.of(SequenceGapError)
        assert (failure.expected, failure.got, failure.resume_from) == (3, 4, 3)


@asynchronous
async def test_b32_gap_in_a_heartbeat(nats_server: NatsServer) -> None:
    """B32: a heartbeat that names another last consumer sequence is reported; the stream's sequence does not count."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        stream, _ = await stream_of_messages(js, 3)
        config = push("b32", durable_name="D", ack_policy=AckPolicy.NONE, idle_heartbeat=0.1)
        await create_consumer(js.api, stream.name, config)
        first = await js.subscribe(stream=stream.name, consumer="D")
        for _ in range(3):
            await first.next()
        await first.unsubscribe()
        # Bound again: the last sequence is 3, not 0, and messages elsewhere in the stream are no gap.
        await eventually(lambda: unbound(stream, "D"))
        again = await js.subscribe(stream=stream.name, consumer="D")
        await asyncio.sleep(0.35)
        assert not errors

        for _ in range(2):
            forge(js, again.subject, 100, "Idle Heartbeat", {"Nats-Last-Consumer": "99", "Nats-Last-Stream": "120"})
        failure = await errors.expect(SequenceGapError)
        assert (failure.expected, failure.got, failure.resume_from) == (3, 99, 4)
        await js.connection.round_trip(2)
        assert len(errors.of(SequenceGapError)) == 1


@asynchronous
async def test_b33_no_gap_check_in_queues(nats_server: NatsServer) -> None:
    """B33: members of a queue see gaps by nature: none is reported."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js, 30)
        subscription = await js.subscribe(f"{subject}.a", queue="q")
        await subscription.next()
        forge(js, subscription.subject, 100, "Idle Heartbeat", {"Nats-Last-Consumer": "99"})
        two = await js.subscribe(f"{subject}.a", queue="q")
        for _ in range(30):
            await js.publish(f"{subject}.a")
        await eventually(lambda: two.pending > 1 and subscription.pending + two.pending >= 59)

        assert not errors


@asynchronous
async def test_b34_redelivery_is_no_gap(nats_server: NatsServer) -> None:
    """B34: a message that comes again has a new consumer sequence, and is no gap."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js, 2)
        async with await js.subscribe(f"{subject}.a") as sub:
            first = await sub.next()
            await first.nak()
            await sub.next()
            again = await sub.next()

        assert (first.sequence, again.sequence) == (1, 1)
        assert again.metadata.num_delivered == 2
        assert not errors


@asynchronous
async def test_b36_flow_control_in_turn(nats_server: NatsServer) -> None:
    """B36: a flow control request is answered when the messages before it have been handed over, not earlier."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        _, subject = await stream_of_messages(js, 3000, size=1000)
        before: list[int] = []
        handed = 0
        requested: list[int] = []
        received = 0

        def count(frame: bytes) -> bool:
            nonlocal received
            if b"$JS.ACK." in frame.split(b"\r\n")[0]:
                received += 1
            elif b"FlowControl" in frame:
                requested.append(received)
            return False

        answered = 0

        def count_answers(frame: bytes) -> bool:
            nonlocal answered
            answered += frame.startswith(b"PUB $JS.FC.")
            return False

        proxy.drop, proxy.drop_sent = count, count_answers
        handled = asyncio.Event()

        async def slow(message: Message) -> None:
            nonlocal handed
            handed += 1
            if handed % 50 == 0:
                await asyncio.sleep(0.001)
            before.append(answered)
            if handed == 3000:
                handled.set()

        config = ConsumerConfig(ack_policy=AckPolicy.NONE, flow_control=True, idle_heartbeat=2)
        async with await js.subscribe(f"{subject}.a", slow, config=config):
            await handled.wait()

        assert len(requested) >= 1
        for number, position in enumerate(requested):
            if position < 3000:
                # While the message before the request was not handed over, no answer to it was on the wire.
                assert max(before[: position - 1], default=0) <= number


@asynchronous
async def test_b36_at_once_when_idle(nats_server: NatsServer) -> None:
    """B36: a request that comes when all has been handed over is answered at once, empty, and not shown."""
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js)
        sub = await js.subscribe(f"{subject}.a", config=ConsumerConfig(idle_heartbeat=5, flow_control=True))
        answers: list[bytes] = []
        await js.connection.listen("fc.36", lambda frames: answers.extend(data for *_, data in frames))
        forge(js, sub.subject, 100, "FlowControl Request", {}, b"fc.36")
        await eventually(lambda: answers == [b""])

        assert sub.pending == 0


@asynchronous
async def test_b37_next_passes_flow_control(nats_server: NatsServer) -> None:
    """B37: a synchronous next answers a request on its way, and returns the message behind it."""
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js, 2)
        config = ConsumerConfig(idle_heartbeat=5, flow_control=True)
        sub = await js.subscribe(f"{subject}.a", config=config)
        answers: list[bytes] = []
        await js.connection.listen("fc.37", lambda frames: answers.extend(frame[0] for frame in frames))
        await eventually(lambda: sub.pending == 2)
        forge(js, sub.subject, 100, "FlowControl Request", {}, b"fc.37")
        await js.publish(f"{subject}.a")
        await eventually(lambda: sub.pending == 4)
        await sub.next()
        await js.connection.round_trip(2)
        assert answers == []

        sequences = [(await sub.next(1)).sequence for _ in range(2)]
        await eventually(lambda: answers == [b"fc.37"])
        assert sequences == [2, 3]


@asynchronous
async def test_b38_stalled_once(nats_server: NatsServer) -> None:
    """B38: the stalled header is answered once per value, and not if its request was answered."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js)
        config = ConsumerConfig(idle_heartbeat=5, flow_control=True)
        sub = await js.subscribe(f"{subject}.a", config=config)
        answers: list[str] = []
        await js.connection.listen("fc38.*", lambda frames: answers.extend(frame[0].decode() for frame in frames))
        for name in ("one", "one", "two", "two"):
            header = {"Nats-Last-Consumer": "0", "Nats-Consumer-Stalled": f"fc38.{name}"}
            forge(js, sub.subject, 100, "Idle Heartbeat", header)
        forge(js, sub.subject, 100, "FlowControl Request", {}, b"fc38.three")
        forge(
            js, sub.subject, 100, "Idle Heartbeat", {"Nats-Last-Consumer": "0", "Nats-Consumer-Stalled": "fc38.three"}
        )
        await eventually(lambda: len(answers) >= 3)
        await js.connection.round_trip(2)

        assert answers == ["fc38.one", "fc38.two", "fc38.three"]


@asynchronous
async def test_b38_a_lost_request_is_made_good(nats_server: NatsServer) -> None:
    """B38: when the request is lost on the way, the stalled header releases the rest."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        _, subject = await stream_of_messages(js, 3000, size=1000)
        lost: list[bytes] = []

        def lose_first(frame: bytes) -> bool:
            if b"FlowControl Request" in frame and not lost:
                lost.append(frame)
                return True
            return False

        proxy.drop = lose_first
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, flow_control=True, idle_heartbeat=0.2)
        async with await js.subscribe(f"{subject}.a", config=config) as sub:
            for _ in range(3000):
                await sub.next(5)

        assert lost


@asynchronous
async def test_b39_only_data(nats_server: NatsServer) -> None:
    """B39: heartbeats never reach the user."""
    messages: list[Message] = []
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js, 2)
        await js.subscribe(f"{subject}.a", messages.append, config=ConsumerConfig(idle_heartbeat=0.1))
        await asyncio.sleep(0.5)

        assert [m.sequence for m in messages] == [1, 2]
