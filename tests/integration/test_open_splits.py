"""Routes whose micro-batches stay open: what they deliver, how they end, and what follows a kill."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.integration.routes import Streams, wait_for, write_route
from tests.integration.switch import Switch, running

from turnout.conditions import kiwi
from turnout.embedded import NatsServer
from turnout.engine.counts import Counts
from turnout.errors import RunError
from turnout.routes import Route
from turnout.runtime import open_splits
from turnout.runtime.offsets import Progress, RunResult
from turnout.runtime.open_splits import SLOTS, OpenProgress, ProgressFolder, SlotUse
from turnout.spark.endpoints import task_slots
from turnout.spark.running import job
from turnout.subscriptions import Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: open
source: {{format: nats, servers: "{url}", stream: {source}}}
value: {{format: json}}
transforms:
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
mappings: {{"in-{name}.>": "out-{name}.>"}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
deadLetter: {{topic: "out-{name}.dead"}}
errors: {{tolerance: all}}
{more}
"""
LOW = "trigger: {latency: low}"
KILLS: dict[str, Callable[[Switch], None]] = {
    "driver": lambda switch: switch.process.kill(),
    "JVM": lambda switch: psutil.Process((switch.jvm() or switch.process).pid).kill(),
    "all": Switch.kill,
}


def text(streams: Streams, more: str = LOW) -> str:
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
    return ROUTE.format(**names, more=more)


def publish(streams: Streams, first: int, last: int) -> None:
    """Messages by number; every tenth is filtered, every 25th is no JSON."""
    streams.publish(
        [
            (f"k.{n}", json.dumps({"n": n}).encode() if n % 25 else b'{"n"', [("Old", "yes")] if n % 10 == 3 else [])
            for n in range(first, last)
        ]
    )


def books(streams: Streams) -> Counter[int]:
    """The numbers of what came out, dead letters aside, and how often each did."""
    return Counter(json.loads(row["value"])["n"] for row in streams.delivered() if row["rest"] != "dead")


def kept(first: int, last: int) -> Counter[int]:
    return Counter(n for n in range(first, last) if n % 25 and n % 10 != 3)


def offsets(checkpoint: Path) -> list[dict[str, int]]:
    """The offsets of all micro-batches."""
    files = (file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit())
    return [json.loads(file.read_text().splitlines()[-1]) for file in sorted(files, key=lambda file: int(file.name))]


def reached(checkpoint: Path, sequence: int) -> bool:
    """Return True if an open split has recorded this position."""
    recorded = newest(checkpoint)
    return recorded is not None and isinstance(recorded[1].next, int) and recorded[1].next >= sequence


def newest(checkpoint: Path) -> tuple[int, OpenProgress] | None:
    """Return the last open split with a record, and this record."""
    folder = ProgressFolder(checkpoint)
    for number in reversed(folder.numbers()):
        progress = folder.read(number)
        if progress is not None:
            return number, progress
    return None


def stays_open(checkpoint: Path) -> bool:
    """Return True once the first two splits have ended, which is soon; the third one stays open."""
    return 2 in ProgressFolder(checkpoint).numbers()


def publishes(process: psutil.Process, port: int) -> bool:
    """Return True for a process that reads and publishes: it has two connections to the server."""
    with contextlib.suppress(psutil.Error):
        return sum(bool(one.raddr) and one.raddr.port == port for one in process.net_connections("tcp")) >= 2
    return False


@dataclass
class Run:
    """A run in this process, on a thread."""

    stop: threading.Event = field(default_factory=threading.Event)
    ready: threading.Event = field(default_factory=threading.Event)
    progress: list[Progress] = field(default_factory=list)
    result: Future[RunResult] = field(default_factory=Future)

    @property
    def read(self) -> int:
        return self.progress[-1].counts.read if self.progress else 0

    def ended(self) -> RunResult:
        self.stop.set()
        return self.result.result(60)


@contextmanager
def under_way(route: Route, spark: SparkSession, checkpoint: Path) -> Iterator[Run]:
    """The route, until its end or that of this block."""
    run = Run()
    with ThreadPoolExecutor(1) as threads:
        run.result = threads.submit(
            job.run,
            route,
            spark,
            checkpoint=checkpoint,
            stop=run.stop,
            on_progress=run.progress.append,
            on_ready=run.ready.set,
        )
        try:
            yield run
        finally:
            run.stop.set()


def conserved(counts: Counts, first: int, last: int) -> bool:
    """Return True if the counts are those of the messages with these numbers."""
    dead = sum(not n % 25 for n in range(first, last))
    filtered = sum(n % 10 == 3 and n % 25 != 0 for n in range(first, last))
    read = (counts.read, counts.dead_lettered, counts.filtered, counts.delivered)
    return counts.conserved and read == (last - first, dead, filtered, sum(kept(first, last).values()))


def test_splits_that_open_one_after_the_other(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in the stream and what comes later is delivered once and counted once, second by second; a stop ends
    the split, and leaves a checkpoint that any run goes on from."""
    for length in ("FIRST_SECONDS", "SHORTEST_SECONDS", "LONGEST_SECONDS"):
        monkeypatch.setattr(open_splits, length, 2.0)
    publish(streams, 0, 300)
    checkpoint = tmp_path / "c"
    with under_way(Route.parse(text(streams), {}), spark, checkpoint) as run:
        wait_for(lambda: streams.stored(streams.sink) >= 270)
        for first in range(300, 900, 10):
            publish(streams, first, first + 10)
            time.sleep(0.1)
        wait_for(lambda: run.read >= 900)
        result = run.ended()

    assert books(streams) == kept(0, 900)
    assert result.stopped
    assert conserved(result.counts, 0, 900)
    reads = [progress.counts.read for progress in run.progress]
    assert reads == sorted(reads)
    assert len(set(reads)) > 3
    ends = offsets(checkpoint)
    source = streams.source
    numbers = [end[f"{source}.open"] for end in ends[:-1]]
    assert numbers == list(range(1, len(ends)))
    assert len(numbers) > 2
    assert {**ends[-1], source: 901, f"{source}.from": 901} == ends[-1]
    assert ends[-1].keys() == {source, f"{source}.from", f"{source}.created", f"{source}.time"}

    publish(streams, 900, 950)
    again = job.run(Route.parse(text(streams, ""), {}), spark, once=True, checkpoint=checkpoint)

    assert conserved(again.counts, 900, 950)
    assert books(streams) == kept(0, 950)


def test_a_subscription_comes_into_an_open_split(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Later records are matched with it, and the split stays open."""
    url = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    with contextlib.closing(open_store(url)) as store:
        store.create(Subscription(destinations=(streams.out("all"),), condition=kiwi("subject", "*"), id="all"))
        route = Route.parse(text(streams, f'{LOW}\nsubscriptions: {{store: "{url}"}}'), {})
        with under_way(route, spark, tmp_path / "c") as run:
            wait_for(run.ready.is_set)
            publish(streams, 1, 11)
            wait_for(lambda: run.read == 10)
            batch, number = run.progress[-1].batch, 11
            store.create(Subscription(destinations=(streams.out("new"),), condition=kiwi("subject", "*"), id="new"))

            def arrived() -> bool:
                nonlocal number
                publish(streams, number, number + 1)
                number += 1
                return any(row["rest"] == "new" for row in streams.delivered())

            wait_for(arrived)
            store.delete("all")
            time.sleep(1.0)
            publish(streams, 1001, 1011)
            wait_for(lambda: run.read == number - 1 + 10)
            assert run.progress[-1].batch == batch
            assert (run.progress[-1].revision or 0) > (run.progress[0].revision or 0)
            result = run.ended()

    assert result.counts.conserved
    came = Counter((row["rest"], json.loads(row["value"])["n"]) for row in streams.delivered() if row["rest"] != "dead")
    assert set(came.values()) == {1}
    assert {n for rest, n in came if rest == "new"} >= set(kept(1001, 1011))
    assert not {n for rest, n in came if rest == "all"} & set(range(1001, 1011))
    assert {n for rest, n in came if rest == "all"} >= set(kept(1, 11))


@pytest.mark.parametrize(
    "trigger",
    [
        pytest.param(LOW, id="open"),
        pytest.param('trigger: {processingTime: "50 milliseconds"}', id="batches", marks=pytest.mark.heavy),
    ],
)
def test_records_during_updates_match_one_version(
    spark: SparkSession, streams: Streams, tmp_path: Path, trigger: str
) -> None:
    """While records arrive, each goes out under one version of an updated subscription, and under none in a pause."""
    url = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    number = 1

    def versions() -> dict[int, str]:
        """The version that each number came out under, in the order of numbers; no number comes out twice."""
        rows = [row for row in streams.delivered() if row["rest"] != "dead"]
        came = sorted((json.loads(row["value"])["n"], str(row["rest"])) for row in rows)
        assert len(dict(came)) == len(came)
        return dict(came)

    def until(holds: Callable[[], bool]) -> None:
        def published() -> bool:
            nonlocal number
            publish(streams, number, number + 10)
            number += 10
            return holds()

        wait_for(published)

    with contextlib.closing(open_store(url)) as store:
        store.create(Subscription((streams.out("v0"),), kiwi("subject", "*"), id="x"))
        route = Route.parse(text(streams, f'{trigger}\nsubscriptions: {{store: "{url}"}}'), {})
        with under_way(route, spark, tmp_path / "c") as run:
            for version, pattern in enumerate(("*", "out-*", "*k.*", "*"), 1):
                store.update("x", Subscription((streams.out(f"v{version}"),), kiwi("subject", pattern)))
                until(lambda name=f"v{version}": name in versions().values())  # type: ignore[misc]
            store.update("x", replace(store.read("x"), enabled=False))
            until(lambda: max(versions()) < run.read - 40)
            paused = max(versions())
            store.update("x", replace(store.read("x"), enabled=True, destinations=(streams.out("v5"),)))
            until(lambda: "v5" in versions().values())
            wait_for(lambda: run.read == number - 1)
            result = run.ended()

    came = versions()
    resumed = min(n for n, name in came.items() if name == "v5")
    assert result.counts.conserved
    assert list(came.values()) == sorted(came.values())
    assert set(came) == {n for n in kept(1, number) if n <= paused or n >= resumed}


@pytest.mark.heavy
def test_a_route_waits_for_a_task_slot(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Its micro-batches have an end until another route gives its slot back; then it opens a split, in the same run."""
    theirs = Streams(streams.url)
    theirs.create()
    total = task_slots(spark)
    other = Route.parse(text(theirs).replace("name: open", "name: other"), {})
    taken = [f"taken-{number}" for number in range(total - 2)]
    application = str(spark.sparkContext.applicationId)
    try:
        assert all(SLOTS.take(application, total, name) for name in taken)
        with under_way(other, spark, tmp_path / "other") as first:
            wait_for(lambda: "other" in SLOTS.use(application, total).taken)
            with under_way(Route.parse(text(streams), {}), spark, tmp_path / "c") as run:
                wait_for(lambda: "open" in SLOTS.use(application, total).waiting)
                publish(streams, 0, 50)
                wait_for(lambda: run.read >= 50)
                assert not (tmp_path / "c" / "open").exists()
                first.ended()
                wait_for(lambda: "open" in SLOTS.use(application, total).taken)
                publish(streams, 50, 100)
                wait_for(lambda: reached(tmp_path / "c", 101))
                result = run.ended()
    finally:
        theirs.delete()
        for name in taken:
            SLOTS.give_back(application, name)

    assert conserved(result.counts, 0, 100)
    assert books(streams) == kept(0, 100)
    assert SLOTS.use(application, total) == SlotUse(total)


@pytest.mark.heavy
def test_a_worker_is_killed_inside_an_open_split(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The run fails and says so; the next one goes on where the split has come to, and all are counted once."""
    route, checkpoint = Route.parse(text(streams), {}), tmp_path / "c"
    publish(streams, 0, 500)
    with under_way(route, spark, checkpoint) as first:
        wait_for(partial(stays_open, checkpoint))
        wait_for(lambda: first.read >= 500)
        for start in range(500, 600, 10):
            publish(streams, start, start + 10)
            time.sleep(0.05)
        workers = [process for process in psutil.Process().children(recursive=True) if _is_worker(process)]
        for worker in workers:
            worker.kill()
        with pytest.raises(RunError, match="a Python worker died"):
            first.result.result(60)
    before = first.progress[-1].counts
    recorded = newest(checkpoint)
    assert recorded is not None
    assert before.read + 1 == recorded[1].next
    assert before.read >= 500
    publish(streams, 600, 700)

    with under_way(route, spark, checkpoint) as second:
        wait_for(lambda: before.read + second.read >= 700)
        result = second.ended()

    assert conserved(before + result.counts, 0, 700)
    assert books(streams) == kept(0, 700)


def _is_worker(process: psutil.Process) -> bool:
    """Return True for a Python process that was forked from Spark's daemon."""
    with contextlib.suppress(psutil.Error):
        parent = process.parent()
        return parent is not None and all("daemon" in " ".join(one.cmdline()) for one in (process, parent))
    return False


@pytest.mark.heavy
def test_spark_starts_a_task_again(streams: Streams, nats_server: NatsServer, tmp_path: Path) -> None:
    """If Spark may repeat tasks, as on a cluster, the run continues, and its counts are those of one attempt."""
    path = write_route(tmp_path, text(streams))
    publish(streams, 0, 300)
    with running(tmp_path, path, "--master", "local[2,4]", "--json-lines") as switch:
        wait_for(partial(reached, switch.checkpoint, 301))
        for first in (300, 400, 500):
            publish(streams, first, first + 50)
            for worker in filter(partial(publishes, port=nats_server.port), switch.workers()):
                worker.kill()
            publish(streams, first + 50, first + 100)
            wait_for(partial(reached, switch.checkpoint, first + 101))
        switch.process.terminate()
        assert switch.wait(60) == 0
        result = json.loads(switch.said().splitlines()[-1])

    assert conserved(Counts.of(result["counts"]), 0, 600)
    assert books(streams) == kept(0, 600)
    assert [name for name in offsets(switch.checkpoint)[-1] if name.endswith(".open")] == []


@pytest.mark.heavy
@pytest.mark.parametrize("victim", KILLS)
def test_a_process_is_killed_inside_an_open_split(
    spark: SparkSession, streams: Streams, tmp_path: Path, victim: str
) -> None:
    """kill -9, and what follows repeats about a second: nothing lost, nothing twice, and all are counted in the end."""
    path = write_route(tmp_path, text(streams))
    with running(tmp_path, path) as switch:
        checkpoint = switch.checkpoint
        wait_for(partial(stays_open, checkpoint))
        publish(streams, 0, 500)
        wait_for(partial(reached, checkpoint, 501))
        for start in range(500, 600, 10):
            publish(streams, start, start + 10)
            time.sleep(0.05)
        KILLS[victim](switch)
        switch.wait(60)
    recorded = newest(checkpoint)
    assert recorded is not None
    publish(streams, 600, 700)

    result = job.run(Route.load(path), spark, once=True, checkpoint=checkpoint)

    assert conserved(result.counts, 0, 700)
    assert books(streams) == kept(0, 700)
    number, before = recorded
    progress = ProgressFolder(checkpoint).read(number)
    assert progress is not None
    # The split was closed where it was recorded last: the run that follows has micro-batches with an end.
    assert progress.next == before.next
