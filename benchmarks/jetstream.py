"""Messages a second through turnout.nats.jetstream, beside nats-py's JetStream client and nats.go on the same server.

Before each round the stream is filled with other messages, which both clients read; what they write is numbered.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count as count_up
from statistics import median

from nats.js.api import AckPolicy as TheirAckPolicy
from nats.js.api import ConsumerConfig as TheirConsumerConfig

import nats
from benchmarks.harness import Case, Options, Result, Setup, rates
from benchmarks.peers.programs import NATS_GO, Program, natsgo
from turnout.embedded import NatsServer
from turnout.nats.jetstream import AckPolicy, ConsumerConfig, JetStream, PullOptions, StorageType, StreamConfig, connect
from turnout.nats.jetstream.kv import KeyValueConfig
from turnout.nats.wire import Connection, Publisher, purge_stream

MESSAGES = 50_000
MESSAGES_BESIDE_GO = 100_000
KEYS = 2_000
SIZE = 128
BATCH = 500
ROUNDS = 3
NO_ACKS = ConsumerConfig(ack_policy=AckPolicy.NONE)
UNLIMITED = ConsumerConfig(max_ack_pending=-1)

Timed = Callable[[], Awaitable[float]]


@dataclass(frozen=True)
class Pair:
    """One measurement: ours and, where nats-py can do it, theirs. Each gives the seconds that it took."""

    name: str
    size: int
    ours: Timed
    theirs: Timed | None
    baseline: str = ""


class Bench:
    """Both clients on one server, with a stream that both read."""

    js: JetStream

    def __init__(self, url: str, messages: int, keys: int) -> None:
        self.url, self.messages, self.keys = url, messages, keys
        self.numbers = count_up()
        self._round = 0

    def payload(self) -> bytes:
        """Return a message that was not there before."""
        return b"%012d%s" % (next(self.numbers), b"x" * (SIZE - 12))

    def begin_round(self) -> None:
        """Fill the stream that both read again, and make both write to new keys."""
        self._round += 1
        with Connection.open(self.url) as connection:
            purge_stream(connection, "BENCH")
            with Publisher(connection) as publisher:
                for _ in range(self.messages):
                    publisher.publish("bench.read", self.payload(), ())

    def pairs(self) -> list[Pair]:
        n, k = self.messages, self.keys
        return [
            Pair("push callback", n, self.push_callback, self.their_push_callback, "nats-py subscribe(cb)"),
            Pair("push iterator", n, self.push_iterator, self.their_push_iterator, "nats-py subscribe, messages"),
            Pair("pull fetch, acked", n, lambda: self.fetch(True), lambda: self.their_fetch(True), "nats-py fetch"),
            Pair("pull fetch", n, lambda: self.fetch(False), lambda: self.their_fetch(False), "nats-py fetch"),
            Pair("pull iterator, acked", n, self.pull_iterator, lambda: self.their_fetch(True), "nats-py fetch"),
            Pair("ordered", n, self.ordered, self.their_ordered, "nats-py ordered_consumer"),
            Pair("publish, acked one by one", k, self.publish, self.their_publish, "nats-py publish"),
            Pair("publish_async, acked", n // 2, self.publish_async, self.their_publish_async, "nats-py publish_async"),
            Pair("KV put", k, self.kv_put, self.their_kv_put, "nats-py put"),
            Pair("KV get", k, self.kv_get, self.their_kv_get, "nats-py get"),
        ]

    # -- reading

    async def push_callback(self) -> float:
        done, count, begun = asyncio.Event(), 0, time.perf_counter()

        async def take(_: object) -> None:
            nonlocal count
            count += 1
            if count == self.messages:
                done.set()

        async with await self.js.subscribe("bench.read", take, config=NO_ACKS):
            await done.wait()
        return time.perf_counter() - begun

    async def push_iterator(self) -> float:
        count, begun = 0, time.perf_counter()
        async with await self.js.subscribe("bench.read", config=NO_ACKS) as sub:
            async for _ in sub:
                count += 1
                if count == self.messages:
                    break
        return time.perf_counter() - begun

    async def ordered(self) -> float:
        count, begun = 0, time.perf_counter()
        async with await self.js.ordered("bench.read") as sub:
            async for _ in sub:
                count += 1
                if count == self.messages:
                    break
        return time.perf_counter() - begun

    async def fetch(self, ack: bool) -> float:
        count, begun = 0, time.perf_counter()
        async with await self.js.pull_subscribe("bench.read", config=UNLIMITED) as sub:
            while count < self.messages:
                for message in await sub.fetch(BATCH):
                    count += 1
                    if ack:
                        await message.ack()
        return time.perf_counter() - begun

    async def pull_iterator(self) -> float:
        count, begun = 0, time.perf_counter()
        async with (
            await self.js.pull_subscribe("bench.read", config=UNLIMITED) as sub,
            await sub.messages(PullOptions(max_messages=2 * BATCH)) as messages,
        ):
            async for message in messages:
                count += 1
                await message.ack()
                if count == self.messages:
                    break
        return time.perf_counter() - begun

    async def their_push_callback(self) -> float:
        done, count = asyncio.Event(), 0

        async def take(_: object) -> None:
            nonlocal count
            count += 1
            if count == self.messages:
                done.set()

        async with await nats.connect(self.url) as client:
            begun = time.perf_counter()
            config = TheirConsumerConfig(ack_policy=TheirAckPolicy.NONE)
            sub = await client.jetstream().subscribe("bench.read", cb=take, config=config)
            await done.wait()
            await sub.unsubscribe()
            return time.perf_counter() - begun

    async def their_push_iterator(self, *, ordered: bool = False) -> float:
        count = 0
        async with await nats.connect(self.url) as client:
            begun = time.perf_counter()
            config = None if ordered else TheirConsumerConfig(ack_policy=TheirAckPolicy.NONE)
            sub = await client.jetstream().subscribe("bench.read", ordered_consumer=ordered, config=config)
            async for _ in sub.messages:
                count += 1
                if count == self.messages:
                    break
            await sub.unsubscribe()
            return time.perf_counter() - begun

    async def their_ordered(self) -> float:
        return await self.their_push_iterator(ordered=True)

    async def their_fetch(self, ack: bool) -> float:
        count = 0
        async with await nats.connect(self.url) as client:
            begun = time.perf_counter()
            config = TheirConsumerConfig(max_ack_pending=-1)
            sub = await client.jetstream().pull_subscribe("bench.read", durable=f"T{time.time_ns()}", config=config)
            while count < self.messages:
                for message in await sub.fetch(BATCH):
                    count += 1
                    if ack:
                        await message.ack()
            took = time.perf_counter() - begun
            info = await sub.consumer_info()
            await client.jetstream().delete_consumer(info.stream_name, info.name)
            return took

    # -- writing

    async def publish(self) -> float:
        begun = time.perf_counter()
        for _ in range(self.keys):
            await self.js.publish("bench.write", self.payload())
        return time.perf_counter() - begun

    async def publish_async(self) -> float:
        begun = time.perf_counter()
        for _ in range(self.messages // 2):
            await self.js.publish_async("bench.write", self.payload())
        await self.js.publish_async_complete(60)
        return time.perf_counter() - begun

    async def their_publish(self) -> float:
        async with await nats.connect(self.url) as client:
            js, begun = client.jetstream(), time.perf_counter()
            for _ in range(self.keys):
                await js.publish("bench.write", self.payload())
            return time.perf_counter() - begun

    async def their_publish_async(self) -> float:
        async with await nats.connect(self.url) as client:
            js, begun = client.jetstream(), time.perf_counter()
            for _ in range(self.messages // 2):
                await js.publish_async("bench.write", self.payload())
            await js.publish_async_completed()
            return time.perf_counter() - begun

    # -- key-value

    async def kv_put(self) -> float:
        kv, begun = await self.js.key_value("bench"), time.perf_counter()
        for number in range(self.keys):
            await kv.put(f"o{self._round}.{number}", self.payload())
        return time.perf_counter() - begun

    async def kv_get(self) -> float:
        kv, begun = await self.js.key_value("bench"), time.perf_counter()
        for number in range(self.keys):
            await kv.get(f"o{self._round}.{number}")
        return time.perf_counter() - begun

    async def their_kv_put(self) -> float:
        async with await nats.connect(self.url) as client:
            kv = await client.jetstream().key_value("bench")
            begun = time.perf_counter()
            for number in range(self.keys):
                await kv.put(f"t{self._round}.{number}", self.payload())
            return time.perf_counter() - begun

    async def their_kv_get(self) -> float:
        async with await nats.connect(self.url) as client:
            kv = await client.jetstream().key_value("bench")
            begun = time.perf_counter()
            for number in range(self.keys):
                await kv.get(f"t{self._round}.{number}")
            return time.perf_counter() - begun


async def _timed(work: Timed) -> tuple[float, float]:
    """The seconds of a run, and the seconds of processor time that this process used in it."""
    before = time.process_time()
    return await work(), time.process_time() - before


async def _measure(bench: Bench, case: Pair, rounds: int) -> Result:
    """Measure both clients in alternation."""
    ours, theirs = [], []
    for _ in range(rounds):
        bench.begin_round()
        if case.name == "KV get":
            await bench.kv_put()
            await bench.their_kv_put()
        ours.append(await _timed(case.ours))
        if case.theirs:
            theirs.append(await _timed(case.theirs))
    extra = {"cpu_us": median(cpu for _, cpu in ours) / case.size * 1e6}
    ratio = None
    if theirs:
        ratio = median(their / our for (our, _), (their, _) in zip(ours, theirs, strict=True))
        extra["its_per_second"] = case.size / median(seconds for seconds, _ in theirs)
        extra["its_cpu_us"] = median(cpu for _, cpu in theirs) / case.size * 1e6
    speeds = rates(case.size, (seconds for seconds, _ in ours))
    return Result(case.name, case.size, speeds, Setup("new", None, 1), case.baseline or None, ratio, extra)


async def _connected(bench: Bench, pair: Pair, rounds: int, go: Program | None) -> Result:
    async with connect(bench.url, timeout=60) as bench.js:
        stream = StreamConfig(name="BENCH", subjects=["bench.*"], storage=StorageType.MEMORY)
        await bench.js.create_stream(stream)
        await bench.js.create_key_value(KeyValueConfig(bucket="bench", storage=StorageType.MEMORY))
        return await (_measure(bench, pair, rounds) if go is None else _beside_go(bench, pair, go, rounds))


_BESIDE_GO = (
    "push callback", "push iterator", "pull fetch, acked", "pull fetch", "pull iterator, acked", "publish_async, acked",
)  # fmt: skip


async def _beside_go(bench: Bench, case: Pair, program: Program, rounds: int) -> Result:
    """This client and nats.go by turns, after a round of few messages that warms both and shows the fixed cost."""
    ours, its = [], []
    messages, few = bench.messages, min(bench.messages, 2 * BATCH)
    for number in range(rounds + 1):
        bench.messages = messages if number else few
        count = case.size * bench.messages // messages
        bench.begin_round()
        ours.append(await _timed(case.ours))
        bench.begin_round()
        order: dict[str, object] = {"work": case.name, "url": bench.url, "count": count, "batch": BATCH, "size": SIZE}
        # Its numbers are taken from ours, so that no message is there twice.
        order["first"] = next(bench.numbers) + 10**9
        its.append(await asyncio.to_thread(program.ask, json.dumps(order)))
    cpu, its_cpu = [used for _, used in ours], [one["cpu"] for one in its]
    extra = {
        "cpu_us": median(cpu[1:]) / case.size * 1e6,
        "its_per_second": case.size / median(one["seconds"] for one in its[1:]),
        "its_cpu_us": median(its_cpu[1:]) / case.size * 1e6,
        "cpu_ratio": median(one / used for used, one in zip(cpu[1:], its_cpu[1:], strict=True)),
        # The first round as a whole: more than the fixed cost, as its messages and the first calls are part of it.
        "fixed_percent_at_most": 100 * cpu[0] / median(cpu[1:]),
        "its_fixed_percent_at_most": 100 * its_cpu[0] / median(its_cpu[1:]),
    }
    ratio = median(one["seconds"] / seconds for (seconds, _), one in zip(ours[1:], its[1:], strict=True))
    speeds = rates(case.size, (seconds for seconds, _ in ours[1:]))
    return Result(f"{case.name}: nats.go", case.size, speeds, Setup("new", None, 1), f"nats.go {NATS_GO}", ratio, extra)


def cases(options: Options) -> Iterator[Case]:
    """Every way to read and to write."""
    messages, rounds = options.rows(MESSAGES, 5_000), 1 if options.quick else ROUNDS
    for pair in Bench("", messages, 0).pairs():
        yield Case(pair.name, partial(_on_own_server, pair.name, messages, rounds))
    # So many that connection and consumer are less than a twentieth.
    beside_go = options.rows(MESSAGES_BESIDE_GO, 5_000)
    for name in _BESIDE_GO:
        yield Case(f"{name}: nats.go", partial(_with_go, name, beside_go, rounds))


def _with_go(name: str, messages: int, rounds: int) -> list[Result]:
    with Program([natsgo()]) as program:
        return _on_own_server(name, messages, rounds, program)


def _on_own_server(name: str, messages: int, rounds: int, go: Program | None = None) -> list[Result]:
    with NatsServer() as server:
        bench = Bench(server.url, messages, min(KEYS, messages))
        pair = next(pair for pair in bench.pairs() if pair.name == name)
        return [asyncio.run(_connected(bench, pair, rounds, go))]
