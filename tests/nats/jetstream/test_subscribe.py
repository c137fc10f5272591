"""ADR-15 on a real server: what an existing consumer is checked for (B12 to B19)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.nats.jetstream.support import Proxy, asynchronous, push, stream_of_messages

from turnout.embedded import NatsServer
from turnout.nats.jetstream import AckPolicy, ConsumerConfig, DeliverPolicy, connect
from turnout.nats.jetstream.errors import (
    ConfigDriftError,
    ConsumerBoundError,
    FilterMismatchError,
    NoDeliverGroupError,
    PullConsumerError,
    PushConsumerError,
    QueueFlowControlError,
    QueueMismatchError,
    QueueRequiredError,
)
from turnout.nats.jetstream.subscribe import create_consumer


@asynchronous
async def test_b12_already_bound(nats_server: NatsServer) -> None:
    """B12: a push consumer that has a subscriber cannot be subscribed to again."""
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


THERE: dict[str, Any] = {
    "durable_name": "D", "description": "there", "deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 2,
    "ack_policy": AckPolicy.EXPLICIT, "ack_wait": 20.0, "max_deliver": 4, "replay_policy": "instant",
    "rate_limit_bps": 10_000_000, "sample_freq": "50%", "max_ack_pending": 77, "idle_heartbeat": 7.0,
    "num_replicas": 1, "headers_only": False, "max_waiting": None, "mem_storage": False,
}  # fmt: skip
DRIFTS: list[tuple[str, Any]] = [
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
        consumer = await create_consumer(js.api, stream.name, ConsumerConfig(deliver_subject="d9", **THERE))
        before = len([line for line in proxy.lines("PUB") if "CONSUMER.CREATE" in line])
        for name, request in DRIFTS:
            with pytest.raises(ConfigDriftError) as failure:
                await js.subscribe(stream=stream.name, consumer="D", config=ConsumerConfig(**{name: request}))
            assert [name] == [difference[0] for difference in failure.value.differences], name
            assert request == failure.value.differences[0][1]
        same = {name: value for name, value in THERE.items() if value is not None}
        async with await js.subscribe(f"{subject}.a", durable="D", config=ConsumerConfig(**same)):
            pass

        assert len([line for line in proxy.lines("PUB") if "CONSUMER.CREATE" in line]) == before
        assert consumer.config == (await stream.consumer_info("D")).config


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
