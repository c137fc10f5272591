"""ADR-15: ordered consumers (B6, B35)."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.nats.jetstream.support import Errors, Proxy, asynchronous, eventually, stream_of_messages

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import ConsumerConfig, JetStream, Stream, connect
from turnout.nats.jetstream.errors import PermissionDeniedError, RequestTimeoutError, StreamError, StreamReplacedError
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


async def _replaced(js: JetStream, stream: Stream, subject: str, count: int) -> None:
    """Delete a stream and make it again, with messages."""
    await js.delete_stream(stream.name)
    await js.create_stream(stream.cached_info.config)
    for number in range(count):
        await js.publish(f"{subject}.a", b"new%d" % number)


@pytest.mark.parametrize("policy", ["all", "new", "last", "last_per_subject", "by_start_sequence"])
@pytest.mark.parametrize("count", [0, 3])
@asynchronous
async def test_a_stream_made_again_ends_it(nats_server: NatsServer, policy: str, count: int) -> None:
    """A position in a stream that was deleted and made again is an error that names both creation times."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        stream, subject = await stream_of_messages(js, 3)
        config = ConsumerConfig(
            deliver_policy=policy, opt_start_seq=1 if policy == "by_start_sequence" else None, idle_heartbeat=0.2
        )
        sub = await js.ordered(f"{subject}.a", config=config)
        if policy == "new":
            for number in range(count):
                await js.publish(f"{subject}.a", b"%d" % number)
        read = min(count, 1) if policy.startswith("last") else count
        for _ in range(read):
            await sub.next()
        first = (await stream.info()).created
        await _replaced(js, stream, subject, 6)
        second = (await stream.info()).created

        while sub.pending:
            await sub.next()
        with pytest.raises(StreamReplacedError) as failure:
            await sub.next(10)
        assert f"created at {first}, this one at {second}" in str(failure.value)
        assert failure.value.stream == stream.name
        assert errors.of(StreamReplacedError)


@asynchronous
async def test_a_stream_made_again_is_read_from_its_first(nats_server: NatsServer) -> None:
    """Without *fail_on_data_loss* the replacement is reported, and all messages of the new stream arrive."""
    for policy in ("all", "new", "last"):
        errors = Errors()
        async with connect(nats_server.url, error_callback=errors) as js:
            stream, subject = await stream_of_messages(js, 3)
            sub = await js.ordered(
                f"{subject}.a",
                config=ConsumerConfig(deliver_policy=policy, idle_heartbeat=0.2),
                fail_on_data_loss=False,
            )
            await _replaced(js, stream, subject, 6)
            received: list[bytes] = []
            while len(received) < 6:
                message = await sub.next(10)
                received += [message.data] if message.data.startswith(b"new") else []

            assert (policy, received) == (policy, [b"new%d" % number for number in range(6)])
            assert len(errors.of(StreamReplacedError)) == 1


@asynchronous
async def test_a_restored_stream_ends_it(tmp_path: Path) -> None:
    """A server whose store was replaced by an older one has not the position: an error names its last sequence."""
    errors = Errors()
    with NatsServer(work=tmp_path / "server") as server:
        async with connect(server.url) as js:
            _, subject = await stream_of_messages(js, 3, storage="file")
        server.stop()
        shutil.copytree(server.work / "store", tmp_path / "backup")
        server.start()
        async with connect(server.url, error_callback=errors) as js:
            sub = await js.ordered(f"{subject}.a", config=ConsumerConfig(idle_heartbeat=0.2))
            await js.publish(f"{subject}.a")
            assert [(await sub.next(10)).sequence for _ in range(4)] == [1, 2, 3, 4]
            server.stop()
            shutil.rmtree(server.work / "store")
            shutil.copytree(tmp_path / "backup", server.work / "store")
            server.start()

            with pytest.raises(StreamReplacedError, match="its last sequence is 3") as failure:
                await sub.next(20)
            assert failure.value.sequence == 4


@asynchronous
async def test_a_start_behind_the_end(nats_server: NatsServer) -> None:
    """A sequence that the stream has not reached is refused: the server would begin at its end without a word."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, 3)
        config = ConsumerConfig(deliver_policy="by_start_sequence", opt_start_seq=5)
        with pytest.raises(StreamReplacedError, match="its last sequence is 3") as failure:
            await js.ordered(f"{subject}.a", config=config)
        assert failure.value.sequence == 4
        assert await stream.consumer_names() == []

        at_the_end = await js.ordered(f"{subject}.a", config=dataclasses.replace(config, opt_start_seq=4))
        await js.publish(f"{subject}.a")
        assert (await at_the_end.next()).sequence == 4


@pytest.mark.parametrize("policy", ["new", "last"])
@asynchronous
async def test_a_restart_before_the_first_message(nats_server: NatsServer, policy: str) -> None:
    """A consumer that begins again before it received anything misses nothing of what was stored meanwhile."""
    async with Proxy(nats_server.port) as proxy, connect(proxy.url) as js, connect(nats_server.url) as other:
        _, subject = await stream_of_messages(other, 3)
        proxy.drop = lambda frame: b"$JS.ACK" in frame
        sub = await js.ordered(f"{subject}.a", config=ConsumerConfig(deliver_policy=policy, idle_heartbeat=0.2))
        for _ in range(2):
            await other.publish(f"{subject}.a")
        proxy.drop = lambda frame: False
        proxy.cut()

        first = 4 if policy == "new" else 3
        assert [(await sub.next(10)).sequence for _ in range(first, 6)] == list(range(first, 6))


@asynchronous
async def test_a_stream_that_may_not_be_looked_up(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the permission to look the stream up, a restart says what is not checked."""
    errors = Errors()
    async with connect(nats_server.url, error_callback=errors) as js:
        stream, subject = await stream_of_messages(js, 3)
        real = js.api.call

        async def call(what: str, *args: Any, **kwargs: Any) -> dict[str, object]:
            if what.startswith("STREAM.INFO"):
                raise PermissionDeniedError("publish", f"$JS.API.{what}")
            return await real(what, *args, **kwargs)

        monkeypatch.setattr(js.api, "call", call)
        sub = await js.ordered(f"{subject}.a", config=ConsumerConfig(idle_heartbeat=0.2))
        sequences = [(await sub.next()).sequence for _ in range(3)]
        await stream.delete_consumer(sub.consumer_name)
        await eventually(lambda: sub.resets == 1)
        await js.publish(f"{subject}.a")
        sequences.append((await sub.next()).sequence)

        assert sequences == [1, 2, 3, 4]
        assert f"permit $JS.API.STREAM.INFO.{stream.name}" in " ".join(map(str, errors))
