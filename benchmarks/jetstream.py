"""Messages a second through turnout.nats.jetstream, beside nats-py's own JetStream client on the same server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nats.js.api import AckPolicy as TheirAckPolicy
from nats.js.api import ConsumerConfig as TheirConsumerConfig

import nats
from benchmarks.harness import Options, Result
from turnout.embedded import NatsServer
from turnout.nats.jetstream import AckPolicy, ConsumerConfig, JetStream, PullOptions, StorageType, StreamConfig, connect
from turnout.nats.jetstream.kv import KeyValueConfig

MESSAGES = 200_000
KEYS = 5_000
SIZE = 128
BATCH = 500
ROUNDS = 3
NO_ACKS = ConsumerConfig(ack_policy=AckPolicy.NONE)
UNLIMITED = ConsumerConfig(max_ack_pending=-1)

Timed = Callable[[], Awaitable[float]]


@dataclass(frozen=True)
class Case:
    """One measurement: ours and, where nats-py can do it, theirs. Each gives the seconds that it took."""

    name: str
    size: int
    ours: Timed
    theirs: Timed | None
    baseline: str = ""


class Bench:
    """Both clients on one server, with a stream that both read."""

    def __init__(self, js: JetStream, url: str, messages: int, keys: int) -> None:
        self.js, self.url, self.messages, self.keys = js, url, messages, keys

    def cases(self) -> list[Case]:
        n, k = self.messages, self.keys
        return [
            Case("push callback", n, self.push_callback, self.their_push_callback, "nats-py subscribe(cb)"),
            Case("push iterator", n, self.push_iterator, self.their_push_iterator, "nats-py subscribe, messages"),
            Case("pull fetch, acked", n, lambda: self.fetch(True), lambda: self.their_fetch(True), "nats-py fetch"),
            Case("pull fetch", n, lambda: self.fetch(False), lambda: self.their_fetch(False), "nats-py fetch"),
            Case("pull iterator, acked", n, self.pull_iterator, lambda: self.their_fetch(True), "nats-py fetch"),
            Case("ordered", n, self.ordered, self.their_ordered, "nats-py ordered_consumer"),
            Case("publish, acked one by one", k, self.publish, self.their_publish, "nats-py publish"),
            Case("publish_async, acked", n // 2, self.publish_async, self.their_publish_async, "nats-py publish_async"),
            Case("KV put", k, self.kv_put, self.their_kv_put, "nats-py put"),
            Case("KV get", k, self.kv_get, self.their_kv_get, "nats-py get"),
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
            await self.js.publish("bench.write", b"x" * SIZE)
        return time.perf_counter() - begun

    async def publish_async(self) -> float:
        begun = time.perf_counter()
        futures = [await self.js.publish_async("bench.write", b"x" * SIZE) for _ in range(self.messages // 2)]
        await asyncio.gather(*futures)
        return time.perf_counter() - begun

    async def their_publish(self) -> float:
        async with await nats.connect(self.url) as client:
            js, begun = client.jetstream(), time.perf_counter()
            for _ in range(self.keys):
                await js.publish("bench.write", b"x" * SIZE)
            return time.perf_counter() - begun

    async def their_publish_async(self) -> float:
        async with await nats.connect(self.url) as client:
            js, begun = client.jetstream(), time.perf_counter()
            futures = [await js.publish_async("bench.write", b"x" * SIZE) for _ in range(self.messages // 2)]
            await asyncio.gather(*futures)
            return time.perf_counter() - begun

    # -- key-value

    async def kv_put(self) -> float:
        kv, begun = await self.js.key_value("bench"), time.perf_counter()
        for number in range(self.keys):
            await kv.put(f"k{number % 1000}", b"x" * SIZE)
        return time.perf_counter() - begun

    async def kv_get(self) -> float:
        kv, begun = await self.js.key_value("bench"), time.perf_counter()
        for number in range(self.keys):
            await kv.get(f"k{number % 1000}")
        return time.perf_counter() - begun

    async def their_kv_put(self) -> float:
        async with await nats.connect(self.url) as client:
            kv = await client.jetstream().key_value("bench")
            begun = time.perf_counter()
            for number in range(self.keys):
                await kv.put(f"k{number % 1000}", b"x" * SIZE)
            return time.perf_counter() - begun

    async def their_kv_get(self) -> float:
        async with await nats.connect(self.url) as client:
            kv = await client.jetstream().key_value("bench")
            begun = time.perf_counter()
            for number in range(self.keys):
                await kv.get(f"k{number % 1000}")
            return time.perf_counter() - begun


async def _median(work: Timed, rounds: int) -> tuple[float, float]:
    """The median run: its seconds, and the seconds of processor time that this process used in it."""
    times = []
    for _ in range(rounds):
        before = time.process_time()
        times.append((await work(), time.process_time() - before))
    return sorted(times)[len(times) // 2]


async def _measure(url: str, options: Options) -> list[Result]:
    messages = options.rows(MESSAGES, 20_000)
    rounds = 1 if options.quick else ROUNDS
    results = []
    async with connect(url, timeout=60) as js:
        stream = StreamConfig(name="BENCH", subjects=["bench.*"], storage=StorageType.MEMORY)
        await js.create_stream(stream)
        await js.create_key_value(KeyValueConfig(bucket="bench", storage=StorageType.MEMORY))
        for _ in range(messages):
            await js.publish_async("bench.read", b"x" * SIZE)
        await js.publish_async_complete(120)
        for case in Bench(js, url, messages, min(KEYS, messages)).cases():
            if not options.wants(case.name):
                continue
            # One after the other in turns, so that a busy machine slows both.
            ours, cpu = await _median(case.ours, rounds)
            extra = {"cpu_us": cpu / case.size * 1e6}
            ratio = None
            if case.theirs:
                theirs, their_cpu = await _median(case.theirs, rounds)
                ratio = theirs / ours
                extra |= {
                    "baseline_rows_per_second": case.size / theirs,
                    "baseline_cpu_us": their_cpu / case.size * 1e6,
                }
            results.append(Result(case.name, case.size, case.size / ours, case.baseline or None, ratio, extra))
    return results


def run(options: Options) -> list[Result]:
    with NatsServer() as server:
        return asyncio.run(_measure(server.url, options))
