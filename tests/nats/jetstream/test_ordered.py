"""ADR-15: ordered consumers (B6, B35)."""

from __future__ import annotations

import pytest
from tests.nats.jetstream.support import (
    Errors,
    Proxy,
    asynchronous,
    eventually,
    stream_of_messages,
)

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import ConsumerConfig, connect
from turnout.nats.jetstream.errors import (
    RequestTimeoutError,
    StreamError,
)
from turnout.nats.jetstream.ordered import check_ordered


def paths(failure: pytest.ExceptionInfo[ConfigError]) -> set[str]:
    return {mistake.path for mistake in failure.value.mistakes}


def test_b06_ordered_refuses() -> None:
    """B6: an ordered consumer refuses what it cannot be, a mistake for each."""
    wrong = ConsumerConfig(durable_name="d", ack_policy="all", max_deliver=2, deliver_subject="x", deliver_group="q")
    with pytest.raises(ConfigError) as failure:
        check_ordered(wrong, subject="a")

    assert {
        "config.durable_name", "config.ack_policy", "config.max_deliver", "config.deliver_subject",
        "config.deliver_group",
    } == paths(failure)  # fmt: skip
    check_ordered(ConsumerConfig(ack_policy="none", max_deliver=1), subject="a")


@pytest.mark.parametrize("fault", ["deleted", "gap", "heartbeat gap", "reconnect", "silence"])
@asynchronous
async def test_b35_ordered(nats_server: NatsServer, fault: str) -> None:
    """B35: after every fault an ordered consumer goes on where it was: each message once, in order."""
    resets: list[StreamError] = []
    async with Proxy(nats_server.port) as proxy, connect(proxy.url, error_callback=Errors()) as js:
        stream, subject = await stream_of_messages(js, 20)
        config = ConsumerConfig(idle_heartbeat=0.2)
        sub = await js.ordered(f"{subject}.a", config=config, on_reset=resets.append)
        sequences = [(await sub.next()).sequence for _ in range(20)]
        old = sub.subject
        dropped: list[bytes] = []
        if fault == "deleted":
            await stream.delete_consumer(sub.consumer_name)
        elif fault == "reconnect":
            proxy.cut()
            await eventually(lambda: bool(resets))
        elif fault == "silence":
            assert sub._interest is not None
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
            sequences += [(await sub.next()).sequence for _ in range(5)]

        assert sequences == list(range(1, 26))
        assert len(resets) == sub.resets >= 1
        assert old != sub.subject
        await eventually(lambda: only_one(stream))
        with pytest.raises(RequestTimeoutError):
            await sub.next(0.3)


async def only_one(stream: object) -> bool:
    return len(await stream.consumer_names()) == 1  # type: ignore[attr-defined]
