"""Routes without subscriptions from NATS to NATS: Spark runs them whole, and has to do all that it does otherwise."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.routes import Streams, command, wait_for, write_route

from turnout.errors import RunError
from turnout.routes import Route
from turnout.runtime.offsets import Progress
from turnout.spark.running import job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: alone
source: {{format: nats, servers: "{url}", stream: {source}, maxRecordsPerTrigger: {batch}}}
value: {{format: json}}
transforms:
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
  - {{name: mark, type: InsertField$Value, static.field: via, static.value: turnout}}
mappings:
  "in-{name}.lossy": [{{destination: "out-{name}.lossy", weight: 50}}, {{destination: "in-{name}.lossy", weight: 0}}]
  "in-{name}.>": "out-{name}.>"
sink: {{format: nats, servers: "{url}", stream: {sink}}}
deadLetter: {{topic: "out-{name}.dead"}}
errors: {{tolerance: {tolerance}, log: true, logMessages: true}}
"""


def text(streams: Streams, *, batch: int = 400, tolerance: str = "all") -> str:
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
    return ROUTE.format(**names, batch=batch, tolerance=tolerance)


def message(n: int) -> tuple[str, bytes, list[tuple[str, str]]]:
    """Message number *n*: every tenth goes where weights lose half, every seventh is old, every hundredth no JSON."""
    payload = json.dumps({"n": n}).encode() if n % 100 else b'{"n": '
    return ("lossy" if n % 10 == 5 else f"kept.{n}"), payload, [("Old", "yes")] if n % 7 == 0 else []


def numbers(streams: Streams) -> Counter[int]:
    """The numbers of what came out, dead letters aside, and how often each did."""
    return Counter(json.loads(row["value"])["n"] for row in streams.delivered() if row["rest"] != "dead")


def test_every_record_ends_where_it_should(
    spark: SparkSession,
    streams: Streams,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Delivered, filtered, lost by weight, dead letters: each is where it should be, counted, and told micro-batch by
    micro-batch; nothing of it goes through Python."""
    count = 1000
    streams.publish([message(n) for n in range(1, count + 1)])
    progress: list[Progress] = []
    monkeypatch.setattr("turnout.spark.running.job.write_all", None)

    with caplog.at_level(logging.ERROR, logger="turnout.errors"):
        result = job.run(
            Route.parse(text(streams), {}), spark, once=True, checkpoint=tmp_path / "c", on_progress=progress.append
        )

    failed = [n for n in range(1, count + 1) if n % 100 == 0]
    old = [n for n in range(1, count + 1) if n % 7 == 0 and n % 100]
    kept = [n for n in range(1, count + 1) if n % 7 and n % 10 != 5 and n % 100]
    lossy = [n for n in range(1, count + 1) if n % 7 and n % 10 == 5]
    counts = result.counts
    assert (counts.read, counts.dead_lettered, counts.filtered) == (count, len(failed), len(old))
    assert counts.conserved
    assert counts.messages == counts.delivered == count - len(failed) - len(old) - counts.lost_by_weight
    assert 0 < counts.lost_by_weight < len(lossy)
    delivered = numbers(streams)
    assert set(delivered.values()) == {1}
    assert set(kept) <= set(delivered) <= set(kept) | set(lossy)
    assert len(delivered) == counts.messages
    dead = [row for row in streams.delivered() if row["rest"] == "dead"]
    assert [row["value"] for row in dead] == [b'{"n": '] * len(failed)
    assert {row["headers"]["__connect.errors.topic"] for row in dead} == {f"in-{streams.name}.kept.{n}" for n in failed}
    assert [one.batch for one in progress] == [0, 1, 2]
    assert [one.counts.read for one in progress] == [400, 800, 1000]
    assert progress[-1].counts == counts
    assert 0 < progress[0].seconds <= progress[-1].seconds == pytest.approx(result.seconds)
    assert result.batches == 3
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(failed)
    assert "offset='100'" in lines[0]
    assert """value='{"n": '""" in lines[0]


def test_tolerance_none_stops_at_the_first_failure(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The run stops with the reason, and what came before the record's micro-batch stays delivered."""
    streams.publish([message(n) for n in range(96, 104)])

    with pytest.raises(RunError, match=r"route alone failed: .*VALUE_CONVERTER"):
        job.run(Route.parse(text(streams, batch=4, tolerance="none"), {}), spark, once=True, checkpoint=tmp_path / "c")

    assert set(numbers(streams)) == {96, 97, 99}


@pytest.mark.soak
def test_killed_in_the_middle(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """After kill -9 the next run goes on: nothing lost, nothing twice, and what it did again is counted again."""
    count, path, folder = 1000, write_route(tmp_path, text(streams, batch=40)), str(tmp_path / "c")
    publish_kept(streams, count)
    killed = command("run", str(path), "--master", "local[2]", "--checkpoint", folder)
    with subprocess.Popen(killed, start_new_session=True, stdout=subprocess.DEVNULL) as first:
        wait_for(lambda: streams.stored(streams.sink) > 100)
        os.killpg(first.pid, signal.SIGKILL)
    left = count - streams.stored(streams.sink)

    second = job.run(Route.load(path), spark, once=True, checkpoint=folder)

    assert left > 0, "the run was over before it was killed"
    # The whole micro-batch that was being written when the first run died is written again, and stored once.
    assert left <= second.counts.delivered <= left + 40
    assert numbers(streams) == Counter(range(count))


@pytest.mark.heavy
def test_stopped_in_the_middle(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """When asked to stop, a run ends between two micro-batches; the next one does the rest, and nothing again."""
    count, path, folder = 1000, write_route(tmp_path, text(streams, batch=40)), str(tmp_path / "c")
    publish_kept(streams, count)
    stop = threading.Event()
    # A thread of its own, as a service would have it.
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(
            job.run,
            Route.load(path),
            spark,
            checkpoint=folder,
            stop=stop,
            on_progress=lambda progress: stop.set() if progress.counts.read >= 200 else None,
        ).result(120)

    at_the_stop = streams.stored(streams.sink)
    assert first.stopped
    assert first.counts.conserved
    assert first.counts.delivered == at_the_stop < count

    second = job.run(Route.load(path), spark, once=True, checkpoint=folder)

    assert second.counts.delivered == count - at_the_stop
    assert numbers(streams) == Counter(range(count))


def publish_kept(streams: Streams, count: int) -> None:
    streams.publish([(f"kept.{n}", json.dumps({"n": n}).encode(), []) for n in range(count)])
