"""Millions of messages with faults all the while: none lost, none processed twice."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest
from tests.nats.jetstream.support import Errors, Proxy, eventually

from turnout.embedded import NatsServer
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.jetstream import ConsumerConfig, JetStream, Message, PullOptions, StorageType, StreamConfig, connect

MESSAGES = int(os.environ.get("TURNOUT_SOAK_MESSAGES", "2000000"))
FAULT_EVERY = float(os.environ.get("TURNOUT_SOAK_FAULT_EVERY", "4"))
IN_FLIGHT = 2000
SUBJECT = "soak.a"


class Ledger:
    """What was processed: a reader's state, which commits a message and its effect as one.

    Delivery is at least once; a message that comes again after a fault is recognised by its number and only
    acknowledged. *repeats* counts those, *effects* what was done.
    """

    def __init__(self, count: int) -> None:
        self.done = bytearray(count)
        self.effects = 0
        self.repeats = 0

    def process(self, message: Message) -> None:
        number = int(message.data)
        if self.done[number]:
            self.repeats += 1
            return
        self.done[number] = 1
        self.effects += 1


async def publish_all(js: JetStream, count: int) -> None:
    """Every number, each with its id; what a fault leaves unconfirmed is published again under the same id."""
    open_numbers: list[int] = list(range(count))
    while open_numbers:
        again: list[int] = []
        for begin in range(0, len(open_numbers), IN_FLIGHT):
            part = open_numbers[begin : begin + IN_FLIGHT]
            futures: list[asyncio.Future[Any]] = []
            for number in part:
                try:
                    futures.append(await js.publish_async(SUBJECT, b"%d" % number, msg_id=str(number)))
                except (StreamError, ConnectionLostError):
                    again.append(number)
                    futures.append(asyncio.get_running_loop().create_future())
                    futures[-1].set_result(None)
            results = await asyncio.gather(*futures, return_exceptions=True)
            again += [n for n, result in zip(part, results, strict=True) if isinstance(result, Exception)]
        open_numbers = again
        if again:
            await asyncio.sleep(0.05)


async def disturb(proxy: Proxy, server: NatsServer, seed: int, counts: dict[str, int]) -> None:
    """Faults without end: cut connections, a frozen server, a killed server, lost frames."""
    chance = random.Random(seed)

    def lose(frame: bytes) -> bool:
        if frame.startswith((b"MSG soak.a", b"HMSG soak.a")) and chance.random() < 0.0005:
            counts["lost frames"] += 1
            return True
        return False

    proxy.drop = lose
    while True:
        await asyncio.sleep(FAULT_EVERY * chance.uniform(0.5, 1.5))
        fault = chance.choice(["cut", "cut", "freeze", "kill"])
        counts[fault] += 1
        if fault == "cut":
            proxy.cut()
        elif fault == "freeze":
            server.pause()
            await asyncio.sleep(0.5)
            server.resume()
        else:
            await asyncio.to_thread(server.restart, kill=True)


async def soak(server: NatsServer, count: int) -> dict[str, object]:
    counts = dict.fromkeys(("cut", "freeze", "kill", "lost frames"), 0)
    ledger = Ledger(count)
    ordered: list[int] = [0]
    misplaced = 0

    def in_order(message: Message) -> None:
        nonlocal misplaced
        sequence = message.sequence
        misplaced += sequence != ordered[0] + 1
        ordered[0] = sequence

    async def take(message: Message) -> None:
        ledger.process(message)
        await message.ack()

    async with (
        Proxy(server.port) as proxy,
        connect(server.url, error_callback=Errors()) as direct,
        connect(proxy.url, error_callback=Errors(), timeout=3) as writer,
        connect(proxy.url, error_callback=Errors(), timeout=3) as reader,
    ):
        config = StreamConfig(name="SOAK", subjects=["soak.*"], storage=StorageType.FILE, duplicate_window=3600)
        stream = await direct.create_stream(config)
        pull = await reader.pull_subscribe(
            SUBJECT, durable="READER", config=ConsumerConfig(ack_wait=2, max_ack_pending=5000)
        )
        consuming = await pull.consume(take, PullOptions(max_messages=2000, expires=3, heartbeat=0.5))
        view = await reader.ordered(SUBJECT, in_order, config=ConsumerConfig(idle_heartbeat=0.5))
        faults = asyncio.create_task(disturb(proxy, server, 7, counts))
        await publish_all(writer, count)
        await eventually(lambda: ledger.effects == count, 600)
        faults.cancel()
        await asyncio.gather(faults, return_exceptions=True)
        proxy.drop = lambda frame: False
        last = 0

        async def caught_up() -> bool:
            nonlocal last
            try:
                last = (await stream.info()).state.last_seq
            except (StreamError, ConnectionLostError):
                return False
            return ordered[0] == last

        await eventually(caught_up, 120)
        await consuming.stop()
        return {
            "published": count, "stored": last, "effects": ledger.effects, "repeats recognised": ledger.repeats,
            "lost": count - sum(ledger.done), "ordered": ordered[0], "out of order": misplaced,
            "ordered resets": view.resets, **counts,
        }  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak() -> None:
    """Every message has its effect once, the ordered reader sees each sequence once in order, whatever happens."""
    with NatsServer() as server:
        result = asyncio.run(soak(server, MESSAGES))
    print(result)

    assert result["lost"] == 0
    assert result["effects"] == MESSAGES
    assert result["stored"] == MESSAGES
    assert result["ordered"] == MESSAGES
    assert result["out of order"] == 0
