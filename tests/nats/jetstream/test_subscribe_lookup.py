"""ADR-15 on a real server: how the stream and the consumer are found (B7 to B11), and compared."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.nats.jetstream.support import Proxy, asynchronous, eventually, stream_of_messages, unbound

from turnout.embedded import NatsServer
from turnout.nats.jetstream import ConsumerConfig, StreamConsumerLimits, connect
from turnout.nats.jetstream.errors import (
    ConfigDriftError,
    ConsumerExistsError,
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


_SAME_PULL: tuple[dict[str, Any], ...] = (
    {"ack_wait": 60, "backoff": [3.0], "max_deliver": 5},
    {"backoff": [1 / 3, 2 / 3], "max_deliver": 3},
    {"backoff": []},
    *({"max_deliver": limit} for limit in (0, -1, -5)),
    *({"ack_wait": seconds} for seconds in (0, 1 / 3, 1e-9, 30)),
    *({"max_waiting": limit} for limit in (0, -3, 512)),
    *({"max_ack_pending": limit} for limit in (0, -7)),
    *({name: limit} for name in ("max_batch", "max_bytes", "max_expires", "inactive_threshold") for limit in (0, -1)),
    {"sample_freq": "100%"},
    {"rate_limit_bps": 0, "num_replicas": 0, "opt_start_seq": 0, "idle_heartbeat": 0, "description": ""},
    {"mem_storage": False, "headers_only": False, "replay_policy": "instant", "deliver_policy": "all"},
    {"filter_subject": ">"},
    {"priority_policy": "overflow", "priority_groups": ["g"]},
    {"deliver_policy": "by_start_time", "opt_start_time": datetime(2026, 1, 31, 12, 0, 0, 123456)},
    {"deliver_policy": "by_start_time", "opt_start_time": datetime(2026, 1, 31, tzinfo=timezone(timedelta(hours=2)))},
    {"deliver_policy": "by_start_time", "opt_start_time": timedelta(hours=1)},
    {"pause_until": datetime(2099, 1, 31, tzinfo=UTC)},
)
_SAME_PUSH: tuple[dict[str, Any], ...] = (
    {"ack_policy": "all", "ack_wait": 0, "max_ack_pending": 0},
    {"idle_heartbeat": 1 / 3},
    {"idle_heartbeat": -1.0},
    {"max_waiting": 0},
)


@pytest.mark.parametrize("limits", [None, StreamConsumerLimits(inactive_threshold=60.0, max_ack_pending=77)])
@asynchronous
async def test_what_the_server_keeps_is_no_drift(nats_server: NatsServer, limits: StreamConsumerLimits | None) -> None:
    """A configuration binds to the consumer that it made, whatever the server kept in place of its values."""
    async with connect(nats_server.url) as js:
        stream, _ = await stream_of_messages(js, 1, consumer_limits=limits)
        for number, settings in enumerate(_SAME_PULL):
            for _ in range(2):
                sub = await js.pull_subscribe(
                    stream=stream.name, durable=f"pull{number}", config=ConsumerConfig(**settings)
                )
            assert not sub.owns_consumer
        for number, settings in enumerate(_SAME_PUSH):
            for _ in range(2):
                name = f"push{number}"
                async with await js.subscribe(stream=stream.name, durable=name, config=ConsumerConfig(**settings)):
                    pass
                await eventually(lambda name=name: unbound(stream, name))  # type: ignore[misc]


@asynchronous
async def test_the_order_of_filters_is_no_drift(nats_server: NatsServer) -> None:
    """Filters in another order, and one filter in either form, are the same; others are a drift."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js)
        filters = [f"{subject}.{token}" for token in "abc"]
        several = ConsumerConfig(filter_subjects=filters)
        other_order = ConsumerConfig(filter_subjects=filters[::-1])
        await js.pull_subscribe(stream=stream.name, durable="several", config=several)
        await js.pull_subscribe(stream=stream.name, durable="several", config=other_order)
        await stream.create_consumer(replace(other_order, durable_name="created"))
        await stream.create_consumer(replace(several, durable_name="created"))
        with pytest.raises(ConfigDriftError):
            await js.pull_subscribe(
                stream=stream.name, durable="several", config=ConsumerConfig(filter_subjects=filters[:2])
            )
        with pytest.raises(ConsumerExistsError):
            await stream.create_consumer(ConsumerConfig(durable_name="created", filter_subjects=filters[:2]))

        await js.pull_subscribe(filters[0], stream=stream.name, durable="one")
        one = ConsumerConfig(filter_subjects=filters[:1])
        assert not (await js.pull_subscribe(stream=stream.name, durable="one", config=one)).owns_consumer


@pytest.mark.parametrize(
    ("requested", "found"),
    [
        ({"max_deliver": 0}, {"max_deliver": 5}),
        ({"max_deliver": 5}, {"max_deliver": -1}),
        ({"ack_wait": 0}, {"ack_wait": 60}),
        ({"ack_wait": 60}, {"ack_wait": 3, "backoff": [3]}),
        ({"backoff": [3]}, {"ack_wait": 30}),
        ({"backoff": [3, 4]}, {"backoff": [4, 3]}),
        ({"max_waiting": 0}, {"max_waiting": 5}),
        ({"max_ack_pending": 5}, {"max_ack_pending": 1000}),
        ({"max_ack_pending": -1}, {"max_ack_pending": 1000}),
        ({"inactive_threshold": 5}, {"inactive_threshold": 6}),
        ({"filter_subject": "a"}, {}),
        ({"filter_subject": ""}, {"filter_subject": "a"}),
        ({"sample_freq": "50%"}, {"sample_freq": "5"}),
        ({"headers_only": False}, {"headers_only": True}),
        ({"opt_start_time": datetime(2026, 1, 1, tzinfo=UTC)}, {"opt_start_time": datetime(2026, 1, 2, tzinfo=UTC)}),
        ({"priority_groups": ["a"]}, {"priority_groups": ["b"]}),
    ],
)
def test_what_differs_is_a_drift(requested: dict[str, Any], found: dict[str, Any]) -> None:
    """What the server would keep otherwise is a difference, for the fields that were set."""
    names = [name for name, _, _ in ConsumerConfig(**requested).differences(ConsumerConfig(**found))]

    assert names == [*requested]
