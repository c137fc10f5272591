"""The demo's job in Kafka: a topic of Avro records, past the subscriptions, into Kafka exactly once."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Final, Self

from turnout.base.files import bundled, private_folder
from turnout.codecs.avro.codec import Plan
from turnout.codecs.avro.types import parse_schema
from turnout.codecs.schema_registry.codec import frame
from turnout.demo.flights import NUMBERS, TEXTS, FlightMessage, check_stop, messages, subscribe
from turnout.demo.kafka_broker import DemoRegistry, KafkaBroker, demo_registry
from turnout.demo.year import GENERATED, Ledger, YearDemo
from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin, count_records
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.records import Block
from turnout.records.types import Fields
from turnout.routes import Route
from turnout.subscriptions import open_store

SOURCE: Final = "flights"
DEAD: Final = "dead.flights"
_PARTITIONS: Final = 4
_BATCH_RECORDS: Final = 2_000
_TOP: Final = 10

SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "nycflights13",
        "fields": [
            {"name": name, "type": ["null", "string" if name in TEXTS else "int"], "default": None}
            for name in (*NUMBERS, *TEXTS)
        ],
    }
)
"""Avro schema of a flight: each field may be unknown."""

_PLAN: Final = Plan(parse_schema(SCHEMA))


def encode(flights: Sequence[Fields], schema_id: int) -> list[bytes]:
    """Return flights in Confluent's wire format: a zero byte, the schema's id, and an Avro datum.

    >>> [text[:8].hex(" ") for text in encode([{"year": 2013}], 7)]
    ['00 00 00 00 07 02 ba 1f']
    """
    columns = {
        name: [None if (value := flight.get(name)) is None else convert(value) for flight in flights]
        for names, convert in ((NUMBERS, int), (TEXTS, str))
        for name in names
    }
    return frame(schema_id, _PLAN.encode(Block(len(flights), _PLAN.schema, columns=columns)))


class KafkaDemo(YearDemo):
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
        super().__init__(work, limit=limit, generated=generated, keep=keep)
        self.destinations: tuple[str, ...] = ()
        self._resources = ExitStack()

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the values of the route file's variables."""
        return {
            **os.environ,
            "KAFKA_SERVERS": self.broker.servers,
            "REGISTRY_URL": self.registry.url,
            "SUBSCRIPTIONS": self.store,
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
        begun, remaining = time.monotonic(), messages(self.limit)
        schema_id = self.registry.register(SCHEMA)
        with KafkaAdmin(self.options) as admin:
            admin.create_topic(SOURCE, _PARTITIONS, {})
        with KafkaProducer(self.options) as producer:
            while batch := list(islice(remaining, _BATCH_RECORDS)):
                producer.publish(_batch(batch, schema_id), _refused)
                self.published += len(batch)
                on_progress(self.published)
                check_stop(stop)
            producer.flush()
        self.publish_seconds = time.monotonic() - begun

    def subscribe(self) -> None:
        """Fill the store of subscriptions, and create the topics that they name."""
        with closing(open_store(self.store)) as store:
            self.subscriptions = subscribe(store, self.generated, self.limit)
            named = {topic for subscription in store.snapshot() for topic in subscription.destinations}
        self.destinations = tuple(sorted(named))
        with KafkaAdmin(self.options) as admin, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda topic: admin.create_topic(topic, 1, {}), (*self.destinations, DEAD)))

    def route(self) -> Route:
        """Return the route, with this demo's broker, registry and store."""
        return Route.load(bundled("examples") / "flights-kafka.yaml", self.variables)

    def ledger(self) -> Ledger:
        """Count the broker's records."""
        counts = count_records(self.options, [SOURCE, DEAD, *self.destinations])
        source, dead = counts.pop(SOURCE), counts.pop(DEAD)
        largest = sorted(counts.items(), key=lambda item: -item[1])[:_TOP]
        return Ledger(source, sum(counts.values()), None, dead, tuple(largest))


def _batch(batch: Sequence[FlightMessage], schema_id: int) -> KafkaMessages:
    return KafkaMessages(
        [SOURCE] * len(batch),
        list(_values(batch, schema_id)),
        [message.subject.encode() for message in batch],
        [[(name, text.encode()) for name, text in message.headers] for message in batch],
    )


def _values(batch: Sequence[FlightMessage], schema_id: int) -> Iterator[bytes]:
    """Yield the values of flights; truncated JSON becomes truncated Avro."""
    flights: list[Fields | None] = []
    for message in batch:
        try:
            flights.append(json.loads(message.payload))
        except ValueError:
            flights.append(None)
    written = iter(encode([flight for flight in flights if flight is not None], schema_id))
    whole = b""
    for flight in flights:
        if flight is None:
            yield whole[: len(whole) // 2] or b"\0"
        else:
            whole = next(written)
            yield whole


def _refused(_index: int, reason: StreamError) -> None:
    raise reason
