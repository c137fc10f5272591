"""What being watched costs the main job: in pairs, with and without, by turns, so that a machine that changes its pace
changes it for both.

``watched``: `turnout serve` runs examples/flights.yaml, and some of its micro-batches are watched: /metrics is scraped
every second, and a tap is opened as the console opens it. That is work of the server's own process, not of the JVM and
the workers: ``own_share`` is what that process takes more, of what all of them take. ``counted``: the engine alone,
with its counts by stage and without them; of each batch the fastest of several runs counts.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from benchmarks._serving import serving
from benchmarks.harness import Options, Result
from benchmarks.route import batches_of, fill
from turnout.demo.stage import subscribe
from turnout.demo.year import route_file
from turnout.embedded import NatsServer
from turnout.engine import Program, pieces
from turnout.engine.flow import Flow
from turnout.routes import Route
from turnout.subscriptions import open_store
from turnout.subscriptions.index import Index

_SCRAPE_SECONDS = 1.0
_POLL_SECONDS = 0.05
_PATIENCE = 120.0
_MICRO_BATCH = 100_000
"""What the route reads at once."""
_WARM_UP, _BLOCK = 3, 2
"""So many micro-batches come before what is measured, and are measured as one. Between two blocks whoever watched goes
away, until another one has ended."""


def run(options: Options) -> list[Result]:
    records = options.rows(4_000_000, 1_000_000)
    pairs = 3 if options.quick else 9
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder, NatsServer(Path(folder) / "nats") as server:
        work = Path(folder)
        store = f"sqlite:///{work / 'subscriptions.db'}"
        fill(server, records)
        opened = open_store(store)
        subscribe(opened, 1_000 if options.quick else 10_000)
        opened.close()
        environment = {"NATS_URL": server.url, "SUBSCRIPTIONS": store}
        results = []
        if options.wants("counted"):
            results.append(_counted(Route.load(route_file(), environment), server, min(records, 100_000), pairs))
        if options.wants("watched"):
            results.append(_watched(work / "routes", environment, records))
        return results


@dataclass(frozen=True)
class _Spent:
    """What one run took, in seconds."""

    wall: float
    cpu: float
    own: float = 0.0
    """Processor time of the server's own process."""


def _compared(case: str, size: int, pairs: Sequence[tuple[_Spent, _Spent]]) -> Result:
    """Each pair is a run without and a run with; ratios are of what both took, so that 1.03 is 3 % more."""
    extra: dict[str, Any] = {"pairs": len(pairs)}
    for name in ("cpu", "wall"):
        ratios = [getattr(watched, name) / getattr(alone, name) for alone, watched in pairs]
        extra[f"{name}_ratio"] = round(statistics.median(ratios), 4)
        extra[f"{name}_spread"] = f"{min(ratios):.3f}-{max(ratios):.3f}"
    wall = statistics.median(watched.wall for _, watched in pairs)
    return Result(case, size, size / wall, "the same, unwatched", 1 / extra["wall_ratio"], extra)


def _by_turns(pairs: int, measure: Callable[[bool], _Spent]) -> list[tuple[_Spent, _Spent]]:
    """Pairs of runs without and with, every other pair the other way round."""
    taken = []
    for pair in range(pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        spent = {watched: measure(watched) for watched in order}
        taken.append((spent[False], spent[True]))
    return taken


# The engine's counts


class _Uncounted:
    """Stands for `turnout.engine.flow.Passage`, and counts nothing."""

    def came(self, *_: object) -> None:
        pass

    def flow(self, *_: object) -> Flow:
        return _NOTHING


_NOTHING = Flow()


def _counted(route: Route, server: NatsServer, records: int, pairs: int) -> Result:
    assert route.subscriptions is not None
    store = open_store(route.subscriptions.store)
    index = Index.of(store)
    store.close()
    program = Program.of(route)
    batches = [piece for batch in batches_of(server, records) for piece in pieces(batch)]

    def measure(batch: Any, counted: bool) -> _Spent:
        uncounted = mock.patch("turnout.engine.program.Passage", _Uncounted)
        with nullcontext() if counted else uncounted:
            begun, cpu = time.perf_counter(), time.thread_time()
            program.run(batch, index)
            return _Spent(time.perf_counter() - begun, time.thread_time() - cpu)

    for batch in batches:
        measure(batch, True)
    runs = [_by_turns(pairs, partial(measure, batch)) for batch in batches]
    alone, counted = (_total(_fastest(run[watched] for run in some) for some in runs) for watched in (0, 1))
    result = _compared("counted by stage, engine alone", records, [(alone, counted)])
    result.extra["pairs"] = pairs
    return result


def _fastest(runs: Iterable[_Spent]) -> _Spent:
    """The least of several runs of one batch: what else the machine does makes none of them faster."""
    runs = list(runs)
    return _Spent(min(run.wall for run in runs), min(run.cpu for run in runs))


def _total(spent: Iterable[_Spent]) -> _Spent:
    spent = list(spent)
    return _Spent(sum(spent_once.wall for spent_once in spent), sum(spent_once.cpu for spent_once in spent))


# A server that is watched


def _watched(files: Path, environment: dict[str, str], records: int) -> Result:
    files.mkdir()
    with serving(files, environment) as (process, url):
        (files / "flights.yaml").write_text(route_file().read_text(encoding="utf-8"), encoding="utf-8")
        read = _read_after(url, "flights", _WARM_UP * _MICRO_BATCH)

        def measure(watched: bool) -> _Spent:
            nonlocal read
            before = _read_after(url, "flights", read + 1)
            cpu, own, begun = _cpu(process), _own(process), time.perf_counter()
            with _watching(url, "flights") if watched else nullcontext():
                read = _read_after(url, "flights", before + _BLOCK * _MICRO_BATCH)
                share = (read - before) / records
                wall = time.perf_counter() - begun
                return _Spent(wall / share, (_cpu(process) - cpu) / share, (_own(process) - own) / share)

        # Whoever looks first has the server read the store, once: 0.5 to 1 s of processor time for 10,000 of them.
        measure(True)
        # Whoever watched may need a micro-batch more to go away.
        pairs = (records - read) // (2 * (_BLOCK + 2) * _MICRO_BATCH)
        if pairs < 1:
            raise RuntimeError(f"{records:,} records are too few to compare")
        spent = _by_turns(pairs, measure)
    result = _compared("watched: scraped every second, and a tap", records, spent)
    shares = [(watched.own - alone.own) / alone.cpu for alone, watched in spent]
    result.extra["own_share"] = round(statistics.median(shares), 4)
    result.extra["own_spread"] = f"{min(shares):.4f}-{max(shares):.4f}"
    return result


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _cpu(server: psutil.Process) -> float:
    total = 0.0
    for process in (server, *server.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            # Children that have ended are counted with their parents: workers come and go.
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _read_after(url: str, name: str, records: int) -> int:
    """Wait until a route has read so many records, which it says after each micro-batch; how many it has."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        route = _route(url, name)
        if route is not None and route["state"] in ("failed", "waiting", "invalid"):
            raise RuntimeError(f"route {name} is {route['state']}: {route['reason']}")
        if route is not None and (route["counts"] or {}).get("read", 0) >= records:
            return int(route["counts"]["read"])
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"route {name} has not read {records:,} records within {_PATIENCE:.0f} s")


def _route(url: str, name: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"{url}/v1/routes/{name}", timeout=60) as response:
            route: dict[str, Any] = json.load(response)
            return route
    except urllib.error.HTTPError:
        # It has not been noticed yet.
        return None


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
