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
from tests.integration.stepped_clock import SteppedClock, stepped_clock
from tests.integration.switch import Switch
from tests.integration.traffic import Feed, create_streams, delivered, expected, subscriptions
from tests.nats.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, stream_info
from turnout.runtime.offsets import committed
from turnout.subscriptions import open_store

_SUBSCRIPTIONS = 1000
_PER_SECOND = 300
_QUIET_SECONDS = 240.0
"""Time limit for the remaining records after the last fault."""

ROUTE = """
name: chaos
source: {{format: nats, servers: "{url}", stream: IN{source}}}
value: {{format: json}}
subscriptions: {{store: "{store}", metadata: {{bucket: value.bucket}}}}
sink: {{format: nats, servers: "{url}", stream: OUT}}
deadLetter: {{topic: out.dead}}
errors: {{tolerance: all}}
{trigger}
"""
KINDS = {
    "short": {"source": ", maxRecordsPerTrigger: 500", "trigger": ""},
    "open": {"source": "", "trigger": "trigger: {latency: low}"},
}
"""Micro-batches with an end, and those that stay open."""


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_can_happen(tmp_path: Path, kind: str) -> None:
    """Every delivery that has to be is stored once: none is lost, none occurs twice, and none that must not be."""
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
        stepped_clock(tmp_path) as clock,
        Switch(
            disk or tmp_path,
            write_route(tmp_path, ROUTE.format(url=proxy.url, store=store, **KINDS[kind])),
            log=tmp_path,
            env=None if isinstance(clock, str) else clock.environment,
        ) as switch,
    ):
        if isinstance(clock, str):
            print(f"no clock is set: {clock}")
        create_streams(server)
        feed = Feed(server, _PER_SECOND)
        settable = clock if isinstance(clock, SteppedClock) else None
        scene = Scene(switch, server, proxy, store, disk, settable, random.Random(seed))
        feed.start()
        deadline = time.monotonic() + minutes * 60
        while time.monotonic() < deadline:
            scene.wait_until_it_delivers()
            time.sleep(scene.random.uniform(0, 4))
            scene.draw()
        count = feed.finish()
        deliveries = expected(wishes, count)
        _wait_for_the_rest(scene)
        switch.signal_group(signal.SIGTERM)
        assert switch.wait(120) == 0, switch.said()[-3000:]
        books, refused = delivered(server)
    print(f"faults {dict(scene.faults)}")
    print(f"{scene.starts} starts; ends: {dict(scene.ends)}")
    lost, twice = deliveries - books, books - deliveries
    print(
        f"{count:,} records, {sum(deliveries.values()):,} deliveries expected, {sum(books.values()):,} stored,"
        f" {sum(lost.values())} lost, {sum(twice.values())} twice; {sum(refused.values()):,} dead letters of"
        f" {scene.poisoned} bad subscriptions; published with {feed.failures} interruptions"
    )

    assert not lost, sorted(lost)[:20]
    assert not twice, sorted(twice)[:20]
    assert set(refused.values()) <= {1}, refused.most_common(20)


def _wait_for_the_rest(scene: Scene) -> None:
    """Return when the route has committed all that there is."""
    deadline = time.monotonic() + _QUIET_SECONDS
    with Connection.open(scene.server.url) as connection:
        end = stream_info(connection, "IN")["state"]["last_seq"] + 1
    while (position := committed(scene.switch.checkpoint).sequence("IN")) != end:
        scene.keep_running()
        assert time.monotonic() < deadline, (position, end, scene.switch.said()[-3000:])
        time.sleep(0.5)
