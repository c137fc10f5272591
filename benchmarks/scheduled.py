"""Scheduled deliveries: how long after their times messages are stored, while 100,000 wait.

A tenth of the messages is due within seconds, the others wait for hours. The leader of the delay stream works in this
process; the baseline is nats-server, which publishes the same number of schedules by itself. A message is stored when
the sink's stream has it. ``reading`` is the time in which the leader reads the headers of all when it begins.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from benchmarks.harness import Case, Options, Result, Setup, cpu_seconds
from turnout.delivery.scheduled import opened_leader
from turnout.embedded import NatsServer
from turnout.nats.jetstream import ConsumerConfig, JetStream, StreamConfig, connect
from turnout.routes import Route
from turnout.runtime.preflight import make_delay_stream

_SETUP = Setup("new", None, 1)
_DUE = 10
"""One message of so many is due while the benchmark runs."""

_RATE = 500
"""Messages due in a second."""

_BODY = b"x" * 200
_ROUTE = """
name: bench
source: {{format: nats, servers: "{url}", stream: OUT}}
sink: {{format: nats, servers: "{url}", delay: 1}}
scheduled: {{stream: WAITING}}
"""


def cases(options: Options) -> Iterator[Case]:
    """The delay stream, which measures its baseline as well."""
    yield Case("delay stream, messages that wait", lambda: _measure(options.rows(100_000, 5_000)))


def _measure(count: int) -> Iterator[Result]:
    due = count // _DUE
    theirs, _, _ = _late(count, due, leader=False)
    ours, reading, cpu = _late(count, due, leader=True)
    extra = {
        **{f"p{at}_ms": float(np.percentile(ours, at)) * 1e3 for at in (50, 99)},
        "max_ms": max(ours) * 1e3,
        "server_p50_ms": float(np.percentile(theirs, 50)) * 1e3,
        "server_p99_ms": float(np.percentile(theirs, 99)) * 1e3,
        "reading_seconds": reading,
        "cpu_us": cpu / due * 1e6,
    }
    ratio = float(np.percentile(theirs, 99) / np.percentile(ours, 99))
    name = "delay stream, messages that wait"
    yield Result(name, count, (float(_RATE),), _SETUP, "nats-server's schedules, p99", ratio, extra)


def _late(count: int, due: int, *, leader: bool) -> tuple[list[float], float, float]:
    """Return for each message that was due how long after its time it was stored, and two figures of the leader."""
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder, NatsServer(Path(folder)) as server:
        route = Route.parse(_ROUTE.format(url=server.url))
        return asyncio.run(_run(server.url, route, count, due, leader=leader))


async def _run(url: str, route: Route, count: int, due: int, *, leader: bool) -> tuple[list[float], float, float]:
    async with connect(url) as js:
        subjects = ["out.>"] if leader else ["out.>", "scheduled.>"]
        config = StreamConfig(name="OUT", subjects=subjects, allow_msg_schedules=None if leader else True)
        await js.create_stream(config)
        if leader:
            await asyncio.to_thread(make_delay_stream, route)
        # As many as wait are stored first, so that the clock of those that are due begins when they are.
        await _store(js, range(due, count), datetime.now(UTC) + timedelta(hours=5), leader=leader)
        if not leader:
            await _store(js, range(due), datetime.now(UTC) + timedelta(seconds=1.5), leader=False)
            return await _stored(js, due), 0.0, 0.0
        stop = threading.Event()
        async with opened_leader(route) as leading:
            begun = time.perf_counter()
            running = asyncio.create_task(leading.run(stop))
            while leading.pending < count - due:
                await asyncio.sleep(0.005)
            reading = time.perf_counter() - begun
            cpu = cpu_seconds()
            await _store(js, range(due), datetime.now(UTC) + timedelta(seconds=1.5), leader=True)
            late = await _stored(js, due)
            spent = cpu_seconds() - cpu
            stop.set()
            await running
            return late, reading, spent


async def _store(js: JetStream, numbers: range, first: datetime, *, leader: bool) -> None:
    """Store messages in the form in which a run stores them."""
    for at, number in enumerate(numbers):
        due = first + timedelta(seconds=at / _RATE)
        text = f"{due:%Y-%m-%dT%H:%M:%S.%f}Z"
        headers = {"Turnout-Deliver-At": text}
        if leader:
            headers |= {"Turnout-Deliver-To": "out.a", "Turnout-Deliver-Sink": "", "Turnout-Deliver-Id": f"id-{number}"}
        else:
            headers |= {"Nats-Schedule": f"@at {text}", "Nats-Schedule-Target": "out.a"}
        await js.publish_async(f"scheduled.{number}.A", _BODY, headers=headers)
    await js.publish_async_complete(60)


async def _stored(js: JetStream, count: int) -> list[float]:
    """Wait for the messages, and return how late each was stored."""
    late: list[float] = []
    # Read afterwards: a reader in this process would delay the leader.
    stream = await js.stream("OUT")
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        subjects = (await stream.info(subjects="out.>")).state.subjects or {}
        if subjects.get("out.a", 0) >= count:
            break
        await asyncio.sleep(1)
    with suppress(TimeoutError):
        async with await js.ordered("out.a", stream="OUT", config=ConsumerConfig(headers_only=True)) as messages:
            while len(late) < count:
                message = await messages.next(10)
                due = datetime.fromisoformat(message.header("Turnout-Deliver-At"))
                late.append((message.timestamp - due).total_seconds())
    return late
