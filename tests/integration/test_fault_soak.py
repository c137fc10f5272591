"""Messages through faults of the run, its servers and its streams: what is missing was said; ``make soak`` runs it.

Streams and topics are created again, restored, purged and trimmed while a route reads them. A message that was removed
from the source before the route could read it is missing: an error or a warning must have said so. All others are
delivered. Promises of ``docs/reliability.md`` that are checked: at least once for each message that the source still
has, and exactly once into each stream or topic of the sink; one that is created again may get a message again, as its
duplicate window is new.

``TURNOUT_SOAK_MESSAGES`` and ``TURNOUT_SOAK_FAULTS`` make it shorter, no fault is drawn after ``TURNOUT_SOAK_MINUTES``,
and ``TURNOUT_SOAK_SEED`` repeats the draws of a run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.kafka_broker import KafkaBroker
from tests.integration.routes import write_route
from tests.integration.switch import Switch
from tests.nats.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer
from turnout.errors import TurnoutError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.nats.wire import (
    Connection,
    Publisher,
    PullReader,
    Range,
    create_stream,
    delete_stream,
    purge_stream,
    stream_info,
)
from turnout.records.types import ArrowBatch
from turnout.runtime.offsets import committed

_ROUND_SECONDS = 2.5
_PIECES = 20
_CAUGHT_UP_SECONDS = 300.0
_FROZEN_SECONDS = 5.0
_TRANSACTION_SECONDS = 400.0
"""A transaction of a task that nobody repeats is aborted by the broker after five minutes."""

Place = tuple[int, int]
"""Partition and offset of a message; the partition of a stream is 0."""

ROUTE = """
name: soak
source: {{{source}{lenient}}}
value: {{format: raw}}
mappings: {{{mappings}}}
sink: {{{sink}}}
deadLetter: {{topic: dead}}
errors: {{tolerance: all}}
{trigger}
"""


@dataclass
class Removal:
    """Messages that a fault removed from the source, and what the route printed from then on.

    Attributes:
        kind: name of the fault.
        places: number of each message → where it was.
        names: texts that an error or a warning about it has, all of them; by places if there are none.
        begin: sizes of the route's logs before the fault.
        printed: what it has written to them until it had caught up.
    """

    kind: str
    places: Mapping[int, Place]
    names: tuple[str, ...]
    begin: tuple[int, int]
    printed: str = ""

    def unsaid(self, missing: set[int]) -> set[int]:
        """Return the missing messages of this removal about which nothing was said."""
        if self.names and all(name in self.printed for name in self.names):
            return set()
        ranges = _said_ranges(self.printed)
        return {
            number
            for number in missing & self.places.keys()
            if not any(
                partition == self.places[number][0] and start <= self.places[number][1] <= last
                for partition, start, last in ranges
            )
        }


def _said_ranges(printed: str) -> set[tuple[int, int, int]]:
    """Return partition, first and last offset of each loss in the output."""
    streams = re.findall(r"no longer has the sequences ([\d,]+) to ([\d,]+)", printed)
    partitions = re.findall(
        r"partition (\d+) of the topic 'in' no longer has the offsets ([\d,]+) to ([\d,]+)", printed
    )
    texts = [("0", *bounds) for bounds in streams] + partitions
    return {tuple(int(text.replace(",", "")) for text in three) for three in texts}  # type: ignore[misc]


Fault = Callable[[], int]
"""Something that happens to a route; returns how many messages, processes or connections it has affected."""

_OPEN = "trigger: {latency: low}"


class Sides(ABC):
    """The source and the sink of a route, with the faults that happen to them; `start` starts their servers.

    Attributes:
        once: whether the sink promises each message once.
    """

    mode: str
    source: str
    sink: str
    read_topic: str
    written_topic: str
    trigger = ""
    once = True

    def __init__(self, chance: random.Random, folder: Path, rounds: int) -> None:
        self.chance = chance
        self.folder = folder
        self.per_batch = "" if self.trigger else f", maxRecordsPerTrigger: {max(50, rounds // 5)}"
        self.proxies: list[CuttingProxy] = []
        self.feed = threading.Lock()
        self.switch: Switch
        self.removals: list[Removal] = []
        self.former_sinks: list[Counter[int]] = []
        self.in_open_transactions: set[int] = set()

    def start(self, stack: contextlib.ExitStack) -> None:
        """Start the servers, until the end of the stack."""
        del stack

    def proxied(self, stack: contextlib.ExitStack, port: int) -> CuttingProxy:
        """Return a proxy before a server."""
        self.proxies.append(stack.enter_context(CuttingProxy(port)))
        return self.proxies[-1]

    def forget(self) -> None:
        """Remove what the proxies have noted."""
        for proxy in self.proxies:
            proxy.sent.clear()

    def text(self, *, lenient: bool) -> str:
        """Return the route; a lenient one continues without what is lost."""
        return ROUTE.format(
            source=self.source,
            lenient=", failOnDataLoss: false" if lenient else "",
            mappings=f'"{self.read_topic}": "{self.written_topic}"',
            sink=self.sink,
            trigger=self.trigger,
        )

    def faults(self) -> dict[str, Fault]:
        """Return faults by name; those that remove messages of the source are in `removing`."""
        return {"connections cut": lambda: sum(proxy.cut() for proxy in self.proxies)}

    removing: frozenset[str]

    @abstractmethod
    def back_up(self) -> None:
        """Copy what the source has, for the fault that restores it."""

    @abstractmethod
    def publish(self, numbers: range) -> None:
        """Store messages in the source; return when all are acknowledged."""

    @abstractmethod
    def present(self) -> dict[int, Place]:
        """Return the messages that the source has now."""

    @abstractmethod
    def caught_up(self, checkpoint: Path) -> bool:
        """Return True if the checkpoint has the end of the present source."""

    @abstractmethod
    def stored(self, target: str) -> Counter[int]:
        """Return how often each message is in ``out`` or in ``dead``."""

    @contextlib.contextmanager
    def removal(self, kind: str) -> Iterator[list[str]]:
        """Note what the source has no longer behind the block, while nothing is published."""
        with self.feed:
            before, begin, names = self.present(), self.log_sizes(), list[str]()
            yield names
            after = self.present()
            gone = {number: place for number, place in before.items() if after.get(number) != place}
            if kind.endswith("created again") or kind == "older topic":
                # All is read again, from the first on.
                gone = before
            self.removals.append(Removal(kind, gone, tuple(names), begin))

    def removed(self) -> int:
        """Return the number of messages that the last fault has removed."""
        return len(self.removals[-1].places)

    @property
    def logs(self) -> tuple[Path, Path]:
        """Logs of the route: its output, and what its tasks write."""
        return self.switch.log, self.switch.log.with_name("spark.log")

    def log_sizes(self) -> tuple[int, int]:
        """Return the present sizes of the logs."""
        output, tasks = (log.stat().st_size if log.exists() else 0 for log in self.logs)
        return output, tasks

    @contextlib.contextmanager
    def paused_route(self) -> Iterator[None]:
        """Suspend the processes of the route until the block ends, so that nothing is stored meanwhile."""
        processes = self.switch.all() if self.switch.runs() else []
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            yield
        finally:
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()


class FromNats(Sides):
    """A stream that is read."""

    removing = frozenset({"stream created again", "older store", "purge", "purge with keep", "max_msgs"})

    def start(self, stack: contextlib.ExitStack) -> None:
        super().start(stack)
        self.from_server = stack.enter_context(NatsServer(self.folder / "source"))
        url = self.proxied(stack, self.from_server.port).url
        self.source = f'format: nats, servers: "{url}", stream: IN{self.per_batch}'
        self.read_topic = "in.*"
        create(self.from_server, "IN")

    def faults(self) -> dict[str, Fault]:
        return super().faults() | {
            "source server killed": lambda: killed(self.from_server),
            "source server stopped": lambda: frozen(self.from_server, self.chance),
            "stream created again": self._create_again,
            "older store": self._restore,
            "purge": lambda: self._purge("purge"),
            "purge with keep": lambda: self._purge("purge with keep", keep=self.chance.randrange(1, 500)),
            "max_msgs": self._trim,
        }

    def _create_again(self) -> int:
        with self.removal("stream created again") as names, Connection.open(self.from_server.url) as connection:
            names.append(str(stream_info(connection, "IN")["created"]))
            delete_stream(connection, "IN")
            time.sleep(self.chance.choice([0.0, 0.5, 3.0]))
            names.append(create(self.from_server, "IN"))
        return self.removed()

    def back_up(self) -> None:
        self.from_server.stop()
        shutil.rmtree(self.folder / "backup", ignore_errors=True)
        shutil.copytree(self.from_server.work / "store", self.folder / "backup")
        self.from_server.start()

    def _restore(self) -> int:
        with self.removal("older store") as names:
            with Connection.open(self.from_server.url) as connection:
                names += [str(stream_info(connection, "IN")["created"]), "older data"]
            self.from_server.stop(kill=True)
            shutil.rmtree(self.from_server.work / "store")
            shutil.copytree(self.folder / "backup", self.from_server.work / "store")
            self.from_server.start()
        return self.removed()

    def _purge(self, kind: str, **body: int) -> int:
        with self.removal(kind), Connection.open(self.from_server.url) as connection:
            purge_stream(connection, "IN", **body)
        return self.removed()

    def _trim(self) -> int:
        """Remove the oldest by a limit, for a moment."""
        with self.removal("max_msgs"), Connection.open(self.from_server.url) as connection:
            config = stream_info(connection, "IN")["config"]
            connection.api("STREAM.UPDATE.IN", {**config, "max_msgs": self.chance.randrange(1, 500)})
            connection.api("STREAM.UPDATE.IN", config)
        return self.removed()

    def publish(self, numbers: range) -> None:
        with Connection.open(self.from_server.url) as connection, Publisher(connection) as publisher:
            for number in numbers:
                publisher.publish(f"in.{number % 20}", b"%d" % number, message_id=str(number))
            publisher.flush()

    def present(self) -> dict[int, Place]:
        return {number: (0, sequence) for number, sequence in _rows(self.from_server, "IN")}

    def caught_up(self, checkpoint: Path) -> bool:
        self.forget()
        with Connection.open(self.from_server.url) as connection:
            info = stream_info(connection, "IN")
        offsets, end = committed(checkpoint), info["state"]["last_seq"] + 1
        identity = offsets.identities.get("IN")
        if identity is None:
            return False
        return bool(offsets.sequence("IN") == end and identity.created == info["created"])


class IntoNats(Sides):
    """A stream that is written, which takes each id once."""

    def start(self, stack: contextlib.ExitStack) -> None:
        super().start(stack)
        self.to_server = stack.enter_context(NatsServer(self.folder / "sink"))
        url = self.proxied(stack, self.to_server.port).url
        self.sink, self.written_topic = f'format: nats, servers: "{url}"', "out.x"
        create(self.to_server, "OUT")
        create(self.to_server, "DEAD", "dead")

    def faults(self) -> dict[str, Fault]:
        return super().faults() | {
            "sink server killed": lambda: killed(self.to_server),
            "sink server stopped": lambda: frozen(self.to_server, self.chance),
            "sink stream created again": self._create_sink_again,
        }

    def _create_sink_again(self) -> int:
        with Connection.open(self.to_server.url) as connection:
            with self.paused_route():
                size, seen = -1, stream_info(connection, "OUT")["state"]["messages"]
                while size != seen:
                    # What the route had sent before is still on its way.
                    time.sleep(0.5)
                    size, seen = seen, stream_info(connection, "OUT")["state"]["messages"]
                self.former_sinks.append(self.stored("out"))
                delete_stream(connection, "OUT")
            time.sleep(self.chance.choice([0.0, 0.5, 3.0]))
            create(self.to_server, "OUT")
        return self.former_sinks[-1].total()

    def stored(self, target: str) -> Counter[int]:
        return Counter(number for number, _ in _rows(self.to_server, target.upper()))


def create(server: NatsServer, name: str, subject: str = "") -> str:
    with Connection.open(server.url) as connection:
        config = {"name": name, "subjects": [subject or f"{name.lower()}.>"], "storage": "file"}
        return str(create_stream(connection, {**config, "duplicate_window": 3600 * 10**9})["created"])


def killed(server: NatsServer) -> int:
    server.restart(kill=True)
    return 1


def frozen(server: NatsServer, chance: random.Random) -> int:
    server.pause()
    time.sleep(chance.uniform(0.5, _FROZEN_SECONDS))
    server.resume()
    return 1


def _rows(server: NatsServer, stream: str) -> list[tuple[int, int]]:
    """Return number and sequence of each message of a stream."""
    found: list[tuple[int, int]] = []
    with Connection.open(server.url) as connection:
        state = stream_info(connection, stream)["state"]
        if not state["messages"]:
            return []
        for batch in PullReader(connection, Range(stream, state["first_seq"], state["last_seq"] + 1)).batches():
            numbers = map(int, batch.column("value").to_pylist())
            found += zip(numbers, batch.column("offset").to_pylist(), strict=True)
    return found


class WithBroker(Sides):
    """A broker, which all reach through a proxy."""

    def start(self, stack: contextlib.ExitStack) -> None:
        super().start(stack)
        work = self.folder / "kafka"
        work.mkdir()
        self.broker = KafkaBroker(work, "auto.create.topics.enable=false\n")
        proxy = self.proxied(stack, self.broker.port)
        address = "advertised.listeners=PLAINTEXT://127.0.0.1:"
        properties = self.broker.properties.read_text(encoding="utf-8")
        self.broker.properties.write_text(
            properties.replace(f"{address}{self.broker.port}", f"{address}{proxy.port}"), encoding="utf-8"
        )
        stack.enter_context(self.broker)
        self.options = KafkaOptions.of(self.broker.servers)

    def faults(self) -> dict[str, Fault]:
        return super().faults() | {"broker killed": self._kill, "broker stopped": self._freeze}

    def _kill(self) -> int:
        self.broker.kill()
        time.sleep(2)
        self.broker.start()
        return 1

    def _freeze(self) -> int:
        assert self.broker.process is not None
        self.broker.process.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.5, _FROZEN_SECONDS))
        self.broker.process.send_signal(signal.SIGCONT)
        return 1

    def create_topics(self, **partitions: int) -> None:
        with KafkaAdmin(self.options) as admin:
            for topic, number in partitions.items():
                admin.create_topic(topic, number, {})

    def recreate(self, topic: str, partitions: int, pause: float) -> None:
        with KafkaAdmin(self.options) as admin:
            client: Any = admin._client
            client.delete_topics([topic])[topic].result(20)
            while admin.existing([topic]):
                time.sleep(0.05)
            time.sleep(pause)
            admin.create_topic(topic, partitions, {})

    @staticmethod
    def stored_in(topic: str, options: KafkaOptions) -> Iterator[tuple[int, ArrowBatch]]:
        """Yield the records of a topic, with their partition."""
        with KafkaAdmin(options) as admin:
            ends = admin.ends([(topic, number) for number in admin.describe([topic])[topic].partitions])
        for (name, partition), end in ends.items():
            for batch in RangeReader(options, PartitionRange(name, partition, end.first, end.next)).batches():
                yield partition, batch


class FromKafka(WithBroker):
    """A topic that is read."""

    removing = frozenset({"topic created again", "older topic", "records deleted"})

    def start(self, stack: contextlib.ExitStack) -> None:
        super().start(stack)
        self.source = f'format: kafka, servers: "{self.broker.servers}", topics: in, partitions: 2{self.per_batch}'
        self.read_topic = "in"
        self.create_topics(**{"in": 2})

    def faults(self) -> dict[str, Fault]:
        return super().faults() | {
            "topic created again": self._create_again,
            "older topic": self._restore,
            "records deleted": self._delete_records,
        }

    def _id(self, topic: str) -> str:
        with KafkaAdmin(self.options) as admin:
            return str(admin.describe([topic])[topic].id)

    def _create_again(self) -> int:
        with self.removal("topic created again") as names:
            names.append(self._id("in"))
            self.recreate("in", 2, self.chance.choice([0.0, 0.5, 3.0]))
            names.append(self._id("in"))
        return self.removed()

    def _partitions(self) -> tuple[Path, Path]:
        """Folder of the broker's partitions, and of their copies."""
        return self.broker.work / "log", self.broker.work / "backup"

    def back_up(self) -> None:
        self.broker.kill()
        data, backup = self._partitions()
        for partition in ("in-0", "in-1"):
            shutil.rmtree(backup / partition, ignore_errors=True)
            shutil.copytree(data / partition, backup / partition)
        self.broker.start()

    def _restore(self) -> int:
        with self.removal("older topic") as names:
            names.append("older data")
            self.broker.kill()
            data, backup = self._partitions()
            for partition in ("in-0", "in-1"):
                shutil.rmtree(data / partition)
                shutil.copytree(backup / partition, data / partition)
            self.broker.start()
        return self.removed()

    def _delete_records(self) -> int:
        from confluent_kafka import TopicPartition

        with self.removal("records deleted"), KafkaAdmin(self.options) as admin:
            ends = admin.ends([("in", 0), ("in", 1)])
            positions = [
                TopicPartition(topic, number, self.chance.randint(max(end.first, end.next - 200), end.next))
                for (topic, number), end in ends.items()
            ]
            client: Any = admin._client
            for done in client.delete_records(positions).values():
                done.result(20)
        return self.removed()

    def publish(self, numbers: range) -> None:
        def refuse(index: int, reason: object) -> None:
            raise TurnoutError(f"{numbers[index]}: {reason}")

        texts = [b"%d" % number for number in numbers]
        with KafkaProducer(self.options) as producer:
            producer.publish(KafkaMessages(["in"] * len(texts), texts, texts), refuse)
            producer.flush()

    def present(self) -> dict[int, Place]:
        found: dict[int, Place] = {}
        for partition, batch in self.stored_in("in", self.options):
            offsets = batch.column("offset").to_pylist()
            numbers = map(int, batch.column("value").to_pylist())
            found |= zip(numbers, zip(itertools.repeat(partition), offsets))  # noqa: B905 - the first has no end
        return found

    def caught_up(self, checkpoint: Path) -> bool:
        self.forget()
        with KafkaAdmin(self.options) as admin:
            info, ends = admin.describe(["in"])["in"], admin.ends([("in", 0), ("in", 1)])
        offsets = committed(checkpoint)
        if offsets.batch is None:
            return False
        at_end = all(offsets.sequence(f"in:{number}") == end.next for (_, number), end in ends.items())
        return at_end and offsets.topic_ids.get("in") == info.id


class IntoKafka(WithBroker):
    """A topic that is written, in transactions if they are promised."""

    def start(self, stack: contextlib.ExitStack) -> None:
        super().start(stack)
        self.sink = f'format: kafka, servers: "{self.broker.servers}", exactlyOnce: {str(self.once).lower()}'
        self.written_topic = "out"
        self.create_topics(out=3, dead=1)

    def faults(self) -> dict[str, Fault]:
        own: dict[str, Fault] = {"sink topic created again": self._create_sink_again}
        return super().faults() | own | ({"transaction left open": self._leave_open} if self.once else {})

    def _create_sink_again(self) -> int:
        with self.paused_route():
            time.sleep(0.5)
            self.former_sinks.append(self.stored("out"))
            # Those of a transaction that is open go with the topic, and the transaction is committed without them.
            self.in_open_transactions |= self._stored("out", self._uncommitted()).keys()
            self.recreate("out", 3, self.chance.choice([0.0, 0.5]))
        return self.former_sinks[-1].total()

    def _uncommitted(self) -> KafkaOptions:
        properties = {**self.options.properties, "isolation.level": "read_uncommitted"}
        return replace(self.options, properties=properties)

    def _open_transaction(self) -> bool:
        places = [("out", number) for number in range(3)]
        with KafkaAdmin(self.options) as committed_only, KafkaAdmin(self._uncommitted()) as everything:
            return committed_only.ends(places) != everything.ends(places)

    def _leave_open(self) -> int:
        """Kill the run when a transaction is open."""
        until = time.monotonic() + 20
        is_open = False
        while self.switch.runs() and not is_open and time.monotonic() < until:
            is_open = self._open_transaction()
        self.switch.kill()
        return int(is_open)

    def stored(self, target: str) -> Counter[int]:
        return self._stored(target, self.options)

    def settle(self) -> None:
        """Wait until no transaction is open: consumers see nothing behind one."""
        until = time.monotonic() + _TRANSACTION_SECONDS
        while self._open_transaction():
            assert time.monotonic() < until, "a transaction stays open"
            time.sleep(1)

    def _stored(self, topic: str, options: KafkaOptions) -> Counter[int]:
        counts: Counter[int] = Counter()
        for _, batch in self.stored_in(topic, options):
            counts.update(map(int, batch.column("value").to_pylist()))
        return counts


class MicroBatches(FromNats, IntoNats):
    mode = "micro-batch"


class LowLatency(FromNats, IntoNats):
    mode = "low latency"
    trigger = _OPEN


class KafkaSides(FromKafka, IntoKafka):
    mode = "Kafka exactly once"


class KafkaLowLatency(FromKafka, IntoKafka):
    mode = "Kafka low latency, exactly once"
    trigger = _OPEN


class KafkaAtLeastOnce(FromKafka, IntoKafka):
    mode = "Kafka low latency, at least once"
    trigger = _OPEN
    once = False


class KafkaToNats(FromKafka, IntoNats):
    mode = "Kafka to NATS, low latency"
    trigger = _OPEN


class NatsToKafka(FromNats, IntoKafka):
    mode = "NATS to Kafka, low latency"
    trigger = _OPEN
    once = False


@dataclass
class Soak:
    """The route, its supervisor and the feed of its source.

    Attributes:
        stored: messages that the source has acknowledged.
        unsure: messages without an acknowledgement: they may be there.
        effects: number of processes, connections or messages that each kind of fault has affected.
    """

    sides: Sides
    switch: Switch
    chance: random.Random
    numbers: Iterator[int] = field(default_factory=itertools.count)
    stored: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    lenient: bool = False
    left: list[str] = field(default_factory=list)

    def disturbed(self, count: int) -> None:
        """Publish so many messages; a fault happens meanwhile."""
        kinds = self.sides.faults() | {"run killed": self._kill_run, "worker killed": self._kill_workers}
        # Each kind before any comes again.
        self.left = self.left or self.chance.sample(list(kinds), len(kinds))
        kind = self.left.pop()
        self.catch_up()
        if kind in ("older store", "older topic"):
            self.sides.back_up()
            # The position must be behind the copy: of messages that the route never saw the copy has no trace.
            self.calm(count // 4)
            count -= count // 4
        removing = kind in self.sides.removing
        feed = threading.Thread(target=self._publish, args=(count,))
        stopped = removing and self.chance.random() < 0.5
        if stopped:
            self.switch.kill()
        feed.start()
        time.sleep(self.chance.uniform(0.2, 0.9) * _ROUND_SECONDS)
        name = f"{kind}, run killed before" if stopped else kind
        self.counts[name] += 1
        with contextlib.suppress(psutil.NoSuchProcess):
            self.effects[name] += kinds[kind]()
        while feed.is_alive():
            self._keep_running()
            feed.join(0.2)
        # A stream that is empty says nothing about the position.
        self.calm(5)
        for removal in self.sides.removals:
            if not removal.printed:
                texts = [log.read_bytes()[begin:] for log, begin in zip(self.sides.logs, removal.begin, strict=True)]
                removal.printed = b"".join(texts).decode(errors="replace")
                self.counts["said"] += "failOnDataLoss" in removal.printed

    def calm(self, count: int) -> None:
        """Publish so many messages, and wait until they are delivered."""
        self._publish(count)
        self.catch_up()

    def _kill_run(self) -> int:
        ran = self.switch.runs()
        self.switch.kill()
        return int(ran)

    def _kill_workers(self) -> int:
        """Kill each worker, as soon as there is one: of several, one may be without a task."""
        until = time.monotonic() + _CAUGHT_UP_SECONDS
        while not (workers := self.switch.workers()) and time.monotonic() < until:
            self._keep_running()
            time.sleep(0.05)
        for worker in workers:
            worker.kill()
        return len(workers)

    def catch_up(self) -> None:
        """Wait until the checkpoint has the end of the source, and start the route whenever it does not run."""
        until = time.monotonic() + _CAUGHT_UP_SECONDS
        while True:
            self._keep_running()
            with contextlib.suppress(TurnoutError):
                if self.sides.caught_up(self.switch.checkpoint):
                    break
            assert time.monotonic() < until, (dict(self.counts), self.switch.said()[-4000:])
            time.sleep(0.2)
        self.lenient = False

    def _keep_running(self) -> None:
        if self.switch.runs():
            return
        if self.switch.log.exists():
            self._note_end()
        write_route(self.switch.checkpoint.parent, self.sides.text(lenient=self.lenient))
        self.switch.start()

    def _note_end(self) -> None:
        """Count how the run ended; a loss that it names is continued without, as an operator decides."""
        output, code = self.switch.said(), self.switch.wait(0)
        if code < 0:
            self.ends[f"signal {-code}"] += 1
            return
        last = output.rstrip().rpartition("\n")[2]
        assert "Traceback" not in output, output[-4000:]
        assert code == 1, (code, output[-4000:])
        assert last.startswith("turnout: route soak failed: "), output[-4000:]
        if "failOnDataLoss" in last:
            self.lenient = True
        self.ends[re.sub(r"[\d,.:+-]*\d", "N", last.removeprefix("turnout: route soak failed: "))[:90]] += 1

    def _publish(self, count: int) -> None:
        piece, begun, done = max(5, count // _PIECES), time.monotonic(), 0
        while done < count:
            time.sleep(max(0.0, begun + done / count * _ROUND_SECONDS - time.monotonic()))
            first = next(self.numbers)
            numbers = range(first, first + min(piece, count - done))
            self.numbers = itertools.count(numbers.stop)
            with self.sides.feed:
                try:
                    self.sides.publish(numbers)
                except (TurnoutError, OSError):
                    self.unsure |= set(numbers)
                    continue
            self.stored |= set(numbers)
            done += len(numbers)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(MicroBatches, id="micro-batch"),
        pytest.param(LowLatency, id="low-latency"),
        pytest.param(KafkaSides, id="kafka", marks=pytest.mark.kafka),
        pytest.param(KafkaLowLatency, id="kafka-low-latency", marks=pytest.mark.kafka),
        pytest.param(KafkaAtLeastOnce, id="kafka-at-least-once", marks=pytest.mark.kafka),
        pytest.param(KafkaToNats, id="kafka-to-nats", marks=pytest.mark.kafka),
        pytest.param(NatsToKafka, id="nats-to-kafka", marks=pytest.mark.kafka),
    ],
)
def test_nothing_is_lost_or_doubled_in_silence(tmp_path: Path, kind: type[Sides]) -> None:
    """What the source still has is delivered, once into each sink that promises it; what it lost unread was said."""
    messages = int(os.environ.get("TURNOUT_SOAK_MESSAGES", "200000"))
    faults = int(os.environ.get("TURNOUT_SOAK_FAULTS", "20"))
    seed = int(os.environ.get("TURNOUT_SOAK_SEED", str(random.randrange(10**6))))
    minutes = float(os.environ.get("TURNOUT_SOAK_MINUTES", "90"))
    print(f"{kind.mode}: seed {seed}, {messages:,} messages, {faults} faults")
    chance, count = random.Random(seed), messages // faults
    with contextlib.ExitStack() as stack:
        sides = kind(chance, tmp_path, count)
        try:
            sides.start(stack)
        except TurnoutError as problem:
            pytest.skip(f"no Kafka broker: {problem}")
        route = write_route(tmp_path, sides.text(lenient=False))
        switch = stack.enter_context(Switch(tmp_path, route, env={"SPARK_LOCAL_IP": "127.0.0.1"}))
        sides.switch = switch
        soak = Soak(sides, switch, chance)
        soak.calm(count // 4)
        until = time.monotonic() + minutes * 60
        for _ in range(faults):
            if time.monotonic() < until:
                soak.disturbed(count)
        switch.signal_group(signal.SIGTERM)
        assert switch.wait(120) == 0, switch.said()[-4000:]
        if isinstance(sides, IntoKafka):
            sides.settle()
        sinks, letters, present = [*sides.former_sinks, sides.stored("out")], sides.stored("dead"), sides.present()
    delivered: set[int] = set().union(*sinks)
    missing = soak.stored - delivered - letters.keys() - sides.in_open_transactions
    copies = Counter(present.keys())
    for removal in sides.removals:
        copies.update(removal.places.keys())
    # A server that is killed may have messages again that it had removed before: what was said of them stays true.
    said_of = set().union(*((missing & removal.places.keys()) - removal.unsaid(missing) for removal in sides.removals))
    unsaid = {(removal.kind, number) for removal in sides.removals for number in removal.unsaid(missing) - said_of}
    lost = ((missing & present.keys()) - said_of) | {number for _, number in unsaid}
    lost |= missing - set().union(*(removal.places.keys() for removal in sides.removals))
    doubled = {number for sink in sinks for number, times in sink.items() if times > max(1, copies[number])}
    once = sides.once
    said = soak.counts.pop("said", 0)
    row = {
        "mode": kind.mode,
        "messages": f"{len(soak.stored):,}",
        "faults": sum(soak.counts.values()),
        "delivered": f"{len(delivered & soak.stored):,}",
        "dead letters": f"{len(letters):,}",
        "gone before they were read": f"{len(missing):,}",
        "said": said,
        "lost in silence": len(lost),
        "doubled in silence" if once else "delivered twice": len(doubled),
    }
    for cells in (row, ["---"] * len(row), row.values()):
        print(f"| {' | '.join(map(str, cells))} |")
    for name, times in sorted(soak.counts.items()):
        print(f"{times} × {name}: {soak.effects[name]:,} affected")
    print(f"{len(soak.unsure):,} without acknowledgement; ends of the run: {dict(soak.ends)}")

    assert not [name for name in soak.counts if not soak.effects[name]], "faults without an effect"
    assert not lost, (sorted(lost)[:20], Counter(name for name, _ in unsaid))
    assert not doubled or not once, sorted(doubled)[:20]
