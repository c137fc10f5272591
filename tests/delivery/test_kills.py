"""Kills of the dispatcher: every message arrives, ordered ones in order, and no failed attempt is forgotten."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import cycle
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


FAULTS = int(os.environ.get("TURNOUT_DELIVERY_FAULTS", "3"))
ENDPOINTS = 8


@pytest.mark.heavy
def test_two_dispatchers_share_the_endpoints(nats_server: NatsServer, tmp_path: Path) -> None:
    """Dispatchers are killed, frozen and woken, and ended: nothing is lost, and each endpoint has its order.

    A message comes again only where the answer was not seen, right behind its first request and with the same id:
    one that wakes up sends nothing of what the other one has delivered meanwhile. ``TURNOUT_DELIVERY_FAULTS`` sets the
    number of faults (3).
    """
    taken: dict[str, list[tuple[int, str]]] = {f"/{number}": [] for number in range(ENDPOINTS)}

    async def answer(request: Request) -> web.Response:
        taken[request.path].append((int(request.body), request.headers["webhook-id"]))
        await asyncio.sleep(0.02)
        return web.Response(status=204)

    async def progress() -> None:
        """Wait until each endpoint has had some more messages, or all."""
        seen = {path: len(several) for path, several in taken.items()}
        async with asyncio.timeout(60):
            while any(len(taken[path]) < seen[path] + 20 and not is_done(path) for path in taken):
                await asyncio.sleep(0.02)

    def is_done(path: str) -> bool:
        return bool(taken[path]) and taken[path][-1][0] == count - 1

    count = 600 + 900 * FAULTS
    delivered: list[int] = []

    async def work() -> None:
        receiver = Receiver(answer)
        async with receiver.serving():
            hooks = Hooks(nats_server.url, receiver)
            hooks.store_url = f"sqlite:///{tmp_path}/store.db"
            hooks.store = open_store(hooks.store_url)
            root = receiver.url.removesuffix("/in")
            for number in range(ENDPOINTS):
                settings = {"ordered": True, "retry": [0.05] * 10, "maxWaiting": 1_000_000}
                hooks.others[f"e{number}"] = {"url": f"{root}/{number}", "delivery": settings}
            file = tmp_path / "route.json"
            file.write_text(json.dumps(hooks.document))
            for number in range(ENDPOINTS):
                await hooks.publish(*(b"%d" % n for n in range(count)), to=f"webhook:e{number}")
            processes = [await started(file, "--json") for _ in range(2)]
            try:
                await with_faults(processes, file)
            finally:
                for process in processes:
                    if process.returncode is None:
                        process.kill()
            assert await hooks.dead() == []

    async def with_faults(processes: list[asyncio.subprocess.Process], file: Path) -> None:
        await progress()
        for fault in [kind for kind, _ in zip(cycle(("kill", "freeze", "end")), range(FAULTS), strict=False)]:
            # The other one has had its part for a while.
            await progress()
            first = processes.pop(0)
            if fault == "kill":
                first.kill()
                await progress()
            elif fault == "freeze":
                first.send_signal(signal.SIGSTOP)
                await progress()
                first.send_signal(signal.SIGCONT)
            else:
                first.terminate()
                out, _ = await first.communicate()
                delivered.append(json.loads(out)["counts"]["delivered"])
                await progress()
            processes.append(first if fault == "freeze" else await started(file, "--json"))
        async with asyncio.timeout(600):
            while not all(map(is_done, taken)):
                await asyncio.sleep(0.1)
        for process in processes:
            process.terminate()
            out, _ = await process.communicate()
            delivered.append(json.loads(out)["counts"]["delivered"])

    asyncio.run(work())

    again = 0
    for path, several in taken.items():
        numbers = [number for number, _ in several]
        assert numbers == sorted(numbers), f"{path} has an order"
        assert set(numbers) == set(range(count)), f"{path} has lost some"
        assert len(set(several)) == count, "a message has one id"
        again += len(several) - count
    print(
        f"\n{ENDPOINTS * count} messages, {FAULTS} faults, {again} came again; each process has delivered {delivered}"
    )
    assert again <= ENDPOINTS * sum(kind != "end" for kind, _ in zip(cycle(("kill", "freeze", "end")), range(FAULTS)))
    assert min(delivered) > 0


async def started(file: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "turnout", "deliver", "--route", f"{file}", *options, stdout=asyncio.subprocess.PIPE
    )
