"""Two servers, one of which leads: killed, frozen and woken, asked to hand over, and cut off, under load.

``TURNOUT_HA_FAULTS`` sets the number of faults of each kind (1), ``TURNOUT_HA_KINDS`` the kinds (all, or names between
commas), ``TURNOUT_HA_RATE`` the messages a second (500), ``TURNOUT_HA_HOSTS`` the servers (2).
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pytest
from tests.integration.kafka_broker import started_broker
from tests.integration.network import ADDRESSES, HostNetwork, own_network
from tests.integration.routes import Streams, command, wait_for

from turnout.embedded import NatsServer, free_port
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.loops.compiled import compile_loops
from turnout.nats.wire import Connection, Publisher, PullReader, Range, stream_info

FAULTS = int(os.environ.get("TURNOUT_HA_FAULTS", "1"))
WANTED = os.environ.get("TURNOUT_HA_KINDS", "")
HOSTS = int(os.environ.get("TURNOUT_HA_HOSTS", "2"))
RATE = int(os.environ.get("TURNOUT_HA_RATE", "500"))
SECONDS = 5.0
REFUSED: Final = re.compile(
    r"nothing more is written(?: in term (\d+))?: the server of this run|is to be done, and '[\w.]+' says that"
)
"""A refusal by the server's fence, or by the note of a transaction of the next leader."""


class Traffic(Protocol):
    """Source and sink of the route, with numbered messages."""

    route: str

    def publish(self, numbers: range) -> None:
        """Publish messages, and return when the source has them."""
        ...

    def delivered(self) -> Iterator[pa.RecordBatch]:
        """Yield what has come to the sink since the last call: numbers as `value`, and the sink's `timestamp`."""
        ...


class NatsTraffic:
    """Streams of a nats-server."""

    def __init__(self, resources: ExitStack, folder: Path, host: str, trigger: str) -> None:
        server = resources.enter_context(NatsServer(folder / "nats", arguments=("-a", listening(host))))
        streams = Streams(server.url)
        streams.create()
        end = f'format: nats, servers: "nats://{host}:{server.port}", reconnectTimeout: 5'
        self.route = f"""
source: {{{end}, stream: {streams.source}}}
mappings: {{"in-{streams.name}.>": "out-{streams.name}.>"}}
sink: {{{end}, stream: {streams.sink}}}
trigger: {{{trigger}}}
"""
        self._streams = streams
        self._connection = resources.enter_context(Connection.open(server.url))
        self._publisher = resources.enter_context(Publisher(resources.enter_context(Connection.open(server.url))))
        self._next = 1

    def publish(self, numbers: range) -> None:
        for number in numbers:
            self._publisher.publish(self._streams.subject(f"a.{number % 7}"), b"%d" % number)
        self._publisher.flush()

    def delivered(self) -> Iterator[pa.RecordBatch]:
        end = stream_info(self._connection, self._streams.sink)["state"]["last_seq"] + 1
        span, self._next = Range(self._streams.sink, self._next, end), end
        if span.start < end:
            yield from PullReader(self._connection, span).batches()


class KafkaTraffic:
    """Topics of a broker, and a sink with transactions."""

    def __init__(self, resources: ExitStack, folder: Path, host: str, trigger: str) -> None:
        properties = f"listeners=PLAINTEXT://{listening(host)}:{{port}},CONTROLLER://127.0.0.1:{{controller}}\n"
        properties += f"advertised.listeners=PLAINTEXT://{host}:{{port}}\n"
        broker = resources.enter_context(started_broker(folder / "kafka", properties))
        servers = f"{host}:{broker.port}"
        self._options = KafkaOptions.of(servers)
        self._admin = resources.enter_context(KafkaAdmin(self._options))
        self._admin.create_topic("in", 2, {})
        self._admin.create_topic("out", 3, {"message.timestamp.type": "LogAppendTime"})
        self._producer = resources.enter_context(KafkaProducer(self._options))
        self._next = dict.fromkeys((("out", number) for number in range(3)), 0)
        self.route = f"""
source: {{format: kafka, servers: "{servers}", topics: in}}
mappings: {{"in": "out"}}
sink: {{format: kafka, servers: "{servers}", exactlyOnce: true}}
trigger: {{{trigger}}}
"""

    def publish(self, numbers: range) -> None:
        texts = [b"%d" % number for number in numbers]
        if texts:
            messages = KafkaMessages(["in"] * len(texts), texts, texts)
            self._producer.publish(messages, lambda index, reason: pytest.fail(f"{index}: {reason}"))
            self._producer.flush()

    def delivered(self) -> Iterator[pa.RecordBatch]:
        for (topic, partition), end in self._admin.ends(self._next).items():
            span = PartitionRange(topic, partition, self._next[topic, partition], end.next)
            yield from RangeReader(self._options, span).batches()
            self._next[topic, partition] = end.next


MODES: Final[dict[str, tuple[Callable[[ExitStack, Path, str, str], Any], str]]] = {
    "micro-batches": (NatsTraffic, ""),
    "low latency": (NatsTraffic, "latency: low"),
    "Kafka exactly once": (KafkaTraffic, ""),
    "Kafka exactly once, low latency": (KafkaTraffic, "latency: low"),
}


def listening(host: str) -> str:
    """Return the address on which a server listens that is known as *host*: on all of a network of the test's own."""
    return "0.0.0.0" if host in ADDRESSES.values() else host


class Host:
    """One of the servers, with a folder of its own for what is not shared; it is started again when it ends."""

    def __init__(self, folder: Path, shared: Path, lease: str, network: HostNetwork | None) -> None:
        self.shared = shared
        self.folder = folder
        self.network = network
        port = free_port()
        address = "127.0.0.1" if network is None else network.address("lease")
        self.url = f"http://{address}:{port}"
        self.settings = folder / "turnout.yaml"
        self.settings.write_text(
            f"spark: {{master: 'local[2]', log: '{folder}/spark.log'}}\nlisten: '{listening(address)}:{port}'\n"
            f"insecure: {str(network is not None).lower()}\n"
            "restarts: {pause: 200ms, longest: 1s}\n"
            f"ha: {{lease: '{lease}', folder: '{shared}/ha', url: '{self.url}', seconds: {SECONDS}}}\n"
        )
        self.start()

    def start(self) -> None:
        self.begun = {name: self._size(name) for name in ("log", "spark.log")}
        serve = command("serve", str(self.shared / "routes"), "--config", str(self.settings))
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*(self.network.prefix if self.network else ()), *serve],
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def _size(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.exists() else 0

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

    def text(self, name: str = "log") -> str:
        """Return what the process has written since its start."""
        path = self.folder / name
        if not path.exists():
            return ""
        with path.open("rb") as log:
            log.seek(self.begun[name] if path.stat().st_size >= self.begun[name] else 0)
            return log.read().decode(errors="replace")

    def term(self) -> int:
        """Return the term in which it leads, or has led."""
        return int(re.findall(r"leading from now on, in term (\d+)", self.text())[-1])

    def refused(self) -> list[int]:
        """Return the terms of what its tasks wanted to write when they were not allowed to any more.

        A task that begins when nobody answers knows none, and neither does the broker: 0.
        """
        return [int(term or 0) for name in ("log", "spark.log") for term in REFUSED.findall(self.text(name))]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                send(signal.SIGKILL, self.family())
                self.process.wait()


def send(number: int, processes: list[int]) -> None:
    for one in processes:
        with suppress(ProcessLookupError):
            os.kill(one, number)


class Load(threading.Thread):
    """Publishes numbered messages behind the first, as many a second, until it is stopped."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(daemon=True)
        self._traffic = traffic
        self.count = 1
        self.stopped = threading.Event()

    def run(self) -> None:
        begun = time.monotonic()
        while not self.stopped.wait(0.02):
            due = 1 + int((time.monotonic() - begun) * RATE)
            self._traffic.publish(range(self.count, due))
            self.count = due


class Deliveries(threading.Thread):
    """Counts what comes to the sink, and when, by the sink's clock: the reader here may be behind.

    Attributes:
        times: how often each message was delivered, by its number.
        count: number of different messages.
        stored: when each message was stored last, in seconds since 1970, by its number.
    """

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(daemon=True)
        self._traffic = traffic
        self.times = np.zeros(1 << 16, np.uint8)
        self.count = 0
        self.stored = np.zeros(1 << 16)
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.02):
            self.take()

    def take(self) -> None:
        """Count what has come since the last call."""
        for batch in self._traffic.delivered():
            numbers = batch.column("value").cast(pa.string()).cast(pa.int64()).to_numpy()
            while numbers.max() >= len(self.times):
                self.stored = np.concatenate((self.stored, np.zeros_like(self.stored)))
                self.times = np.concatenate((self.times, np.zeros_like(self.times)))
            self.stored[numbers] = batch.column("timestamp").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() / 1e6
            np.add.at(self.times, numbers, 1)
            self.count = int(np.count_nonzero(self.times))

    def first(self, number: int) -> float:
        """Return when the first of the messages from a number on was stored; infinity before."""
        found = self.stored[number : number + RATE // 10]
        return float(found[found > 0].min(initial=np.inf))

    def longest_pause(self, since: float) -> float:
        """Return the most seconds between two deliveries, the first of which may have been before."""
        times = np.sort(self.stored[self.stored > 0])
        return float(np.diff(times[max(0, np.searchsorted(times, since) - 1) :]).max())


@dataclass
class Outcome:
    """What a fault has led to.

    Attributes:
        led: seconds until the standby leads.
        takeover: seconds until the next leader has delivered a message that came when it led.
        pause: most seconds without a delivery.
        refused: writes of the former leader that were refused.
    """

    kind: str
    led: float
    takeover: float
    pause: float
    refused: int


def kill(leader: Host, _: Host) -> Iterator[None]:
    send(signal.SIGKILL, leader.family())
    leader.process.wait(60)
    yield


def hand_over(leader: Host, standby: Host) -> Iterator[None]:
    standby.ask("/v1/leader/hand-over", "POST")
    yield
    assert leader.process.wait(60) == 0
    assert not leader.refused()


def freeze(leader: Host, _: Host) -> Iterator[None]:
    frozen = leader.family()
    send(signal.SIGSTOP, frozen)
    yield
    # The tasks wake up first, and find that nobody answers who could permit their writes.
    send(signal.SIGCONT, frozen[1:])
    with suppress(AssertionError):
        wait_for(lambda: bool(leader.refused()), 20)
    send(signal.SIGCONT, frozen)
    ends(leader, r"lease of term \d+ is lost")


def cut_lease(leader: Host, _: Host) -> Iterator[None]:
    assert leader.network is not None
    leader.network.cut("lease")
    yield
    ends(leader, r"lease of term \d+ is lost")
    leader.network.mend("lease")


def cut_brokers(leader: Host, _: Host) -> Iterator[None]:
    assert leader.network is not None
    leader.network.cut("brokers")
    yield
    # It finds its brokers again while it ends.
    leader.network.mend("brokers")
    ends(leader, r"leadership of term \d+ has ended: a server of the routes cannot be reached")


def ends(leader: Host, reason: str) -> None:
    assert leader.process.wait(180) != 0
    assert re.search(reason, leader.text()), leader.text()[-2000:]


KINDS: Final[dict[str, Callable[[Host, Host], Iterator[None]]]] = {
    "kill": kill,
    "freeze": freeze,
    "hand over": hand_over,
    "cut off from the lease": cut_lease,
    "cut off from the brokers": cut_brokers,
}
"""Faults of a leader; each goes on after its yield, when the standby leads and delivers."""


class Scene:
    """Leader and standbys, and what happens to them."""

    def __init__(self, hosts: list[Host], load: Load, deliveries: Deliveries) -> None:
        self.hosts = hosts
        self.load = load
        self.deliveries = deliveries

    def play(self, kind: str) -> Outcome:
        """Let one fault happen to the leader, and return when it has ended and is a standby again."""
        wait_for(lambda: sum(host.leads() for host in self.hosts) == 1)
        (leader,) = [host for host in self.hosts if host.leads()]
        others = [host for host in self.hosts if host is not leader]
        wait_for(lambda: all(host.waits() for host in others))
        wait_for(lambda: self.deliveries.count > self.load.count - 3 * RATE)
        standby = next(host for host in others if host.waits())
        begun = time.time()
        steps = KINDS[kind](leader, standby)
        next(steps)
        wait_for(lambda: any(host.leads() for host in others))
        led, after = time.time() - begun, self.load.count
        # What has come between may have been delivered by the former leader.
        wait_for(lambda: self.deliveries.first(after) < np.inf)
        took, term = self.deliveries.first(after) - begun, leader.term()
        for _ in steps:
            pass
        refused = leader.refused()
        assert set(refused) <= {0, term}
        assert next(host for host in others if host.leads()).term() > term
        pause = self.deliveries.longest_pause(begun)
        leader.start()
        return Outcome(kind, led, took, pause, len(refused))


def table(mode: str, outcomes: list[Outcome]) -> str:
    """Return the outcomes by kind, as rows of Markdown."""
    rows = [f"\n| {mode} | faults | takeover p50 | p99 | max | longest pause | writes refused |", "|---|" + "---|" * 6]
    for kind in dict.fromkeys(outcome.kind for outcome in outcomes):
        found = [outcome for outcome in outcomes if outcome.kind == kind]
        took = sorted(outcome.takeover for outcome in found)
        p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
        figures = (statistics.median(took), p99, took[-1], max(outcome.pause for outcome in found))
        seconds = " | ".join(f"{figure:.1f} s" for figure in figures)
        rows.append(f"| {kind} | {len(found)} | {seconds} | {sum(outcome.refused for outcome in found)} |")
    return "\n".join(rows)


@pytest.mark.heavy
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", ["one machine", "networks"])
def test_nothing_is_lost_or_doubled_whatever_happens_to_the_leader(tmp_path: Path, mode: str, place: str) -> None:
    """Each message is delivered once, whatever fault the leader has; one that wakes up or is back ends by itself."""
    kinds = list(KINDS)[:3] if place == "one machine" else list(KINDS)[3:]
    kinds = [kind for kind in kinds if kind in WANTED.split(",") or not WANTED]
    outcomes: list[Outcome] = []
    # Interpreted, the reader here falls behind at 5,000 messages a second.
    compile_loops()
    with ExitStack() as resources:
        addresses = dict.fromkeys(ADDRESSES, "127.0.0.1")
        folders = [tmp_path / f"host-{number}" for number in range(HOSTS)]
        networks: list[HostNetwork | None] = [None] * HOSTS
        for folder in folders:
            folder.mkdir()
        if place == "networks":
            resources.enter_context(own_network())
            networks = [HostNetwork(number + 1, folder) for number, folder in enumerate(folders)]
            for network in networks:
                assert network is not None
                resources.callback(network.close)
            addresses = dict(ADDRESSES)
        lease = resources.enter_context(NatsServer(tmp_path / "lease", arguments=("-a", listening(addresses["lease"]))))
        traffic_of, trigger = MODES[mode]
        traffic: Traffic = traffic_of(resources, tmp_path, addresses["brokers"], trigger)
        (tmp_path / "shared/routes").mkdir(parents=True)
        (tmp_path / "shared/routes/orders.yaml").write_text(f"name: orders{traffic.route}")
        lease_url = f"nats://{addresses['lease']}:{lease.port}"
        hosts = []
        for folder, network in zip(folders, networks, strict=True):
            hosts.append(Host(folder, tmp_path / "shared", lease_url, network))
            resources.callback(hosts[-1].end)
        traffic.publish(range(1))
        load, deliveries = Load(traffic), Deliveries(traffic)
        for thread in (deliveries, load):
            thread.start()
            resources.callback(thread.join)
            resources.callback(thread.stopped.set)
            # The load begins when the route delivers: nothing gathers while Spark starts.
            wait_for(lambda: deliveries.count > 0)
        scene = Scene(hosts, load, deliveries)
        for kind in kinds * FAULTS:
            outcomes.append(scene.play(kind))
            print(outcomes[-1], flush=True)
        load.stopped.set()
        load.join()
        wait_for(lambda: deliveries.count >= load.count)
        for host in hosts:
            host.end()
        deliveries.stopped.set()
        deliveries.join()
        deliveries.take()
    lost, twice = load.count - deliveries.count, int((deliveries.times > 1).sum())
    print(table(mode, outcomes), f"{load.count} messages, {lost} lost, {twice} twice", sep="\n")
    assert (lost, twice) == (0, 0)
