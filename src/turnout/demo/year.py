"""The demo's job: publish a year of flights, run the route over them, and check the books against the server's."""

from __future__ import annotations

import os
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from turnout.base.files import bundled, private_folder
from turnout.demo.flights import CUT_OFF, FLIGHTS, check_stop, publish_flights, streams, subscribe
from turnout.demo.traffic import Traffic
from turnout.embedded import NatsServer
from turnout.engine.counts import Counts
from turnout.nats.wire import Connection, PullReader, Range, create_stream, stream_info
from turnout.records.types import Fields
from turnout.routes import Route
from turnout.routes.document import TriggerPart
from turnout.runtime.offsets import Progress, RunResult
from turnout.spark.running.job import run
from turnout.spark.session.build import route_session
from turnout.subscriptions import open_store

_TOP = 10


@dataclass(frozen=True, slots=True)
class Ledger:
    """Content of the server after a run.

    Attributes:
        source: messages of the stream FLIGHTS.
        messages: messages of the stream DELIVERIES.
        delivered: different source records among these, told apart by their message ids; None in Kafka, which has none.
        dead: messages of the stream DEAD.
        destinations: the subjects with the most deliveries, and how many each has.
        matches: rows of a table of matches, which count among the run's messages.
    """

    source: int
    messages: int
    delivered: int | None
    dead: int
    destinations: tuple[tuple[str, int], ...]
    matches: int = 0

    def disagreements(self, counts: Counts) -> Iterator[str]:
        """Yield the differences between the run's counts and the server's, as sentences."""
        pairs = (
            ("records read", counts.read, "messages in FLIGHTS", self.source),
            ("messages sent", counts.messages - self.matches, "messages in DELIVERIES", self.messages),
            ("records delivered", counts.delivered, "records seen in DELIVERIES", self.delivered),
            ("records dead-lettered", counts.dead_lettered, "messages in DEAD", self.dead),
        )
        for ours, our_number, theirs, their_number in pairs:
            if their_number is not None and our_number != their_number:
                yield f"{ours}: {our_number:,}, but {theirs}: {their_number:,}"


def read_ledger(connection: Connection) -> Ledger:
    """Count the content of the server; the message id of every delivery is read."""
    states = {name: stream_info(connection, name)["state"] for name in ("FLIGHTS", "DELIVERIES", "DEAD")}
    records: set[bytes] = set()
    topics: Counter[str] = Counter()
    whole_stream = Range("DELIVERIES", 1, states["DELIVERIES"]["last_seq"] + 1)
    for batch in PullReader(connection, whole_stream).batches():
        # An id is <stream>:<sequence>:<hash>; the first two parts name the record.
        records.update(key.rpartition(b":")[0] for key in batch.column("key").to_pylist())
        topics.update(batch.column("topic").to_pylist())
    return Ledger(
        source=states["FLIGHTS"]["messages"],
        messages=states["DELIVERIES"]["messages"],
        delivered=len(records),
        dead=states["DEAD"]["messages"],
        destinations=tuple(topics.most_common(_TOP)),
    )


GENERATED = 10_000
"""Number of subscriptions generated from the data."""

_ROUTE = "flights.yaml"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of the demo.

    Attributes:
        run: figures of the route's run.
        ledger: figures of the server.
        published: messages that the server took before the run.
        publish_seconds: how long that took.
        subscriptions: how many were stored.
        work: folder to keep everything in, if given.
    """

    run: RunResult
    ledger: Ledger
    published: int
    publish_seconds: float
    subscriptions: int
    work: Path | None = None
    disagreements: tuple[str, ...] = field(default=())

    @property
    def conserved(self) -> bool:
        """True if no record was lost, by the run's counts and by the server's."""
        return self.run.counts.conserved and not self.disagreements


def route_file() -> Path:
    """Return the example route."""
    return bundled("examples") / _ROUTE


class YearDemo(ABC):
    """Steps of the demo that are the same on every kind of server.

    Args:
        work: an empty folder for the server's store, the subscriptions and the checkpoint.
        limit: use the first *limit* flights only.
        generated: how many subscriptions to draw from the data.
        keep: leave the folder where it is.
    """

    def __init__(self, work: Path, *, limit: int | None = None, generated: int = GENERATED, keep: bool = False) -> None:
        self.work = work
        self.limit = limit
        self.generated = generated
        self.keep = keep
        self.published = 0
        self.publish_seconds = 0.0
        self.subscriptions = 0

    @property
    def total(self) -> int:
        """Approximate number of messages to publish: truncated ones are counted with the whole year only."""
        return FLIGHTS + CUT_OFF if self.limit is None else min(self.limit, FLIGHTS)

    @property
    def store(self) -> str:
        """URL of the store of subscriptions."""
        return f"sqlite:///{(self.work / 'subscriptions.db').absolute()}"

    @abstractmethod
    def route(self) -> Route:
        """Return the route, with this demo's servers and store."""

    @abstractmethod
    def ledger(self) -> Ledger:
        """Count the server's messages."""

    def run(
        self, *, master: str, stop: threading.Event, on_progress: Callable[[Progress], None] | None = None
    ) -> DemoResult:
        """Run the route to its end, and read the server's books.

        Raises:
            TurnoutError: the run failed, or was stopped before its end.
        """
        check_stop(stop)
        route = self.route()
        with route_session(route, master=master, log=self.work / "spark.log") as spark:
            result = run(
                route, spark, once=True, checkpoint=self.work / "checkpoint", stop=stop, on_progress=on_progress
            )
        check_stop(stop)
        return self.checked(result)

    def checked(self, result: RunResult) -> DemoResult:
        """Compare the result of a run with the server's content."""
        ledger = self.ledger()
        return DemoResult(
            run=result,
            ledger=ledger,
            published=self.published,
            publish_seconds=self.publish_seconds,
            subscriptions=self.subscriptions,
            work=self.work if self.keep else None,
            disagreements=tuple(ledger.disagreements(result.counts)),
        )


class Demo(YearDemo):
    """The demo, step by step; `start` and `close` frame the others. See `YearDemo` for its arguments."""

    def __init__(self, work: Path, *, limit: int | None = None, generated: int = GENERATED, keep: bool = False) -> None:
        super().__init__(work, limit=limit, generated=generated, keep=keep)
        self.server = NatsServer(work / "nats")

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the values of the route file's variables."""
        return {
            **os.environ,
            "NATS_URL": self.server.url,
            "SUBSCRIPTIONS": self.store,
        }

    def __enter__(self) -> Self:
        """Start the server and make its streams."""
        shutil.rmtree(self.work, ignore_errors=True)
        private_folder(self.work)
        try:
            self.server.start()
            with Connection.open(self.server.url) as connection:
                for config in streams():
                    create_stream(connection, config)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server, and remove the folder unless it is to be kept."""
        self.server.stop()
        if not self.keep:
            shutil.rmtree(self.work, ignore_errors=True)

    def publish(self, on_progress: Callable[[int], None], stop: threading.Event) -> None:
        """Fill the stream FLIGHTS."""
        begun = time.monotonic()
        with Connection.open(self.server.url) as connection:
            self.published = publish_flights(connection, self.limit, on_progress, stop)
        self.publish_seconds = time.monotonic() - begun

    def subscribe(self) -> None:
        """Fill the store of subscriptions."""
        with closing(open_store(self.store)) as store:
            self.subscriptions = subscribe(store, self.generated, self.limit)

    def route(self) -> Route:
        """Return the route, with this demo's server and store."""
        return Route.load(route_file(), self.variables)

    def ledger(self) -> Ledger:
        """Count the server's messages."""
        with Connection.open(self.server.url) as connection:
            return read_ledger(connection)


RATE: Final = 2_000
"""Messages per second."""

_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class LiveResult:
    """Result of the live demo.

    Attributes:
        demo: figures of the run and the server.
        ages: number of the messages that arrived, and percentiles of their ages in milliseconds.
    """

    demo: DemoResult
    ages: Fields


class LiveDemo:
    """Live part of a demo that has its server, its streams and its subscriptions.

    Args:
        demo: the demo.
        seconds: publish for so long; None for the whole year.
    """

    def __init__(self, demo: Demo, seconds: int | None = None) -> None:
        self._demo = demo
        self.count = demo.total if seconds is None else min(demo.total, seconds * RATE)

    def route(self) -> Route:
        """Return the demo's route with ``latency: low``."""
        route = self._demo.route()
        source = route.source.model_copy(update={"max_records_per_trigger": None})
        return replace(route, source=source, trigger=TriggerPart(latency="low"))

    def run(
        self,
        *,
        master: str,
        stop: threading.Event,
        on_ready: Callable[[], None],
        on_second: Callable[[Fields], None],
    ) -> LiveResult:
        """Run the route, publish when it is ready, and listen.

        Args:
            master: Spark's.
            stop: ends it before all is published.
            on_ready: called before the first message is published.
            on_second: called about once a second with the ages so far, and of the last second.

        Raises:
            TurnoutError: the run failed, nothing was delivered, or *stop* was set before anything was published.
        """
        demo, route, ended = self._demo, self.route(), threading.Event()
        publisher = ["-m", "turnout.demo.traffic", "send", demo.server.url, str(RATE), str(self.count)]
        with (
            # Its frames are made while Spark starts.
            Traffic(publisher, demo.server.url, "deliver.>") as traffic,
            route_session(route, master=master, log=demo.work / "spark.log") as spark,
            ThreadPoolExecutor(1, thread_name_prefix="turnout-live") as threads,
        ):
            ready = threading.Event()
            running = threads.submit(
                run, route, spark, checkpoint=demo.work / "checkpoint", stop=ended, on_ready=ready.set
            )
            try:
                _await(ready, running, stop)
                on_ready()
                begun = time.monotonic()
                ages = traffic.measured(on_second, stop)
                demo.publish_seconds = time.monotonic() - begun
            finally:
                ended.set()
            result = running.result()
        checked = demo.checked(result)
        return LiveResult(replace(checked, published=checked.ledger.source), ages)


def _await(ready: threading.Event, running: Future[RunResult], stop: threading.Event) -> None:
    """Wait until the run is ready; raise its failure."""
    while not ready.wait(_LOOK_SECONDS):
        check_stop(stop)
        if running.done():
            running.result()
