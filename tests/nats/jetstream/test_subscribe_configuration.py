"""ADR-15 on a real server: what is refused before anything is sent (B1 to B6)."""

from __future__ import annotations

import pytest
from tests.nats.jetstream.support import Proxy, asynchronous, push

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import AckPolicy, ConsumerConfig, connect


def paths(failure: pytest.ExceptionInfo[ConfigError]) -> set[str]:
    return {mistake.path for mistake in failure.value.mistakes}


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
