"""Kills of the dispatcher: every message arrives, ordered ones in order, and no failed attempt is forgotten."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.delivery.kafka_hooks import KafkaHooks
from tests.delivery.receiver import Hooks, Receiver, Request
from tests.integration.kafka_broker import KafkaBroker
from tests.kafka.conftest import broker  # noqa: F401 - a fixture
from turnout.embedded import NatsServer
from turnout.subscriptions import open_store

KILLS = 4
COUNT = 1_500


@pytest.mark.heavy
def test_kills(nats_server: NatsServer, tmp_path: Path) -> None:
    """Of two endpoints' messages none is lost by ``kill -9``, and the order of the ordered one holds."""
    kill_and_deliver(lambda receiver: Hooks(nats_server.url, receiver), tmp_path)


@pytest.mark.heavy
def test_kills_with_kafka(broker: KafkaBroker, tmp_path: Path) -> None:  # noqa: F811
    """The same from a topic: a commit covers nothing that is unfinished."""
    kill_and_deliver(lambda receiver: KafkaHooks(broker.servers, receiver), tmp_path)


def kill_and_deliver(hooks_of: Callable[[Receiver], Hooks], tmp_path: Path) -> None:
    """Publish for two endpoints, kill dispatchers in the middle, and look at what has arrived."""

    async def work() -> None:
        receiver = Receiver(answer)
        async with receiver.serving():
            hooks = hooks_of(receiver)
            hooks.store_url = f"sqlite:///{tmp_path}/store.db"
            hooks.store = open_store(hooks.store_url)
            hooks.subscribe("ordered", ordered=True, retry=[0.05] * 10)
            hooks.subscribe("plain", retry=[0.05] * 10, concurrency=4)
            file = tmp_path / "route.json"
            file.write_text(json.dumps(hooks.document))
            for subscription in ("ordered", "plain"):
                bodies = [f"{subscription}:{number}".encode() for number in range(COUNT)]
                await hooks.publish(*bodies, subscription=subscription)
            for _ in range(KILLS):
                seen = len(receiver.requests)
                process = await started(file)
                while len(receiver.requests) < seen + 200:
                    await asyncio.sleep(0.01)
                process.send_signal(signal.SIGKILL)
                await process.wait()
            process = await started(file, "--drain")
            assert await asyncio.wait_for(process.wait(), 240) == 0

            names = ("ordered", "plain")
            assert set(taken) == {f"{name}:{number}" for name in names for number in range(COUNT)}
            in_order = list(dict.fromkeys(body for body in taken if body.startswith("ordered")))
            assert in_order == [f"ordered:{n}" for n in range(COUNT)]
            assert await hooks.dead() == []

    taken: list[str] = []

    async def answer(request: Request) -> web.Response:
        await asyncio.sleep(0.002)
        if request.number % 10 == 0:
            return web.Response(status=503)
        taken.append(request.body.decode())
        return web.Response(status=204)

    asyncio.run(work())


async def started(file: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "turnout", "deliver", "--route", f"{file}", *options, stdout=asyncio.subprocess.DEVNULL
    )
