"""A route end to end: flights, none of them twice, through examples/flights.yaml past 10,000 subscriptions."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import pyarrow as pa

from benchmarks._flights import publish, publish_apart, supply
from benchmarks.harness import Case, Options, Result, Setup, Supply, cpu_seconds, rates
from turnout.demo.flights import FlightMessage, streams, subscribe
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.engine import Program, pieces
from turnout.engine import Result as EngineResult
from turnout.engine.reading import AT_ONCE, batch_of
from turnout.errors import StreamError
from turnout.nats.wire import Connection, PullReader, Range, create_stream, delete_stream, stream_info
from turnout.routes import Route
from turnout.runtime.offsets import Progress
from turnout.runtime.publishing import Publishers
from turnout.spark.endpoints import endpoint_of
from turnout.spark.running import job
from turnout.spark.session.build import route_session
from turnout.subscriptions import open_store
from turnout.subscriptions.index import Index

_ROUNDS = 5
SUBSCRIPTIONS = 10_000
RECORDS = 300_000
CORES = 2


def cases(options: Options) -> Iterator[Case]:
    """The route as a whole, and the stages of its engine."""
    records = options.rows(RECORDS, 20_000)
    with flights_server(1_000 if options.quick else SUBSCRIPTIONS) as (server, environment, work):
        route = Route.load(route_file(), environment)
        yield Case("whole", lambda: [whole(route, work, server, records)])
        yield Case("stages", lambda: _stages(route, server, supply(), min(records, 20_000)))


@contextmanager
def flights_server(subscriptions: int) -> Iterator[tuple[NatsServer, dict[str, str], Path]]:
    """A server with the example's streams, a store of subscriptions, and a folder; and what a route has to know."""
    with (
        tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder,
        NatsServer(Path(folder) / "nats") as server,
    ):
        store = f"sqlite:///{Path(folder) / 'subscriptions.db'}"
        # In another process: making them leaves 100 MB behind, and the memory of this one is measured.
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            process.submit(_subscribe, store, subscriptions).result()
        empty_outputs(server)
        yield server, {"NATS_URL": server.url, "SUBSCRIPTIONS": store}, Path(folder)


def _subscribe(store: str, subscriptions: int) -> None:
    with open_store(store) as opened:
        subscribe(opened, subscriptions)


def empty_outputs(server: NatsServer) -> None:
    """Create the output streams again: a purged one would still know all ids."""
    with Connection.open(server.url) as connection:
        for config in streams()[1:]:
            with suppress(StreamError):
                delete_stream(connection, str(config["name"]))
            create_stream(connection, config)


def whole(route: Route, work: Path, server: NatsServer, records: int, turn: int = 0) -> Result:
    """The route as `turnout run --once` runs it, from the beginning of the first micro-batch.

    Each *turn* has records of its own.

    In that the workers begin and learn the values; ``after_first_batch`` tells what it does from then on. Processor
    time is that of this process, the JVM and the workers, without the server's.
    """
    reports: list[tuple[Progress, _Cpu]] = []
    publish_apart(server.url, records, turn * records)
    # Several micro-batches, of which the first is told apart.
    update = {"max_records_per_trigger": max(1, records // 5)}
    route = replace(route, source=route.source.model_copy(update=update))
    with route_session(route, log=work / "spark.log") as spark, _peak_memory(server) as (peak, watching):
        begun = _Cpu.now(server, watching)
        done = job.run(
            route,
            spark,
            once=True,
            checkpoint=work / "checkpoint",
            on_progress=lambda progress: reports.append((progress, _Cpu.now(server, watching))),
        )
    if not done.counts.conserved:
        raise RuntimeError(f"records are missing: {done.counts}")
    (first, first_cpu), (last, last_cpu) = reports[0], reports[-1]
    later = max(1, last.counts.read - first.counts.read)
    after_first = {f"{name}_us": taken / later * 1e6 for name, taken in last_cpu.since(first_cpu).items()}
    return Result(
        "whole route, streaming",
        done.counts.read,
        (done.records_per_second,),
        Setup("new", update["max_records_per_trigger"], CORES),
        extra={
            "messages": done.counts.messages,
            "messages_per_second": done.counts.messages / done.seconds,
            "after_first_batch_per_second": later / ((last.seconds - first.seconds) or 1),
            "first_batch_seconds": first.seconds,
            "after_first_cpu_us": sum(after_first.values()),
            **after_first,
            "first_cpu_us": sum(first_cpu.since(begun).values()) / first.counts.read * 1e6,
            "peak_memory_mb": round(peak() / 2**20),
        },
    )


class _Cpu(NamedTuple):
    """Processor time in seconds by the processes of a run, without that of the server and of the watch of memory."""

    workers: float
    jvm: float
    driver: float

    @classmethod
    def now(cls, server: NatsServer, watching: Callable[[], float]) -> _Cpu:
        """Return the processor time until now of this process, the driver, and of all below it."""
        driver = psutil.Process()
        of_driver = cpu_seconds(driver.pid)
        of_jvm = sum(cpu_seconds(process.pid) for process in driver.children() if process.name() == "java")
        of_workers = cpu_seconds() - cpu_seconds(server.pid) - of_jvm - of_driver
        return cls(of_workers, of_jvm, of_driver - watching())

    def since(self, earlier: _Cpu) -> dict[str, float]:
        """Return the differences by name."""
        return {name: now - then for name, now, then in zip(self._fields, self, earlier, strict=True)}


def _stages(route: Route, server: NatsServer, flights: Supply[FlightMessage], records: int) -> Iterator[Result]:
    """What each stage of a task adds, in this process: reading, the engine cut off after one stage more each time, and
    publishing.

    By turns, and each time over records of its own.
    """
    assert route.subscriptions is not None
    store = open_store(route.subscriptions.store)
    program = Program.of(route)
    first = batches_of(server, flights.take(2_000))
    sample = [row for batch in first for row in program.sample(batch.slice(0, 1000), Index.of(store).keys)]
    index = Index.of(store, sample=sample)
    store.close()

    def decode(batch: Any) -> Any:
        return batch_of(batch, program.key, program.value)

    def transform(batch: Any) -> Any:
        read, consumed = decode(batch)
        program.chain.apply(read)
        return read, consumed

    def match(batch: Any) -> None:
        read = program.transformed(batch)
        alive = read.alive
        index.match(program.metadata.columns(read, alive, index.keys), len(alive))

    cuts: list[tuple[str, Callable[[Any], object]]] = [
        ("decode", decode),
        ("transform", transform),
        ("map", program.transformed),
        ("match", match),
        ("fan out and encode", lambda batch: program.run(batch, index)),
    ]
    of_cuts: list[list[float]] = [[] for _ in cuts]
    of_reading: list[float] = []
    of_publishing: list[float] = []
    for _ in range(_ROUNDS + 1):
        for (_, work), taken in zip(cuts, of_cuts, strict=True):
            publish(server.url, flights.take(records))
            begun = time.process_time()
            batches = _read(server)
            of_reading.append(time.process_time() - begun)
            taken.append(_thread_seconds(batches, work))
        results = [program.run(batch, index) for batch in batches_of(server, flights.take(records))]
        of_publishing.append(_publishing_seconds(route, server, results))
    # The first round warms up.
    yield _stage("read", records, of_reading[len(cuts) :], 0.0)
    before = 0.0
    for (name, _), taken in zip(cuts, of_cuts, strict=True):
        yield _stage(f"engine up to {name}", records, taken[1:], before)
        before = median(taken[1:])
    yield _stage("publish", records, of_publishing[1:], 0.0)


def _stage(case: str, records: int, seconds: list[float], before: float) -> Result:
    """Return the time of a stage, and what it takes beyond the *before* seconds of the stages before it."""
    taken = median(seconds)
    extra = {"cpu_us": taken / records * 1e6, "of_that_us": max(0.0, taken - before) / records * 1e6}
    return Result(case, records, rates(records, seconds), Setup("new", AT_ONCE, 1), extra=extra)


def batches_of(server: NatsServer, sent: list[FlightMessage]) -> list[Any]:
    """These records as the source gives them, in batches as the engine has them."""
    publish(server.url, sent)
    return _read(server)


def _read(server: NatsServer) -> list[Any]:
    """Read all records of the stream of flights."""
    with Connection.open(server.url) as connection:
        state = stream_info(connection, "FLIGHTS")["state"]
        reader = PullReader(connection, Range("FLIGHTS", state["first_seq"], state["last_seq"] + 1))
        read = [
            batch.append_column("stream", pa.repeat(pa.scalar("FLIGHTS"), batch.num_rows)) for batch in reader.batches()
        ]
    return [piece for batch in read for piece in pieces(batch)]


def _publishing_seconds(route: Route, server: NatsServer, results: list[EngineResult]) -> float:
    """Return the processor time of publishing the results of the engine to the route's sinks, as a task does."""
    empty_outputs(server)
    begun = time.process_time()
    with Publishers(tuple(endpoint_of(sink).publishing() for sink in route.sinks.values())) as publishers:
        for result in results:
            publishers.publish(result)
        publishers.flush()
    return time.process_time() - begun


def _thread_seconds(batches: list[Any], work: Callable[[Any], object]) -> float:
    begun = time.thread_time()
    for batch in batches:
        work(batch)
    return time.thread_time() - begun


def _proportional(pid: int) -> int:
    """The memory of a process in bytes, of shared pages its part; 0 for one that has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


@contextmanager
def _peak_memory(server: NatsServer) -> Iterator[tuple[Callable[[], int], Callable[[], float]]]:
    """The most memory that this process, the JVM and the workers held together (the server's not counted), in bytes.

    Pages that several processes share, as forked workers do, count once (PSS). Counting them takes the kernel as long
    as the rest of this process works: beside the memory is the processor time of that, in seconds.
    """
    count = [0]
    seconds = [0.0]
    ended = threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while not ended.wait(1.0):
            pids = [process.pid for process in (me, *me.children(recursive=True)) if process.pid != server.pid]
            count[0] = max(count[0], sum(map(_proportional, pids)))
            seconds[0] = time.thread_time()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: count[0], lambda: seconds[0]
    finally:
        ended.set()
        watcher.join()
