"""Two servers, one of which leads: killed, frozen and woken, and asked to hand over, under load.

``TURNOUT_HA_FAULTS`` sets the number of faults (3), ``TURNOUT_HA_RATE`` the messages a second (500).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from tests.integration.routes import Streams, command, wait_for

from turnout.embedded import NatsServer
from turnout.embedded.nats_server import free_port
from turnout.nats.wire import Connection, Publisher

FAULTS = int(os.environ.get("TURNOUT_HA_FAULTS", "3"))
RATE = int(os.environ.get("TURNOUT_HA_RATE", "500"))
SECONDS = 5.0
ROUTE = """
name: orders
source: {{format: nats, servers: "{url}", stream: {source}, reconnectTimeout: 5}}
mappings: {{"in-{prefix}.>": "out-{prefix}.>"}}
sink: {{format: nats, servers: "{url}", stream: {sink}, reconnectTimeout: 5}}
trigger: {{{trigger}}}
"""


class Host:
    """One of the servers, with a folder of its own for what is not shared; it is started again when it ends."""

    def __init__(self, folder: Path, shared: Path, lease: str) -> None:
        self.shared = shared
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = folder / "turnout.yaml"
        folder.mkdir()
        self.settings.write_text(
            f"spark: {{master: 'local[2]', log: '{folder}/spark.log'}}\nlisten: '127.0.0.1:{self.port}'\n"
            "restarts: {pause: 200ms, longest: 1s}\n"
            f"ha: {{lease: '{lease}', folder: '{shared}/ha', seconds: {SECONDS}}}\n"
        )
        self.start()

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command("serve", str(self.shared / "routes"), "--config", str(self.settings)),
                stderr=log,
                cwd=self.folder,
            )

    def family(self) -> list[int]:
        """Process ids of the server, of its JVM and of its workers."""
        parents = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        ids = [self.process.pid]
        for one in ids:
            ids += [child for child, parent in parents.items() if parent == one]
        return ids

    def signal(self, number: int) -> list[int]:
        ids = self.family()
        for one in ids:
            with suppress(ProcessLookupError):
                os.kill(one, number)
        return ids

    def ask(self, path: str, method: str = "GET") -> Any:
        headers = {"Content-Type": "application/json"} if method == "POST" else {}
        request = urllib.request.Request(self.url + path, b"{}" if method == "POST" else None, headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def leads(self) -> bool:
        with suppress(OSError, ValueError), urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as answer:
            return b"turnout_leader 1.0" in answer.read()
        return False

    def waits(self) -> bool:
        """Whether it is a standby that knows the lease, and has its Spark session."""
        with suppress(OSError, ValueError):
            return bool(self.ask("/ready")["ready"]) and "standing by" in self.text()
        return False

    def text(self) -> str:
        return (self.folder / "log").read_text().rpartition("== started ==")[2]

    def mark(self) -> None:
        with (self.folder / "log").open("a") as log:
            log.write("== started ==\n")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
                self.process.wait()


class Load(threading.Thread):
    """Publishes numbered messages, as many a second, until it is stopped."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(daemon=True)
        self.streams = streams
        self.count = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        with Connection.open(self.streams.url) as connection, Publisher(connection) as publisher:
            begun = time.monotonic()
            while not self.stopped.is_set():
                while self.count < (time.monotonic() - begun) * RATE:
                    publisher.publish(self.streams.subject(f"a.{self.count % 7}"), b"%d" % self.count)
                    self.count += 1
                publisher.flush()
                self.stopped.wait(0.02)


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


def leader_of(hosts: list[Host]) -> Host:
    found: list[Host] = []

    def look() -> bool:
        found[:] = [host for host in hosts if host.leads()]
        return len(found) == 1

    wait_for(look)
    return found[0]


@pytest.mark.heavy
@pytest.mark.parametrize("trigger", ["", "latency: low"], ids=["micro-batches", "low latency"])
def test_nothing_is_lost_or_doubled_whatever_happens_to_the_leader(
    tmp_path: Path, nats: NatsServer, trigger: str
) -> None:
    """Each message is delivered once through kills, freezes and hand-overs; a leader that wakes up ends by itself."""
    streams = Streams(nats.url)
    streams.create()
    routes = tmp_path / "shared" / "routes"
    routes.mkdir(parents=True)
    text = ROUTE.format(url=nats.url, source=streams.source, sink=streams.sink, prefix=streams.name, trigger=trigger)
    (routes / "orders.yaml").write_text(text)
    hosts = [Host(tmp_path / name, tmp_path / "shared", nats.url) for name in ("one", "two")]
    load = Load(streams)
    gaps: list[tuple[str, float]] = []
    try:
        leader = leader_of(hosts)
        load.start()
        for fault in [kind for kind, _ in zip(cycle(("kill", "freeze", "hand over")), range(FAULTS), strict=False)]:
            (standby,) = [host for host in hosts if host is not leader]
            wait_for(standby.waits)
            wait_for(lambda: streams.stored(streams.sink) > load.count * 0.9)
            begun = time.monotonic()
            if fault == "kill":
                leader.signal(signal.SIGKILL)
            elif fault == "freeze":
                frozen = leader.signal(signal.SIGSTOP)
            else:
                standby.ask("/v1/leader/hand-over", "POST")
            reached = streams.stored(streams.sink)
            if fault != "hand over":
                wait_for(standby.leads)
            # From the fault to the first message that the next leader delivers.
            wait_for(lambda: streams.stored(streams.sink) > max(reached, 0) + RATE // 10 and standby.leads())  # noqa: B023
            gaps.append((fault, time.monotonic() - begun))
            if fault == "freeze":
                for one in frozen:
                    with suppress(ProcessLookupError):
                        os.kill(one, signal.SIGCONT)
                code = leader.process.wait(120)
                assert code != 0
                assert re.search(r"lease of term \d+ is lost", leader.text()), leader.text()[-2000:]
            else:
                leader.process.wait(60)
            leader.mark()
            leader.start()
            leader = standby
        load.stopped.set()
        load.join()
        wait_for(lambda: streams.stored(streams.sink) >= load.count)
        time.sleep(2)
        delivered = Counter(int(row["value"]) for row in streams.delivered())
    finally:
        load.stopped.set()
        for host in hosts:
            host.end()
    print(f"\n{trigger or 'micro-batches'}: {load.count} messages, {len(gaps)} faults, gaps {gaps}")
    assert sum(count > 1 for count in delivered.values()) == 0, "delivered twice"
    assert len(delivered) == load.count, "lost"
