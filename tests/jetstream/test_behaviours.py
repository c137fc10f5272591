"""ADR-15's subscribe workflow on a real server: one test per behaviour, by its number in docs/jetstream.md."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import UTC, datetime

import pytest
from tests.jetstream.support import Errors, Proxy, asynchronous, eventually, push, stream_of_messages

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.jetstream import AckPolicy, ConsumerConfig, DeliverPolicy, Delivery, JSAck, Message, PullOptions, connect
from turnout.jetstream.errors import (
    ConfigDriftError,
    ConsumerBoundError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    FilterMismatchError,
    HeartbeatMissedError,
    NoDeliverGroupError,
    NoMatchingStreamError,
    NoRespondersError,
    NotJetStreamMessageError,
    PullConsumerError,
    PushConsumerError,
    QueueFlowControlError,
    QueueMismatchError,
    QueueRequiredError,
    RequestTimeoutError,
    SequenceGapError,
    StatusError,
    StreamError,
)
from turnout.jetstream.ordered import check_ordered
from turnout.jetstream.status import Status
from turnout.jetstream.stream import Stream
from turnout.jetstream.subscribe import create_consumer

FEW = 40


def paths(failure: pytest.ExceptionInfo[ConfigError]) -> set[str]:
    return {mistake.path for mistake in failure.value.mistakes}


# -- configuration checks


@pytest.mark.parametrize("config", [ConsumerConfig(idle_heartbeat=1), ConsumerConfig(flow_control=True)])
@asynchronous
async def test_b01_queue_with_heartbeat_or_flow_control(nats_server: NatsServer, config: ConsumerConfig) -> None:
    """B1: a queue subscription with heartbeats or flow control is refused before anything is sent."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        before = len(proxy.lines("PUB"))
        with pytest.raises(ConfigError, match="queue subscription cannot have") as failure:
            await js.subscribe("x.y", queue="q", config=config)

        assert paths(failure) == {"queue"}
        assert len(proxy.lines("PUB")) == before


@asynchronous
async def test_b02_subject_or_stream(nats_server: NatsServer) -> None:
    """B2: without a subject and without a stream there is nothing to find."""
    async with connect(nats_server.url) as js:
        for call in (js.subscribe, js.pull_subscribe, js.ordered):
            with pytest.raises(ConfigError, match="subject is required"):
                await call()


@pytest.mark.parametrize("policy", [AckPolicy.NONE, AckPolicy.ALL])
@asynchronous
async def test_b03_pull_ack_policy(nats_server: NatsServer, policy: AckPolicy) -> None:
    """B3: a pull subscription acknowledges each message."""
    async with connect(nats_server.url) as js:
        with pytest.raises(ConfigError, match="ack policy") as failure:
            await js.pull_subscribe("x.y", config=ConsumerConfig(ack_policy=policy))

        assert paths(failure) == {"config.ack_policy"}


@asynchronous
async def test_b04_pull_with_deliver_subject(nats_server: NatsServer) -> None:
    """B4: a pull subscription has no deliver subject."""
    async with connect(nats_server.url) as js:
        with pytest.raises(ConfigError, match="pull subscription with a push configuration"):
            await js.pull_subscribe("x.y", config=push("d"))


@pytest.mark.parametrize("name", ["a.b", "a*", ">", "a b", "a/b", "a\\b"])
@asynchronous
async def test_b05_names(nats_server: NatsServer, name: str) -> None:
    """B5: names that would break a subject are refused, all of them at once."""
    async with connect(nats_server.url) as js:
        with pytest.raises(ConfigError, match="invalid name") as failure:
            await js.subscribe("x.y", stream=name, durable=name, queue=name)

        assert paths(failure) == {"stream", "durable", "queue"}


def test_b06_ordered_refuses() -> None:
    """B6: an ordered consumer refuses what it cannot be, a mistake for each."""
    wrong = ConsumerConfig(durable_name="d", ack_policy="all", max_deliver=2, deliver_subject="x", deliver_group="q")
    with pytest.raises(ConfigError) as failure:
        check_ordered(wrong, subject="a", durable="d", queue="q", consumer="c", pull=True)

    assert {
        "config.durable_name", "config.ack_policy", "config.max_deliver", "config.deliver_subject",
        "config.deliver_group", "durable", "queue", "consumer", "pull",
    } == paths(failure)  # fmt: skip
    check_ordered(ConsumerConfig(ack_policy="none", max_deliver=1), subject="a")


# -- stream and consumer lookup


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
        asked = [line.split()[1] for line in proxy.lines("PUB") if "CONSUMER" in line]

        assert [
            f"$JS.API.CONSUMER.INFO.{stream.name}.D",
            f"$JS.API.CONSUMER.CREATE.{stream.name}.D.{subject}.a",
        ] == asked
        assert sub.owns_consumer


@asynchronous
async def test_b11_queue_is_durable(nats_server: NatsServer) -> None:
    """B11: a queue subscription without a name uses the queue's as durable; both members share the messages."""
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js)
        got: list[str] = []
        one = await js.subscribe(f"{subject}.a", lambda m: got.append("one"), queue="workers")
        two = await js.subscribe(f"{subject}.a", lambda m: got.append("two"), queue="workers")
        for _ in range(FEW):
            await js.publish(f"{subject}.a")
        await eventually(lambda: len(got) >= FEW)

        info = await one.consumer_info()
        assert (info.config.durable_name, info.config.deliver_group) == ("workers", "workers")
        assert one.consumer_name == two.consumer_name
        assert {"one", "two"} == set(got)
        assert len(got) == FEW
        other = await js.subscribe(f"{subject}.a", durable="elsewhere", queue="workers")
        assert other.consumer_name == "elsewhere"


# -- checks against an existing consumer


@asynchronous
async def test_b12_already_bound(nats_server: NatsServer) -> None:
    """B12: a push consumer that somebody listens to cannot be subscribed to twice."""
    async with connect(nats_server.url) as js, connect(nats_server.url) as other:
        _, subject = await stream_of_messages(js, 1)
        await js.subscribe(f"{subject}.a", durable="D")
        with pytest.raises(ConsumerBoundError, match="duplicate"):
            await other.subscribe(f"{subject}.a", durable="D")


@asynchronous
async def test_b13_made_for_a_queue(nats_server: NatsServer) -> None:
    """B13: a plain subscription cannot use a queue group's consumer, bound or not."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        await create_consumer(js.api, stream.name, push("d1", durable_name="D", deliver_group="q"))
        with pytest.raises(QueueRequiredError, match="queue group 'q'"):
            await js.subscribe(f"{subject}.a", durable="D")


@asynchronous
async def test_b14_other_queue(nats_server: NatsServer) -> None:
    """B14: another queue group and no queue group are two distinct errors."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        await create_consumer(js.api, stream.name, push("d1", durable_name="D", deliver_group="q"))
        await create_consumer(js.api, stream.name, push("d2", durable_name="N"))
        with pytest.raises(QueueMismatchError):
            await js.subscribe(f"{subject}.a", durable="D", queue="other")
        with pytest.raises(NoDeliverGroupError):
            await js.subscribe(f"{subject}.a", durable="N", queue="other")


@asynchronous
async def test_b15_other_filter(nats_server: NatsServer) -> None:
    """B15: the consumer's filter must be the subject, exactly."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        await create_consumer(js.api, stream.name, push("d1", durable_name="D", filter_subject=f"{subject}.a"))
        await stream.create_consumer(ConsumerConfig(durable_name="P", filter_subject=f"{subject}.a"))
        with pytest.raises(FilterMismatchError):
            await js.subscribe(f"{subject}.b", durable="D")
        with pytest.raises(FilterMismatchError):
            await js.pull_subscribe(f"{subject}.*", durable="P")


@asynchronous
async def test_b16_pull_from_push(nats_server: NatsServer) -> None:
    """B16: a pull subscription cannot use a push consumer."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        await create_consumer(js.api, stream.name, push("d1", durable_name="D"))
        with pytest.raises(PushConsumerError):
            await js.pull_subscribe(f"{subject}.a", durable="D")
        with pytest.raises(PushConsumerError):
            await stream.consumer("D")


@asynchronous
async def test_b17_push_to_pull(nats_server: NatsServer) -> None:
    """B17: a push subscription cannot use a pull consumer."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        await stream.create_consumer(ConsumerConfig(durable_name="P"))
        with pytest.raises(PullConsumerError, match="pull subscription is required"):
            await js.subscribe(f"{subject}.a", durable="P")


THERE = {
    "durable_name": "D", "description": "there", "deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 2,
    "ack_policy": AckPolicy.EXPLICIT, "ack_wait": 20.0, "max_deliver": 4, "replay_policy": "instant",
    "rate_limit_bps": 10_000_000, "sample_freq": "50%", "max_ack_pending": 77, "idle_heartbeat": 7.0,
    "num_replicas": 1, "headers_only": False, "max_waiting": None, "mem_storage": False,
}  # fmt: skip
DRIFTS = [
    ("description", "asked"), ("deliver_policy", DeliverPolicy.ALL), ("opt_start_seq", 3),
    ("opt_start_time", datetime(2026, 1, 1, tzinfo=UTC)), ("ack_policy", AckPolicy.ALL), ("ack_wait", 21.0),
    ("max_deliver", 5), ("replay_policy", "original"), ("rate_limit_bps", 10_000_001), ("sample_freq", "60%"),
    ("max_ack_pending", 78), ("flow_control", True), ("idle_heartbeat", 8.0), ("num_replicas", 3),
    ("mem_storage", True), ("headers_only", True), ("durable_name", "E"),
]  # fmt: skip


@asynchronous
async def test_b18_drift(nats_server: NatsServer) -> None:
    """B18: every field that the caller set is compared, and none that was left alone; nothing is changed."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        stream, subject = await stream_of_messages(js, 3)
        made = await create_consumer(js.api, stream.name, ConsumerConfig(deliver_subject="d9", **THERE))
        before = len([line for line in proxy.lines("PUB") if "CONSUMER.CREATE" in line])
        for name, asked in DRIFTS:
            with pytest.raises(ConfigDriftError) as failure:
                await js.subscribe(stream=stream.name, consumer="D", config=ConsumerConfig(**{name: asked}))
            assert [name] == [difference[0] for difference in failure.value.differences], name
            assert asked == failure.value.differences[0][1]
        same = {name: value for name, value in THERE.items() if value is not None}
        async with await js.subscribe(f"{subject}.a", durable="D", config=ConsumerConfig(**same)):
            pass

        assert len([line for line in proxy.lines("PUB") if "CONSUMER.CREATE" in line]) == before
        assert made.config == (await stream.consumer_info("D")).config


@asynchronous
async def test_b18_drift_of_a_pull_consumer(nats_server: NatsServer) -> None:
    """B18: max_waiting and the start time belong to pull consumers too."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        await stream.create_consumer(ConsumerConfig(durable_name="P", max_waiting=9))
        for config in (ConsumerConfig(max_waiting=8), ConsumerConfig(max_batch=3), ConsumerConfig(backoff=[1, 2])):
            with pytest.raises(ConfigDriftError):
                await js.pull_subscribe(f"{subject}.a", durable="P", config=config)
        await js.pull_subscribe(f"{subject}.a", durable="P", config=ConsumerConfig(max_waiting=9))


@asynchronous
async def test_b19_queue_on_a_consumer_with_heartbeats(nats_server: NatsServer) -> None:
    """B19: an existing consumer with heartbeats or flow control cannot serve a queue."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 1)
        await create_consumer(js.api, stream.name, push("d1", durable_name="H", deliver_group="q", idle_heartbeat=1))
        config = push("d2", durable_name="F", deliver_group="q", idle_heartbeat=1, flow_control=True)
        await create_consumer(js.api, stream.name, config)
        for durable in ("H", "F"):
            with pytest.raises(QueueFlowControlError):
                await js.subscribe(f"{subject}.a", durable=durable, queue="q")


# -- creation


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
    """B22: a consumer made by somebody else between lookup and creation is looked up again and checked."""
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
        wanted = asyncio.create_task(
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
                await wanted
        elif kind == "other filter":
            with pytest.raises((FilterMismatchError, ConsumerBoundError)):
                await wanted
        else:
            sub = await wanted
            assert not sub.owns_consumer
            if kind == "queue":
                assert theirs.subject == sub.subject
            else:
                assert len(await sub.fetch(2)) == 2
        assert (await stream.consumer_info("D")).config.max_ack_pending == 7
        await eventually(lambda: len(js.connection.handlers) == (2 if kind == "queue" else 1))


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


# -- JSAck and acks


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
            seen = [(await ordered.next()).sequence for _ in range(5)]

            assert (first.metadata.version, first.metadata.domain) == (2, "DOM")
            assert len(await pull.fetch(5)) == 5
            assert seen == [1, 2, 3, 4, 5]

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
        made = await js.subscribe(f"{subject}.a", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
        bound = await js.subscribe(stream=stream.name, consumer="N")
        for sub in (made, bound):
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
        message = Message(js.connection, "a", reply, b"", b"")
        for call in (message.ack, message.nak, message.term, message.in_progress, message.double_ack):
            with pytest.raises(NotJetStreamMessageError):
                await call()


# -- heartbeats, gaps, flow control


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
            seen = [(await sub.next()).sequence for _ in range(5)]

        assert seen == [1, 2, 4, 5, 6]
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


async def unbound(stream: Stream, name: str) -> bool:
    return not (await stream.consumer_info(name)).push_bound


def forge(js: object, subject: str, code: int, text: str, headers: dict[str, str], reply: bytes = b"") -> None:
    """Send a status as the server would: clients may send anything but a JSAck as reply."""
    block = b"NATS/1.0 %d %b\r\n" % (code, text.encode())
    block += b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items()) + b"\r\n"
    frame = b"HPUB %b %b %d %d\r\n%b\r\n" % (subject.encode(), reply, len(block), len(block), block)
    js.connection._enqueue(frame)  # type: ignore[attr-defined]


@asynchronous
async def test_b33_no_gap_check_in_queues(nats_server: NatsServer) -> None:
    """B33: members of a queue see gaps by nature: none is reported."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js, 30)
        one = await js.subscribe(f"{subject}.a", queue="q")
        await one.next()
        forge(js, one.subject, 100, "Idle Heartbeat", {"Nats-Last-Consumer": "99"})
        two = await js.subscribe(f"{subject}.a", queue="q")
        for _ in range(30):
            await js.publish(f"{subject}.a")
        await eventually(lambda: two.pending > 1 and one.pending + two.pending >= 59)

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


@pytest.mark.parametrize("fault", ["deleted", "gap", "heartbeat gap", "reconnect", "silence"])
@asynchronous
async def test_b35_ordered(nats_server: NatsServer, fault: str) -> None:
    """B35: after every fault an ordered consumer goes on where it was: each message once, in order."""
    resets: list[StreamError] = []
    async with Proxy(nats_server.port) as proxy, connect(proxy.url, error_callback=Errors()) as js:
        stream, subject = await stream_of_messages(js, 20)
        config = ConsumerConfig(idle_heartbeat=0.2)
        sub = await js.ordered(f"{subject}.a", config=config, on_reset=resets.append)
        seen = [(await sub.next()).sequence for _ in range(20)]
        old, dropped = sub.subject, []
        if fault == "deleted":
            await stream.delete_consumer(sub.consumer_name)
        elif fault == "reconnect":
            proxy.cut()
            await eventually(lambda: bool(resets))
        elif fault == "silence":
            sid = b"%d" % sub._interest.sid
            proxy.drop = lambda frame: frame.startswith((b"MSG", b"HMSG")) and frame.split()[2] == sid
        else:
            # One data frame is lost; for "heartbeat gap" it is the last, which only a heartbeat can tell.
            lost = b".21.21." if fault == "gap" else b".25.25."

            def drop_once(frame: bytes) -> bool:
                if lost in frame.split(b"\r\n")[0] and not dropped:
                    dropped.append(frame)
                    return True
                return False

            proxy.drop = drop_once
        async with connect(nats_server.url) as other:
            for _ in range(5):
                await other.publish(f"{subject}.a")
            seen += [(await sub.next()).sequence for _ in range(5)]

        assert seen == list(range(1, 26))
        assert len(resets) == sub.resets >= 1
        assert old != sub.subject
        await eventually(lambda: only_one(stream))
        with pytest.raises(RequestTimeoutError):
            await sub.next(0.3)


async def only_one(stream: object) -> bool:
    return len(await stream.consumer_names()) == 1  # type: ignore[attr-defined]


@asynchronous
async def test_b36_flow_control_in_turn(nats_server: NatsServer) -> None:
    """B36: a flow control request is answered when the messages before it have been handed over, not earlier."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js:
        _, subject = await stream_of_messages(js, 3000, size=1000)
        before: list[int] = []
        handed = 0
        asked: list[int] = []
        received = 0

        def count(frame: bytes) -> bool:
            nonlocal received
            if b"$JS.ACK." in frame.split(b"\r\n")[0]:
                received += 1
            elif b"FlowControl" in frame:
                asked.append(received)
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

        assert len(asked) >= 1
        for number, position in enumerate(asked):
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
        await js.connection.listen("fc.36", lambda s, r, h, d: answers.append(d))
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
        await js.connection.listen("fc.37", lambda s, r, h, d: answers.append(s))
        await eventually(lambda: sub.pending == 2)
        forge(js, sub.subject, 100, "FlowControl Request", {}, b"fc.37")
        await js.publish(f"{subject}.a")
        await eventually(lambda: sub.pending == 4)
        await sub.next()
        await js.connection.round_trip(2)
        assert answers == []

        seen = [(await sub.next(1)).sequence for _ in range(2)]
        await eventually(lambda: answers == [b"fc.37"])
        assert seen == [2, 3]


@asynchronous
async def test_b38_stalled_once(nats_server: NatsServer) -> None:
    """B38: the stalled header is answered once per value, and not if its request was answered."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        _, subject = await stream_of_messages(js)
        config = ConsumerConfig(idle_heartbeat=5, flow_control=True)
        sub = await js.subscribe(f"{subject}.a", config=config)
        answers: list[str] = []
        await js.connection.listen("fc38.*", lambda s, r, h, d: answers.append(s.decode()))
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
    got: list[Message] = []
    async with connect(nats_server.url) as js:
        _, subject = await stream_of_messages(js, 2)
        await js.subscribe(f"{subject}.a", got.append, config=ConsumerConfig(idle_heartbeat=0.1))
        await asyncio.sleep(0.5)

        assert [m.sequence for m in got] == [1, 2]


# -- statuses


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
    from turnout.jetstream.consumer import Consumer

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


# -- unsubscribe and drain


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
    errors, got = Errors(), []
    async with connect(nats_server.url, error_callback=errors) as js:
        stream, subject = await stream_of_messages(js, 200)

        async def slow(message: Message) -> None:
            await asyncio.sleep(0.001)
            assert sub.consumer_name in await stream.consumer_names() if len(got) == 100 else True
            got.append(message)

        sub = await js.subscribe(f"{subject}.a", slow)
        await eventually(lambda: sub.pending > 50)
        received = len(got) + sub.pending
        await sub.drain()
        assert errors == []
        assert len(got) >= received
        assert await stream.consumer_names() == []

        doomed = await js.subscribe(f"{subject}.a", lambda m: None)
        await stream.delete_consumer(doomed.consumer_name)
        await doomed.drain()
        assert isinstance(errors[0], ConsumerNotFoundError)


@asynchronous
async def test_b49_discarded_subscription(nats_server: NatsServer) -> None:
    """B49: the subscription that lost the race does not delete the winner's consumer."""
    async with connect(nats_server.url) as js, connect(nats_server.url) as rival:
        stream, subject = await stream_of_messages(js, 1)
        await rival.subscribe(f"{subject}.a", durable="D", config=ConsumerConfig(max_ack_pending=5))
        real, calls = js.api.call, 0

        async def call(what: str, *args: object, **kwargs: object) -> dict[str, object]:
            nonlocal calls
            if what.startswith("CONSUMER.INFO") and not calls:
                calls += 1
                raise ConsumerNotFoundError("as it was a moment ago", code=404, err_code=10014)
            return await real(what, *args, **kwargs)

        js.api.call = call
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


def test_every_behaviour_has_a_test_and_a_line_in_the_docs() -> None:
    """B1 to B50: each is tested here by its number, and has its row in docs/jetstream.md."""
    from pathlib import Path

    tested = {int(found[1]) for name in vars(sys.modules[__name__]) if (found := re.match(r"test_b(\d\d)_", name))}
    rows = Path(__file__).parents[2].joinpath("docs", "jetstream.md").read_text(encoding="utf-8")
    documented = {int(number) for number in re.findall(r"^\| B(\d+) \|", rows, re.MULTILINE)}

    assert set(range(1, 51)) == tested
    assert set(range(1, 51)) == documented


def test_b25_text_again() -> None:
    """B25: the reply's own text is rebuilt from what was read, in both versions."""
    for reply in ("$JS.ACK.S.C.1.2.3.4.5", "$JS.ACK._.h.S.C.1.2.3.4.5", "$JS.ACK.D.h.S.C.1.2.3.4.5"):
        assert reply == str(JSAck.parse(reply))
