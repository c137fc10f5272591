"""A route with a thousand subscriptions through everything that can happen to it; ``make soak`` runs it.

``TURNOUT_SOAK_MINUTES`` says for how long, ``TURNOUT_SOAK_SEED`` repeats the draws of a run by the seed that it prints.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest
from tests.integration.chaos import Scene, disk_of_its_own
from tests.integration.routes import write_route
from tests.integration.switch import Switch
from tests.integration.traffic import Feed, create_streams, delivered, expected, stored, subscriptions
from tests.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer
from turnout.subscriptions import open_store

_SUBSCRIPTIONS = 1000
_PER_SECOND = 300
_QUIET_SECONDS = 240.0
"""How long the last of it may take once nothing disturbs any more."""

ROUTE = """
name: chaos
source: {{format: nats, servers: "{url}", stream: IN, maxRecordsPerTrigger: 500}}
value: {{format: json}}
subscriptions: {{store: "{store}", metadata: {{bucket: value.bucket}}}}
sink: {{format: nats, servers: "{url}", stream: OUT}}
deadLetter: {{topic: out.dead}}
errors: {{tolerance: all}}
"""


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_everything_that_can_happen(tmp_path: Path) -> None:
    """Every delivery that has to be is stored once: none is lost, none is there twice, and none that must not be."""
    minutes = float(os.environ.get("TURNOUT_SOAK_MINUTES", "10"))
    seed = int(os.environ.get("TURNOUT_SOAK_SEED", str(random.randrange(10**6))))
    print(f"seed {seed}, {minutes} minutes")
    wishes = subscriptions(_SUBSCRIPTIONS)
    store = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    with contextlib.closing(open_store(store)) as opened:
        opened.create_many(wishes)
    with (
        NatsServer(tmp_path / "nats") as server,
        CuttingProxy(server.port) as proxy,
        disk_of_its_own(tmp_path / "disk", "24m") as disk,
        Switch(
            disk or tmp_path, write_route(tmp_path, ROUTE.format(url=proxy.url, store=store)), log=tmp_path
        ) as switch,
    ):
        create_streams(server)
        feed = Feed(server, _PER_SECOND)
        scene = Scene(switch, server, proxy, store, disk, random.Random(seed))
        feed.start()
        deadline = time.monotonic() + minutes * 60
        while time.monotonic() < deadline:
            scene.wait_until_it_delivers()
            time.sleep(scene.random.uniform(0, 4))
            scene.draw()
        count = feed.finish()
        deliveries = expected(wishes, count)
        _wait_for_the_rest(scene, sum(deliveries.values()))
        switch.signal_group(signal.SIGTERM)
        assert switch.wait(120) == 0, switch.said()[-3000:]
        books = delivered(server)
    print(f"faults {dict(scene.faults)}")
    print(f"{scene.starts} starts; ends: {dict(scene.ends)}")
    lost, twice = deliveries - books, books - deliveries
    print(
        f"{count:,} records, {sum(deliveries.values()):,} deliveries expected, {sum(books.values()):,} stored,"
        f" {sum(lost.values())} lost, {sum(twice.values())} twice; published with {feed.failures} interruptions"
    )

    assert not lost, sorted(lost)[:20]
    assert not twice, sorted(twice)[:20]


def _switch(folder: Path, disk: Path | None, text: str) -> Switch:
    return Switch(disk or folder, write_route(folder, text), log=folder)


def _wait_for_the_rest(scene: Scene, count: int) -> None:
    """Return when OUT has so many messages, and some time later: what comes then is too much."""
    deadline = time.monotonic() + _QUIET_SECONDS
    while stored(scene.server, "OUT") < count:
        scene.keep_running()
        assert time.monotonic() < deadline, (stored(scene.server, "OUT"), count, scene.switch.said()[-3000:])
        time.sleep(0.5)
    time.sleep(3)
    scene.keep_running()
