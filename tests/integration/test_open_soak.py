"""A million messages through open splits, with kills and disconnections; ``make soak`` runs it.

``TURNOUT_SOAK_MESSAGES`` and ``TURNOUT_SOAK_FAULTS`` make it shorter, ``TURNOUT_SOAK_SEED`` repeats the draws of a run
by the seed that it prints.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
from tests.integration.routes import Streams, wait_for, write_route
from tests.integration.switch import Switch
from tests.nats.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, PullReader, Range, stream_info
from turnout.nats.wire.packing import id_lines
from turnout.runtime.offsets import committed

ROUTE = """
name: soak
source: {{format: nats, servers: "{url}", stream: {source}}}
mappings: {{"in-{name}.>": "out-{name}.>"}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
trigger: {{latency: low}}
"""
_PER_SECOND = 4000
_PIECE = 200
_START_SECONDS = 180.0


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_messages_through_kills_and_disconnections(tmp_path: Path) -> None:
    """Each message is stored once: none is lost, and none occurs twice."""
    messages = int(os.environ.get("TURNOUT_SOAK_MESSAGES", "1000000"))
    faults = int(os.environ.get("TURNOUT_SOAK_FAULTS", "20"))
    seed = int(os.environ.get("TURNOUT_SOAK_SEED", str(random.randrange(10**6))))
    print(f"seed {seed}, {messages:,} messages, {faults} faults")
    with NatsServer(tmp_path / "nats") as server, CuttingProxy(server.port) as proxy:
        streams = Streams(server.url)
        streams.create()
        text = ROUTE.format(url=proxy.url, source=streams.source, sink=streams.sink, name=streams.name)
        with Switch(tmp_path, write_route(tmp_path, text)) as switch:
            scene = _Scene(server, proxy, streams, switch, random.Random(seed))
            edges = np.linspace(0, messages, faults + 1).astype(int).tolist()
            for first, last in pairwise(edges):
                scene.disturbed(first, last)
            scene.catch_up()
            switch.signal_group(signal.SIGTERM)
            assert switch.wait(120) == 0, switch.said()[-3000:]
        times = _times_stored(streams, messages)
    print(f"faults {dict(scene.faults)}, {scene.starts} starts")
    print(f"{int((times == 0).sum())} lost, {int((times > 1).sum())} twice")

    assert not (times == 0).any(), np.flatnonzero(times == 0)[:20]
    assert not (times > 1).any(), np.flatnonzero(times > 1)[:20]


class _Scene:
    """The route, its server, and what happens to them."""

    def __init__(
        self, server: NatsServer, proxy: CuttingProxy, streams: Streams, switch: Switch, chance: random.Random
    ) -> None:
        self.faults: Counter[str] = Counter()
        self.starts = 0
        self._server = server
        self._proxy = proxy
        self._streams = streams
        self._switch = switch
        self._chance = chance
        self._kinds: dict[str, Callable[[], object]] = {
            "driver": lambda: switch.process.kill(),
            "JVM": lambda: (switch.jvm() or switch.process).kill(),
            "workers": self._kill_workers,
            "all": switch.kill,
            "connections": proxy.cut,
            "server": lambda: server.restart(kill=True),
        }
        self._left: list[str] = []

    def _kill_workers(self) -> None:
        for worker in self._switch.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()

    def disturbed(self, first: int, last: int) -> None:
        """Publish the messages with these numbers; something happens meanwhile."""
        self.catch_up()
        feed = threading.Thread(target=self._publish, args=(first, last))
        feed.start()
        time.sleep(self._chance.uniform(0.2, 0.9) * (last - first) / _PER_SECOND)
        # Each kind before any comes again.
        self._left = self._left or self._chance.sample(list(self._kinds), len(self._kinds))
        kind = self._left.pop()
        self.faults[kind] += 1
        with contextlib.suppress(psutil.NoSuchProcess):
            self._kinds[kind]()
        while feed.is_alive():
            self._keep_running()
            feed.join(0.2)

    def catch_up(self) -> None:
        """Wait until the route has recorded that all published messages are done, and start it if it does not run."""
        with Connection.open(self._server.url) as connection:
            end = stream_info(connection, self._streams.source)["state"]["last_seq"] + 1

        def done() -> bool:
            self._keep_running()
            return end == 1 or committed(self._switch.checkpoint).sequence(self._streams.source) == end

        wait_for(done, _START_SECONDS)
        self._proxy.sent.clear()

    def _keep_running(self) -> None:
        if not self._switch.runs():
            self._switch.start()
            self.starts += 1
            wait_for(lambda: "is ready" in self._switch.said() or not self._switch.runs(), _START_SECONDS)

    def _publish(self, first: int, last: int) -> None:
        begun = time.monotonic()
        with Connection.open(self._server.url) as connection, Publisher(connection) as publisher:
            for start in range(first, last, _PIECE):
                time.sleep(max(0.0, begun + (start - first) / _PER_SECOND - time.monotonic()))
                numbers = [str(number) for number in range(start, min(last, start + _PIECE))]
                subjects = pa.array([self._streams.subject(f"k.{number}") for number in numbers])
                payloads = pa.array([number.encode() for number in numbers], pa.binary())
                publisher.publish_columns(subjects, payloads, id_lines(pa.array(numbers)))
                publisher.flush()


def _times_stored(streams: Streams, messages: int) -> np.ndarray:
    """Return how often each message is in the outgoing stream."""
    times = np.zeros(messages, np.int64)
    with Connection.open(streams.url) as connection:
        last = stream_info(connection, streams.sink)["state"]["last_seq"]
        for batch in PullReader(connection, Range(streams.sink, 1, last + 1)).batches():
            numbers = batch.column("value").cast(pa.string()).cast(pa.int64()).to_numpy()
            times += np.bincount(numbers, minlength=messages)
    return times
