"""The demo's job in Kafka: a topic of Avro records, past the subscriptions, into Kafka exactly once."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from turnout.bundle import bundled
from turnout.demo.flights import CUT_OFF, FLIGHTS, FlightMessage, messages
from turnout.demo.kafka_broker import KafkaBroker
from turnout.demo.registry import DemoRegistry, demo_registry
from turnout.demo.stage import check_stop, subscribe
from turnout.demo.year import GENERATED, DemoResult, Ledger
from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.counting import count_records
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.private_files import private_folder
from turnout.routes import Route
from turnout.runtime.progress import Progress, RunResult
from turnout.spark.running.job import run
from turnout.spark.session.build import route_session
from turnout.subscriptions import open_store

SOURCE: Final = "flights"
DEAD: Final = "dead.flights"
_PARTITIONS: Final = 4
_AT_ONCE: Final = 2_000
_TOP: Final = 10
_TEXTS: Final = ("carrier", "tailnum", "origin", "dest", "time_hour", "airline")
_NUMBERS: Final = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "flight", "air_time", "distance", "hour", "minute",
)  # fmt: skip

SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "nycflights13",
        "fields": [
            {"name": name, "type": ["null", "string" if name in _TEXTS else "int"], "default": None}
            for name in (*_NUMBERS, *_TEXTS)
        ],
    }
)
"""Avro schema of a flight: each field may be unknown."""


def encode(flight: Mapping[str, Any], schema_id: int) -> bytes:
    """Return a flight in Confluent's wire format: a zero byte, the schema's id, and an Avro datum.

    >>> encode({"year": 2013}, 7)[:8].hex(" ")
    '00 00 00 00 07 02 ba 1f'
    """
    parts = [b"\0", schema_id.to_bytes(4, "big")]
    for name in (*_NUMBERS, *_TEXTS):
        value = flight.get(name)
        if value is None:
            parts.append(b"\0")
        elif name in _TEXTS:
            raw = str(value).encode()
            parts += [b"\x02", _long(len(raw)), raw]
        else:
            parts += [b"\x02", _long(int(value))]
    return b"".join(parts)


def _long(number: int) -> bytes:
    """Return a number as Avro has it: zigzag, seven bits in a byte."""
    left = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*encoded, left])


class KafkaDemo:
    """The demo in Kafka, step by step; a broker from Maven and a registry are its own.

    Args:
        work: an empty folder for the broker's log, the subscriptions and the checkpoint.
        limit: use the first *limit* flights only.
        generated: how many subscriptions to draw from the data.
        keep: leave the folder where it is.

    Raises:
        TurnoutError: Maven is not there, or cannot fetch the broker.
    """

    def __init__(self, work: Path, *, limit: int | None = None, generated: int = GENERATED, keep: bool = False) -> None:
        self.work = work
        self.limit = limit
        self.generated = generated
        self.keep = keep
        self.published = 0
        self.publish_seconds = 0.0
        self.subscriptions = 0
        self.destinations: tuple[str, ...] = ()
        self._resources = ExitStack()

    @property
    def total(self) -> int:
        """Approximate number of records to publish."""
        return FLIGHTS + CUT_OFF if self.limit is None else min(self.limit, FLIGHTS)

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the values of the route file's variables."""
        return {
            **os.environ,
            "KAFKA_SERVERS": self.broker.servers,
            "REGISTRY_URL": self.registry.url,
            "SUBSCRIPTIONS": f"sqlite:///{(self.work / 'subscriptions.db').absolute()}",
        }

    def __enter__(self) -> Self:
        """Start the broker and the registry."""
        shutil.rmtree(self.work, ignore_errors=True)
        private_folder(self.work)
        private_folder(self.work / "kafka")
        try:
            self.broker = self._resources.enter_context(KafkaBroker(self.work / "kafka"))
            self.registry: DemoRegistry = self._resources.enter_context(demo_registry())
        except BaseException:
            self.__exit__()
            raise
        self.options = KafkaOptions.of(self.broker.servers)
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()
        if not self.keep:
            shutil.rmtree(self.work, ignore_errors=True)

    def publish(self, on_progress: Callable[[int], None], stop: threading.Event) -> None:
        """Fill the topic of flights.

        Raises:
            TurnoutError: the broker refused one, or *stop* was set before the end.
        """
        begun, left = time.monotonic(), messages(self.limit)
        schema_id = self.registry.register(SCHEMA)
        with KafkaAdmin(self.options) as admin:
            admin.create_topic(SOURCE, _PARTITIONS, {})
        with KafkaProducer(self.options) as producer:
            while some := list(islice(left, _AT_ONCE)):
                producer.publish(_batch(some, schema_id), _refused)
                self.published += len(some)
                on_progress(self.published)
                check_stop(stop)
            producer.flush()
        self.publish_seconds = time.monotonic() - begun

    def subscribe(self) -> None:
        """Fill the store of subscriptions, and create the topics that they name."""
        store = open_store(self.variables["SUBSCRIPTIONS"])
        try:
            self.subscriptions = subscribe(store, self.generated, self.limit)
            named = {topic for subscription in store.snapshot() for topic in subscription.destinations}
        finally:
            store.close()
        self.destinations = tuple(sorted(named))
        with KafkaAdmin(self.options) as admin, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda topic: admin.create_topic(topic, 1, {}), (*self.destinations, DEAD)))

    def run(
        self, *, master: str, stop: threading.Event, on_progress: Callable[[Progress], None] | None = None
    ) -> DemoResult:
        """Run the route to its end, and count the broker's records.

        Raises:
            TurnoutError: the run failed, or was stopped before its end.
        """
        check_stop(stop)
        route = Route.load(bundled("examples") / "flights-kafka.yaml", self.variables)
        with route_session(route, master=master, log=self.work / "spark.log") as spark:
            result = run(
                route, spark, once=True, checkpoint=self.work / "checkpoint", stop=stop, on_progress=on_progress
            )
        check_stop(stop)
        return self._checked(result)

    def _checked(self, result: RunResult) -> DemoResult:
        counts = count_records(self.options, [SOURCE, DEAD, *self.destinations])
        source, dead = counts.pop(SOURCE), counts.pop(DEAD)
        largest = sorted(counts.items(), key=lambda item: -item[1])[:_TOP]
        ledger = Ledger(source, sum(counts.values()), None, dead, tuple(largest))
        return DemoResult(
            run=result,
            ledger=ledger,
            published=self.published,
            publish_seconds=self.publish_seconds,
            subscriptions=self.subscriptions,
            work=self.work if self.keep else None,
            disagreements=tuple(ledger.disagreements(result.counts)),
        )


def _batch(some: Sequence[FlightMessage], schema_id: int) -> KafkaMessages:
    return KafkaMessages(
        [SOURCE] * len(some),
        list(_values(some, schema_id)),
        [message.subject.encode() for message in some],
        [[(name, text.encode()) for name, text in message.headers] for message in some],
    )


def _values(some: Sequence[FlightMessage], schema_id: int) -> Iterator[bytes]:
    """Yield the values of flights; what is cut off as JSON is cut off as Avro."""
    whole = b""
    for message in some:
        try:
            whole = encode(json.loads(message.payload), schema_id)
        except ValueError:
            yield whole[: len(whole) // 2] or b"\0"
        else:
            yield whole


def _refused(_index: int, reason: StreamError) -> None:
    raise reason
