"""Schedules, TTLs, counters and resets on a real server (ADR-43, ADR-49, ADR-51, ADR-60)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.nats.jetstream.support import asynchronous, eventually, stream_of_messages

from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import ConsumerConfig, Expect, JetStream, Message, PublishOptions, Schedule, Stream, connect
from turnout.nats.jetstream.errors import (
    ConsumerResetError,
    CounterError,
    MessageTtlError,
    ScheduleError,
    WrongLastSequenceError,
)


async def _scheduling(js: JetStream) -> tuple[Stream, str]:
    return await stream_of_messages(js, allow_msg_schedules=True, allow_msg_ttl=True, allow_direct=True)


@asynchronous
async def test_at(nats_server: NatsServer) -> None:
    """A message is published at its time with its data and headers, and the schedule is gone; a past one at once."""
    async with connect(nats_server.url) as js:
        stream, subject = await _scheduling(js)
        due = datetime.now(UTC) + timedelta(seconds=0.8)
        async with await js.subscribe(f"{subject}.out") as messages:
            await js.publish(
                f"{subject}.s.1",
                b"hello",
                headers={"H": "v"},
                schedule=Schedule.at(due, target=f"{subject}.out", ttl=90),
            )
            message = await messages.next(10)
            past = Schedule.at(datetime(2020, 1, 1, tzinfo=UTC), target=f"{subject}.out")
            await js.publish(f"{subject}.s.2", b"late", schedule=past)
            late = await messages.next(10)

        assert (message.data, message.header("H"), late.data) == (b"hello", "v", b"late")
        assert (message.header("Nats-Scheduler"), message.header("Nats-TTL")) == (f"{subject}.s.1", "90s")
        assert message.header("Nats-Schedule-Next") == "purge"
        assert message.timestamp >= due
        assert f"{subject}.s.1" not in ((await stream.info(subjects=">")).state.subjects or {})


@asynchronous
async def test_repeated(nats_server: NatsServer) -> None:
    """Intervals and cron patterns publish again; a source gives the data; a rollup keeps the last one."""
    async with connect(nats_server.url) as js:
        stream, subject = await _scheduling(js)
        target = f"{subject}.out"
        async with await js.subscribe(target) as messages:
            await js.publish(f"{subject}.in", b"reading", headers={"Unit": "C"})
            every = Schedule.every(1, target=target, source=f"{subject}.in", rollup=True)
            await js.publish(f"{subject}.s.1", schedule=every)
            sampled = [await messages.next(10) for _ in range(2)]
            await stream.purge(f"{subject}.s.1")
            cron = Schedule.cron("* * * * * *", target=target, time_zone="Europe/Oslo")
            await js.publish(f"{subject}.s.2", b"tick", schedule=cron)
            ticks: list[Message] = []
            while len(ticks) < 2:
                message = await messages.next(10)
                ticks += [message] if message.data == b"tick" else []
            await stream.purge(f"{subject}.s.2")

        assert [(m.data, m.header("Unit"), m.header("Nats-Rollup")) for m in sampled] == [(b"reading", "C", "sub")] * 2
        assert datetime.fromisoformat(ticks[0].header("Nats-Schedule-Next")[:19] + "Z") > ticks[0].timestamp


@asynchronous
async def test_replaced_and_cancelled(nats_server: NatsServer) -> None:
    """A second schedule of a subject replaces the first; a message can take a schedule's place, if it is there."""
    async with connect(nats_server.url) as js:
        stream, subject = await _scheduling(js)
        later = Schedule.at(datetime.now(UTC) + timedelta(hours=1), target=f"{subject}.out")
        await js.publish(f"{subject}.s.1", b"first", schedule=later)
        ack = await js.publish(f"{subject}.s.1", b"second", schedule=later)
        assert (await stream.info()).state.messages == 1
        there = Expect(last_subject_seq=ack.seq, last_subject=f"{subject}.s.1")
        await js.publish(f"{subject}.cancelled", b"no", cancels=f"{subject}.s.1", expect=there)
        with pytest.raises(WrongLastSequenceError):
            await js.publish(f"{subject}.cancelled", b"no", cancels=f"{subject}.s.1", expect=there)

        assert (await stream.info(subjects=">")).state.subjects == {f"{subject}.cancelled": 1}


@asynchronous
async def test_refused_schedules(nats_server: NatsServer) -> None:
    """A stream without schedules, targets, patterns, zones and intervals that cannot be are refused by name."""
    async with connect(nats_server.url) as js:
        _, plain = await stream_of_messages(js)
        _, subject = await _scheduling(js)
        now, out = datetime.now(UTC), f"{subject}.out"
        cases: tuple[tuple[str, PublishOptions, int], ...] = (
            (plain, {"schedule": Schedule.at(now, target=f"{plain}.out")}, 10188),
            (subject, {"schedule": Schedule.at(now, target="elsewhere")}, 10190),
            (subject, {"schedule": Schedule.cron("every day", target=out)}, 10189),
            (subject, {"schedule": Schedule.cron("@daily", target=out, time_zone="Nowhere/Else")}, 10223),
            (subject, {"schedule": Schedule.cron("@daily", target=out, source="elsewhere")}, 10203),
            (subject, {"schedule": Schedule.at(now, target=out, ttl=0)}, 10191),
            (subject, {"cancels": f"{subject}.s"}, 10212),
        )
        for where, options, code in cases:
            with pytest.raises(ScheduleError) as failure:
                await js.publish(f"{where}.s", b"", **options)
            assert failure.value.err_code == code
        with pytest.raises(ConfigError, match="shortest"):
            Schedule.every(0.5, target=out)


@asynchronous
async def test_ttl(nats_server: NatsServer) -> None:
    """A TTL removes a message, ``never`` keeps one beyond the stream's age; fractions are rounded up."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, allow_msg_ttl=True, max_age=1)
        await js.publish(f"{subject}.a", ttl="never")
        await js.publish(f"{subject}.b", ttl=1.2)
        await (await js.publish_async(f"{subject}.c", ttl=1))
        assert (await stream.get_message(2)).header("Nats-TTL") == "2s"

        async def one_left() -> bool:
            return (await stream.info(subjects=">")).state.subjects == {f"{subject}.a": 1}

        await eventually(one_left)
        _, plain = await stream_of_messages(js)
        for where, ttl, code in ((plain, 1, 10166), (subject, -1, 10165)):
            with pytest.raises(MessageTtlError) as failure:
                await js.publish(f"{where}.a", ttl=ttl)
            assert failure.value.err_code == code


@asynchronous
async def test_counters(nats_server: NatsServer) -> None:
    """The ack has the counter's new value, of any size; what is no increment is refused."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, allow_msg_counter=True, allow_direct=True)
        values = [(await js.publish(f"{subject}.a", increment=n)).val for n in (5, -7, 0, 10**30)]
        waiting = await js.publish_async(f"{subject}.a", increment=1)

        assert values == ["5", "-2", "-2", str(10**30 - 2)]
        assert (await waiting).val == str(10**30 - 1)
        assert (await stream.get_last_message(f"{subject}.a")).data == b'{"val":"%d"}' % (10**30 - 1)
        cases: tuple[tuple[bytes, PublishOptions, int], ...] = ((b"", {}, 10169), (b"x", {"increment": 1}, 10170))
        for data, options, code in cases:
            with pytest.raises(CounterError) as failure:
                await js.publish(f"{subject}.a", data, **options)
            assert failure.value.err_code == code
        plain, other = await stream_of_messages(js)
        with pytest.raises(CounterError):
            await js.publish(f"{other}.a", increment=1)
        assert (await js.publish(f"{other}.a")).val is None
        assert plain.name


@asynchronous
async def test_reset(nats_server: NatsServer) -> None:
    """A reset consumer delivers again, from its acknowledged messages or from a sequence; open pulls go on."""
    async with connect(nats_server.url) as js:
        stream, _ = await stream_of_messages(js, 10)
        consumer = await stream.create_consumer(ConsumerConfig(durable_name="C", max_ack_pending=100))
        batch = await consumer.fetch(6)
        for message in batch[:2]:
            await message.double_ack()
        assert await consumer.reset() == 3
        async with await consumer.messages() as messages:
            again = [await messages.next() for _ in range(8)]
            assert [m.sequence for m in again] == list(range(3, 11))
            assert await consumer.reset(6) == 6
            assert [(await messages.next()).sequence for _ in range(5)] == [6, 7, 8, 9, 10]
        assert await stream.reset_consumer("C", 2) == 2
        late = await stream.create_consumer(
            ConsumerConfig(name="L", deliver_policy="by_start_sequence", opt_start_seq=5)
        )
        with pytest.raises(ConsumerResetError):
            await late.reset(2)
