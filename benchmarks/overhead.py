"""What being watched costs the main job: in pairs, with and without, by turns, so that a machine that changes its pace
changes it for both. No record comes twice.

``watched``: `turnout serve` runs examples/flights.yaml, and of its seconds some are watched: /metrics is scraped every
second, and a tap is opened as the console opens it. That is work of the server's own process, not of the JVM and the
workers, whose processor time differs by more from second to second: what that process takes more, of what all take
while nobody looks, is the overhead. ``counted``: the engine alone, with its counts by stage and without them, over
batches that follow one another. ``clients``: records a second of the route that `turnout serve` runs, beside
5,000 clients that never finish their headers, and without them. ``traced``: processor time of a task, from the engine
to the acknowledgements, over records with trace contexts of which 1 % are sampled, with spans and without them; the
spans go to a receiver in another process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pyarrow as pa

from benchmarks._clients import half_open
from benchmarks._flights import publish, supply
from benchmarks._serving import serving
from benchmarks.harness import Case, Options, Result, Setup, Supply, cpu_seconds
from benchmarks.route import CORES, batches_of, flights_server
from turnout.demo.flights import FlightMessage
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.engine.counts import Flow, StageCounter
from turnout.engine.reading import AT_ONCE, Consumed
from turnout.nats.wire import Connection, Publisher
from turnout.records import Batch
from turnout.routes import Route
from turnout.runtime.task_index import IndexLocation
from turnout.spark.stage import SparkStage
from turnout.subscriptions import open_store
from turnout.subscriptions.index import Index
from turnout.subscriptions.index.index_writer import IndexFolder
from turnout.traces.spans import new_trace

_SCRAPE_SECONDS = 1.0
_POLL_SECONDS = 0.05
_PATIENCE = 120.0
_WARM_UP = 200_000
"""After so many records the JVM has compiled what is used most."""
_WINDOW_SECONDS = 4.0
_COMING_PER_SECOND = 500
_CLIENTS = 5_000
_BATCHES_OF_A_TURN = 2
_RECORDS_OF_A_TASK = 4 * AT_ONCE
_TASKS_OF_A_TURN = 5


def cases(options: Options) -> Iterator[Case]:
    """The engine alone, a server that is watched, and one beside clients."""
    records = options.rows(1_500_000, 1_000_000)
    pairs = 3 if options.quick else 9
    with flights_server(1_000 if options.quick else 10_000) as (server, environment, work):
        flights = supply()
        yield Case("counted", lambda: [_counted(Route.load(route_file(), environment), server, flights, pairs)])

        def filled(records: int) -> int:
            publish(server.url, flights.take(records))
            return records

        yield Case("traced", lambda: [_traced(Route.load(route_file(), environment), server, flights, pairs)])
        yield Case("watched", lambda: [_watched(work / "routes", environment, server, filled(records), flights)])
        yield Case("clients", lambda: [_beside_clients(work / "attacked", environment, filled(2 * records))])


# The engine's counts


class _Uncounted(StageCounter):
    """A `StageCounter` that counts nothing."""

    def enter(self, stage: str, records: int, failures: int) -> None:
        pass

    def decoded(self, records: Batch, consumed: Consumed, keys: int) -> None:
        pass

    def flow(self, stages: Sequence[str]) -> Flow:  # noqa: ARG002 - as it is overridden
        return _NOTHING


_NOTHING = Flow()


def _counted(route: Route, server: NatsServer, flights: Supply[FlightMessage], pairs: int) -> Result:
    """The engine over successive batches, with and without counts, in alternation."""
    assert route.subscriptions is not None
    with open_store(route.subscriptions.store) as store:
        index = Index.of(store)
    program = Program.of(route)
    batches = batches_of(server, flights.take((2 * pairs + 2) * AT_ONCE * _BATCHES_OF_A_TURN))

    def measure(some: list[Any], counted: bool) -> tuple[float, int]:
        uncounted = mock.patch("turnout.engine.program.StageCounter", _Uncounted)
        with nullcontext() if counted else uncounted:
            begun = time.thread_time()
            for batch in some:
                program.run(batch, index)
            return (time.thread_time() - begun) / sum(batch.num_rows for batch in some), counted

    spent: dict[bool, list[float]] = {False: [], True: []}
    order = cycle((False, True, True, False))
    for begin in range(0, len(batches) - _BATCHES_OF_A_TURN + 1, _BATCHES_OF_A_TURN):
        seconds, counted = measure(batches[begin : begin + _BATCHES_OF_A_TURN], next(order))
        # The first two turns warm up.
        if begin >= 2 * _BATCHES_OF_A_TURN:
            spent[bool(counted)].append(seconds)
    ratio = statistics.median(a / b for a, b in zip(spent[False], spent[True], strict=False))
    speeds = tuple(1 / seconds for seconds in spent[True])
    case = "counted by stage, engine alone"
    setup = Setup("new", AT_ONCE, 1)
    return Result(case, len(batches) * AT_ONCE, speeds, setup, "the same, unwatched", ratio, {"pairs": len(speeds)})


# The spans of a task


def _traced(route: Route, server: NatsServer, flights: Supply[FlightMessage], pairs: int) -> Result:
    """Tasks over successive batches, with and without spans, in alternation.

    A turn is several tasks, of more than a second together: spans are exported once a second, as in a run.
    """
    assert route.subscriptions is not None
    with (
        collecting() as url,
        open_store(route.subscriptions.store) as store,
        tempfile.TemporaryDirectory() as folder,
        IndexFolder(Path(folder), store) as index,
    ):
        place = IndexLocation.at(Path(folder))
        with mock.patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": url}):
            on = SparkStage.of(route, splits=False).with_index(place).at(index.revision)
            stages = {True: on, False: replace(on, traces=None)}
            spent: dict[bool, list[float]] = {False: [], True: []}
            for number, traced in zip(range(2 * pairs + 2), cycle((False, True, True, False)), strict=False):
                # The first task is not measured: a pause has saved spans, of which a run has a part each second.
                first, *tasks = [_traceable(server, flights) for _ in range(1 + _TASKS_OF_A_TURN)]
                _publish(stages[traced], first)
                begun = time.process_time()
                for task in tasks:
                    _publish(stages[traced], task)
                if traced and on.traces is not None:
                    # What the exporter's thread has not sent yet belongs to the turn as well.
                    on.traces.exporter.flush(_PATIENCE)
                # The first turns warm up.
                if number >= 2:
                    spent[traced].append((time.process_time() - begun) / (_TASKS_OF_A_TURN * _RECORDS_OF_A_TASK))
    ratios = [alone / traced for alone, traced in zip(spent[False], spent[True], strict=False)]
    more = statistics.median(100 * (1 / ratio - 1) for ratio in ratios)
    speeds = tuple(1 / seconds for seconds in spent[True])
    case, extra = "traced: 1 % of the records, whole tasks", {"pairs": len(ratios), "more_percent": more}
    size = (2 * pairs + 2) * _TASKS_OF_A_TURN * _RECORDS_OF_A_TASK
    setup = Setup("new", AT_ONCE, 1)
    return Result(case, size, speeds, setup, "the same, without spans", statistics.median(ratios), extra)


def _publish(stage: SparkStage, task: list[pa.RecordBatch]) -> None:
    for _ in stage.publish(task):
        pass


def _traceable(server: NatsServer, flights: Supply[FlightMessage]) -> list[pa.RecordBatch]:
    """Return the batches of a task, with trace contexts of which 1 % are sampled."""
    contexts = (new_trace()._replace(flags=not at % 100).traceparent for at in range(_RECORDS_OF_A_TASK))
    sent = [
        replace(flight, headers=(*flight.headers, ("traceparent", own)))
        for flight, own in zip(flights.take(_RECORDS_OF_A_TASK), contexts, strict=True)
    ]
    return batches_of(server, sent)


@contextmanager
def collecting() -> Iterator[str]:
    """A receiver of OTLP over HTTP in a process of its own, which keeps nothing."""
    program = [sys.executable, "-c", _COLLECTOR]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


_COLLECTOR = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


# A server that is watched


@dataclass(frozen=True, slots=True)
class _Window:
    """What a server took a second, in cores: its own process, and all of it with the JVM and the workers."""

    own: float
    all: float


def _watched(
    files: Path, environment: dict[str, str], server: NatsServer, records: int, flights: Supply[FlightMessage]
) -> Result:
    files.mkdir()
    with serving(files, environment) as (process, url), _coming(server, flights):
        (files / "flights.yaml").write_text(route_file().read_text(encoding="utf-8"), encoding="utf-8")
        _wait_for(url, "flights", _WARM_UP)
        with _watching(url, "flights"):
            # Whoever looks first has the server read the store, once: 0.5 to 1 s of processor time for 10,000 of them.
            time.sleep(_WINDOW_SECONDS)
        begun, before = time.perf_counter(), _records_read(url, "flights")
        windows: dict[bool, list[_Window]] = {False: [], True: []}
        order = cycle((False, True, True, False))
        while _records_read(url, "flights") < records:
            watched = next(order)
            with _watching(url, "flights") if watched else nullcontext():
                windows[watched].append(_window(process))
        rate = (records - before) / (time.perf_counter() - begun)
    # In the last pair the route has come to its end.
    pairs = list(zip(windows[False], windows[True], strict=False))[:-1]
    if not pairs:
        raise RuntimeError(f"{records:,} records are too few to compare")
    shares = [(watched.own - alone.own) / alone.all for alone, watched in pairs]
    share = statistics.median(shares)
    extra = {
        "pairs": len(pairs),
        "more_percent": 100 * share,
        "least_percent": 100 * min(shares),
        "most_percent": 100 * max(shares),
    }
    case, setup = "watched: scraped every second, and a tap", Setup("new", None, CORES)
    return Result(case, records, (rate,), setup, "the same, unwatched", 1 / (1 + share), extra)


# A server with clients that never finish a request


def _beside_clients(files: Path, environment: dict[str, str], records: int) -> Result:
    files.mkdir()
    rates: dict[bool, list[float]] = {False: [], True: []}
    connected = ended = 0
    with serving(files, environment) as (_, url):
        (files / "flights.yaml").write_text(route_file().read_text(encoding="utf-8"), encoding="utf-8")
        _wait_for(url, "flights", _WARM_UP)
        order = cycle((False, True, True, False))
        while _records_read(url, "flights") < records:
            attacked = next(order)
            with half_open(url, _CLIENTS) if attacked else nullcontext() as attempts:
                # Connections of the block before are gone by then, or those of this one are there.
                time.sleep(1.0)
                rates[attacked].append(_rate(url))
            connected += attempts.connected if attempts else 0
            ended += attempts.ended if attempts else 0
    # In the last pair the route has come to its end.
    pairs = list(zip(rates[False], rates[True], strict=False))[:-1]
    if not pairs:
        raise RuntimeError(f"{records:,} records are too few to compare")
    ratios = [beside / alone for alone, beside in pairs]
    extra = {"pairs": len(pairs), "least_ratio": min(ratios), "most_ratio": max(ratios)}
    extra |= {"connected": connected, "ended": ended}
    case, setup = f"clients: {_CLIENTS:,} without complete headers", Setup("new", None, CORES)
    beside = tuple(rate for _, rate in pairs)
    return Result(case, records, beside, setup, "the same, without them", statistics.median(ratios), extra)


def _rate(url: str) -> float:
    """Records a second, from the end of one micro-batch to that of another."""
    begun, before = _next_count(url)
    time.sleep(_WINDOW_SECONDS)
    ended, after = _next_count(url)
    return (after - before) / (ended - begun)


def _next_count(url: str) -> tuple[float, int]:
    """When a further micro-batch has ended, and the records that were read until then."""
    before, deadline = _records_read(url, "flights"), time.monotonic() + _WINDOW_SECONDS
    while time.monotonic() < deadline:
        count = _records_read(url, "flights")
        if count != before:
            return time.perf_counter(), count
        time.sleep(_POLL_SECONDS)
    return time.perf_counter(), before


def _window(process: psutil.Process) -> _Window:
    begun, own, everything = time.perf_counter(), cpu_seconds(process.pid), _cpu(process)
    time.sleep(_WINDOW_SECONDS)
    seconds = time.perf_counter() - begun
    return _Window((cpu_seconds(process.pid) - own) / seconds, (_cpu(process) - everything) / seconds)


def _cpu(server: psutil.Process) -> float:
    total = 0.0
    for process in (server, *server.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            # Children that have ended are counted with their parents: workers come and go.
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _wait_for(url: str, name: str, records: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while _records_read(url, name) < records:
        if time.monotonic() > deadline:
            raise RuntimeError(f"route {name} has not read {records:,} records within {_PATIENCE:.0f} s")
        time.sleep(_POLL_SECONDS)


def _records_read(url: str, name: str) -> int:
    """How many records a route has read, which it says after each micro-batch."""
    route = _route(url, name)
    if route is None:
        return 0
    if route["state"] in ("failed", "waiting", "invalid"):
        raise RuntimeError(f"route {name} is {route['state']}: {route['reason']}")
    return int((route["counts"] or {}).get("read", 0))


def _route(url: str, name: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"{url}/v1/routes/{name}", timeout=60) as response:
            route: dict[str, Any] = json.load(response)
            return route
    except urllib.error.HTTPError:
        # It has not been noticed yet.
        return None


@contextmanager
def _coming(server: NatsServer, flights: Supply[FlightMessage]) -> Iterator[None]:
    """Some more records all the time: a tap shows what comes, and the route still has a long way to these."""
    ending = threading.Event()

    def publish() -> None:
        with Connection.open(server.url) as connection, Publisher(connection) as publisher:
            while not ending.wait(1 / _COMING_PER_SECOND):
                (message,) = flights.take(1)
                publisher.publish(message.subject, message.payload, message.headers)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


@contextmanager
def _watching(url: str, name: str) -> Iterator[None]:
    """Scrape every second, and look at the route's records as they come, until the block ends."""
    ending = threading.Event()

    def scrape() -> None:
        while not ending.wait(_SCRAPE_SECONDS):
            with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
                response.read()

    def tap() -> None:
        while not ending.is_set():
            with suppress(OSError), urllib.request.urlopen(f"{url}/v1/tap/{name}", timeout=60) as events:
                while not ending.is_set() and events.readline():
                    pass
            ending.wait(0.2)

    threads = [threading.Thread(target=work, daemon=True) for work in (scrape, tap)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()
