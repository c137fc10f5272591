"""A route with server-side filtering: it delivers the same messages, and every record is counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.routes import Streams, command, wait_for, write_route

from turnout.conditions import parse
from turnout.routes import Route
from turnout.runtime.offsets import Progress
from turnout.spark.running import job
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: pushed
source: {{format: nats, servers: "{url}", stream: {source}, maxRecordsPerTrigger: {batch}, pushDown: {push}}}
value: {{format: json}}
transforms:
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
mappings: {{"in-{name}.*.*": "to.{{{{wildcard(2)}}}}.{{{{wildcard(1)}}}}"}}
subscriptions: {{store: "sqlite:///{folder}/subscriptions.db", metadata: {{n: value.n}}}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
errors: {{tolerance: all}}
trigger: {{processingTime: 100 milliseconds}}
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/subscriptions.db")
    yield opened
    opened.close()


def text(streams: Streams, folder: Path, *, push: bool = True, batch: int = 40) -> str:
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
    return ROUTE.format(**names, folder=folder, push=str(push).lower(), batch=batch)


def publish(streams: Streams, first: int, last: int) -> None:
    """Records in turns to a.x, b.x and c.x, every tenth old."""
    streams.publish(
        [
            (f"{'abc'[n % 3]}.x", json.dumps({"n": n}).encode(), [("Old", "1")] if n % 10 == 0 else [])
            for n in range(first, last)
        ]
    )


def want(streams: Streams, store: Store, condition: str, to: str) -> None:
    store.create(Subscription([streams.out(to)], parse(condition), id=to))


def books(streams: Streams) -> Counter[tuple[str, int]]:
    """Return how often each record was stored for each destination."""
    return Counter((row["rest"], json.loads(row["value"])["n"]) for row in streams.delivered())


def expected(to: str, letter: str, first: int, last: int) -> set[tuple[str, int]]:
    return {(to, n) for n in range(first, last) if "abc"[n % 3] == letter and n % 10}


def test_the_same_is_delivered(spark: SparkSession, streams: Streams, store: Store, tmp_path: Path) -> None:
    """With and without push-down; what is not read would have been filtered or unmatched."""
    publish(streams, 0, 300)
    want(streams, store, "topic:to.x.a", "a")
    want(streams, store, "topic:to.?.b AND n<=100", "b")

    whole = job.run(Route.parse(text(streams, tmp_path, push=False), {}), spark, once=True, checkpoint=tmp_path / "off")
    before = books(streams)
    pushed = job.run(Route.parse(text(streams, tmp_path), {}), spark, once=True, checkpoint=tmp_path / "on")

    assert (whole.counts.read, whole.counts.not_read) == (300, 0)
    assert (pushed.counts.read, pushed.counts.not_read) == (200, 100)
    assert pushed.counts.conserved
    for name in ("delivered", "messages", "dead_lettered", "discarded", "undeliverable"):
        assert getattr(pushed.counts, name) == getattr(whole.counts, name)
    assert pushed.counts.filtered + pushed.counts.unmatched + 100 == whole.counts.filtered + whole.counts.unmatched
    # The ids are the same, so that the second run stored nothing.
    assert books(streams) == before
    assert set(before.values()) == {1}


def test_subscriptions_of_a_running_route(spark: SparkSession, streams: Streams, store: Store, tmp_path: Path) -> None:
    """One that comes extends the filters, one that goes narrows them; a stop and a start between are exact."""
    route = Route.parse(text(streams, tmp_path), {})
    want(streams, store, "topic:to.x.a", "a")
    stop, last = threading.Event(), list[Progress]()
    results: list[Any] = []

    def work() -> None:
        results.append(job.run(route, spark, checkpoint=tmp_path / "c", stop=stop, on_progress=last.append))

    def done(records: int) -> bool:
        return bool(last) and last[-1].counts.read + last[-1].counts.not_read == records

    runner = threading.Thread(target=work)
    runner.start()
    try:
        publish(streams, 0, 90)
        wait_for(lambda: done(90))
        want(streams, store, "topic:to.x.b", "b")
        publish(streams, 90, 180)
        wait_for(lambda: done(180))
        store.delete("a")
        publish(streams, 180, 270)
        wait_for(lambda: done(270))
    finally:
        stop.set()
        runner.join()

    counts = results[0].counts
    assert (counts.read, counts.not_read) == (30 + 60 + 30, 60 + 30 + 60)
    assert counts.conserved
    expected_rows = expected("a", "a", 0, 180) | expected("b", "b", 90, 270)
    assert books(streams) == Counter(dict.fromkeys(expected_rows, 1))

    publish(streams, 270, 300)
    again = job.run(route, spark, once=True, checkpoint=tmp_path / "c")

    assert (again.counts.read, again.counts.not_read) == (10, 20)
    assert books(streams) == Counter(dict.fromkeys(expected_rows | expected("b", "b", 270, 300), 1))


def test_a_micro_batch_that_is_done_again(spark: SparkSession, streams: Streams, store: Store, tmp_path: Path) -> None:
    """After a commit that was lost it is read by its own revision's filters, whatever is subscribed by then."""
    route = Route.parse(text(streams, tmp_path, batch=1000), {})
    want(streams, store, "topic:to.x.a", "a")
    publish(streams, 0, 90)
    job.run(route, spark, once=True, checkpoint=tmp_path / "c")
    (tmp_path / "c" / "commits" / "0").unlink()
    (tmp_path / "c" / "commits" / ".0.crc").unlink(missing_ok=True)
    store.delete("a")
    want(streams, store, "topic:to.x.b", "b")
    publish(streams, 90, 120)

    again = job.run(route, spark, once=True, checkpoint=tmp_path / "c")

    assert (again.counts.read, again.counts.not_read) == (30 + 10, 60 + 20)
    assert books(streams) == Counter(dict.fromkeys(expected("a", "a", 0, 90) | expected("b", "b", 90, 120), 1))


@pytest.mark.heavy
def test_killed_in_the_middle(streams: Streams, store: Store, tmp_path: Path) -> None:
    """The process goes without a word; the next run goes on from the checkpoint, and nothing is missing or twice."""
    want(streams, store, "topic:to.x.c", "c")
    publish(streams, 0, 3000)
    file = write_route(tmp_path, text(streams, tmp_path, batch=100))
    arguments = ("run", str(file), "--checkpoint", str(tmp_path / "c"), "--json")
    first = subprocess.Popen(
        command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_for(lambda: streams.stored(streams.sink) > 50)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()

    second = subprocess.run(command(*arguments, "--once"), capture_output=True, text=True, timeout=200, check=False)

    assert second.returncode == 0, second.stderr
    counts = json.loads(second.stdout)["counts"]
    left = 3000 - counts["read"] - counts["not_read"]
    assert 0 <= left < 3000
    assert counts["read"] == sum("abc"[n % 3] == "c" for n in range(left, 3000))
    assert books(streams) == Counter(dict.fromkeys(expected("c", "c", 0, 3000), 1))
