"""Runs that find their checkpoint torn, taken, or on a full disk, and go on exactly or say what to do."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.integration.routes import Streams, wait_for, write_route
from tests.integration.stepped_clock import stepped_clock
from tests.integration.switch import Switch, running

from turnout.conditions import kiwi
from turnout.errors import RunError, StreamError
from turnout.nats.wire import Connection, create_stream, stream_info
from turnout.routes import Route
from turnout.runtime.offsets import Progress
from turnout.spark.running import job
from turnout.subscriptions import Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: recovered
source: {{format: nats, servers: "{url}", stream: {source}, maxRecordsPerTrigger: {batch}}}
value: {{format: json}}
mappings: {{"in-{name}.>": "out-{name}.>"}}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
{more}
"""


def text(streams: Streams, *, batch: int = 50, more: str = "") -> str:
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
    return ROUTE.format(**names, batch=batch, more=more)


def publish(streams: Streams, first: int, last: int) -> None:
    streams.publish([(f"k.{n}", json.dumps({"n": n}).encode(), []) for n in range(first, last)])


def books(streams: Streams) -> Counter[int]:
    return Counter(json.loads(row["value"])["n"] for row in streams.delivered())


def _report(switch: Switch) -> Any:
    """The document that a run with ``--json`` prints at its end, behind its lines on standard error."""
    said = switch.said()
    return json.loads(said[said.index("{\n") :])


def empty(*names: str) -> Callable[[Path], None]:
    def damage(checkpoint: Path) -> None:
        for name in names:
            (checkpoint / name).write_bytes(b"")

    return damage


def spoil_checksums(checkpoint: Path) -> None:
    for crc in checkpoint.rglob("*.crc"):
        crc.write_bytes(b"crc\0\0\0\2\0\0\0\0\0")


DAMAGES: dict[str, tuple[Callable[[Path], None], int]] = {
    "commit": (empty("commits/2"), 50),
    "metadata": (empty("metadata"), 0),
    "checksums": (spoil_checksums, 0),
    "all of the last": (empty("offsets/2", "commits/2", "metadata", "offsets/.2.crc", ".metadata.crc"), 50),
}
"""Damage files as a power cut does; return the number of finished records that are then repeated."""


def test_a_torn_checkpoint(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The run goes on exactly: what is not known to be done is done again, and stored once."""
    route = Route.parse(text(streams), {})
    publish(streams, 0, 150)
    job.run(route, spark, once=True, checkpoint=tmp_path / "whole")
    for place, (name, (damage, again)) in enumerate(DAMAGES.items()):
        checkpoint = tmp_path / name.replace(" ", "-")
        shutil.copytree(tmp_path / "whole", checkpoint)
        damage(checkpoint)
        publish(streams, 150 + place, 151 + place)

        result = job.run(route, spark, once=True, checkpoint=checkpoint)

        assert (name, result.counts.read) == (name, again + place + 1)
        assert books(streams) == Counter(range(151 + place))


def test_an_index_that_is_cut_off(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The files of the subscriptions' index that cannot be opened any more are built from the store again."""
    url = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    with contextlib.closing(open_store(url)) as store:
        store.create(Subscription(destinations=(streams.out("x"),), condition=kiwi("subject", "*"), id="all"))
    route = Route.parse(text(streams, more=f'subscriptions: {{store: "{url}"}}'), {})
    publish(streams, 0, 10)
    job.run(route, spark, once=True, checkpoint=tmp_path / "c")
    publish(streams, 10, 20)
    for name in ("segment-*.index", "revision-*.json", "store"):
        for file in (tmp_path / "c" / "subscriptions").glob(name):
            file.write_bytes(file.read_bytes()[:40])
    # The last micro-batch is done again, with a revision of which only the torn files are there.
    (tmp_path / "c" / "commits" / "0").write_bytes(b"")

    result = job.run(route, spark, once=True, checkpoint=tmp_path / "c")

    assert result.counts.read == 20
    assert books(streams) == Counter(range(20))


def test_two_runs_on_one_checkpoint(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The second says who is the first, and the first is not disturbed."""
    route = Route.parse(text(streams), {})
    publish(streams, 0, 10)
    stop = threading.Event()
    first = threading.Thread(target=lambda: job.run(route, spark, checkpoint=tmp_path / "c", stop=stop))
    first.start()
    try:
        wait_for(lambda: streams.stored(streams.sink) == 10)
        with pytest.raises(RunError, match=r"another run has the checkpoint .*: process \d+ on .*, since 20"):
            job.run(route, spark, once=True, checkpoint=tmp_path / "c")
        publish(streams, 10, 20)
        wait_for(lambda: streams.stored(streams.sink) == 20)
    finally:
        stop.set()
        first.join(60)

    assert job.run(route, spark, once=True, checkpoint=tmp_path / "c").counts.read == 0


def test_an_empty_stream(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """``--once`` has nothing to do and ends."""
    result = job.run(Route.parse(text(streams), {}), spark, once=True, checkpoint=tmp_path / "c")

    assert set(result.counts.as_dict().values()) == {0}
    assert result.counts.conserved
    assert not result.stopped


def test_a_clock_that_is_set(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour back, then a day on: the run delivers as ever, and its times are those that passed."""
    wall, steps = time.time, iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: wall() + (-3600 if next(steps) % 2 else 86400))
    publish(streams, 0, 150)
    progress: list[Progress] = []
    begun = time.monotonic()

    result = job.run(
        Route.parse(text(streams), {}), spark, once=True, checkpoint=tmp_path / "c", on_progress=progress.append
    )

    passed = time.monotonic() - begun
    assert books(streams) == Counter(range(150))
    assert 0 < result.seconds <= passed
    assert 0 <= progress[0].seconds <= progress[1].seconds <= progress[2].seconds == pytest.approx(result.seconds)
    assert all(0 <= one.batch_seconds <= passed for one in progress)


@pytest.mark.heavy
def test_a_clock_that_is_set_for_all_processes(streams: Streams, tmp_path: Path) -> None:
    """Hours on and back, for the JVM and the workers too, while Spark looks for lost executors every second: nothing is
    taken for late, and the run delivers as ever."""
    route = write_route(tmp_path, text(streams, more="spark: {spark.network.timeoutInterval: 1s}"))
    with stepped_clock(tmp_path) as clock:
        if isinstance(clock, str):
            pytest.skip(clock)
        with running(tmp_path, route, "--json", env=clock.environment) as switch:
            for n, offset in enumerate((0, 6 * 3600, -3 * 3600, 3600, 0)):
                clock.set(offset)
                for again in range(3):
                    first = 30 * n + 10 * again
                    publish(streams, first, first + 10)
                    wait_for(lambda: not switch.runs() or streams.stored(streams.sink) == first + 10)  # noqa: B023
                    assert switch.runs(), switch.said()[-3000:]
                    # What is looked for every second is looked for with this clock.
                    time.sleep(0.7)
            switch.process.terminate()
            code = switch.wait(60)
    report = _report(switch)

    assert code == 0
    assert report["counts"]["messages"] == 150
    assert books(streams) == Counter(range(150))


@pytest.mark.heavy
def test_a_full_disk(spark: SparkSession, streams: Streams, tmp_path: Path, small_disk: Callable[[str], Path]) -> None:
    """The run says which disk is full; with room again it goes on, and nothing is lost or stored twice."""
    url = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    with contextlib.closing(open_store(url)) as store:
        store.create(Subscription(destinations=(streams.out("x"),), condition=kiwi("subject", "*"), id="all"))
    route = Route.parse(text(streams, batch=10, more=f'subscriptions: {{store: "{url}"}}'), {})
    publish(streams, 0, 200)
    checkpoint = small_disk("size=128k") / "checkpoint"
    with pytest.raises(RunError, match=r"route recovered failed: the disk of the checkpoint, .*, is full; make room"):
        job.run(route, spark, once=True, checkpoint=checkpoint)
    small_disk("size=8m")

    result = job.run(route, spark, once=True, checkpoint=checkpoint)

    assert 0 < result.counts.read < 200
    assert books(streams) == Counter(range(200))


def test_files_as_they_come_done_again(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """A micro-batch of files is matched again with the revision that the checkpoint notes for it."""
    late = f"late-{streams.name}"
    url = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    with contextlib.closing(open_store(url)) as store:
        store.create(Subscription(destinations=(f"{late}.early",), condition=kiwi("town", "Oulu"), id="early"))
    route = Route.parse(
        f"""
name: files
source: {{format: json, path: "{tmp_path / "in"}", stream: true}}
value: {{format: json}}
subscriptions: {{store: "{url}", metadata: {{town: value.town}}}}
sink: {{format: nats, servers: "{streams.url}"}}
""",
        {},
    )
    place_file(tmp_path, 1)
    with pytest.raises((RunError, StreamError)):
        # No stream takes the message yet.
        job.run(route, spark, once=True, checkpoint=tmp_path / "c")
    noted = (tmp_path / "c" / "revisions" / "0").read_text()
    with contextlib.closing(open_store(url)) as store:
        store.delete("early")
        store.create(Subscription(destinations=(streams.out("new"),), condition=kiwi("town", "Oulu"), id="new"))
    with Connection.open(streams.url) as connection:
        create_stream(connection, {"name": late, "subjects": [f"{late}.>"], "storage": "memory"})
    place_file(tmp_path, 2)

    result = job.run(route, spark, once=True, checkpoint=tmp_path / "c")

    with Connection.open(streams.url) as connection:
        again = stream_info(connection, late)["state"]["messages"]
    assert (tmp_path / "c" / "revisions" / "0").read_text() == noted != (tmp_path / "c" / "revisions" / "1").read_text()
    assert again == 1
    assert books(streams) == Counter([2])
    assert result.counts.read == 2


def place_file(folder: Path, n: int) -> None:
    """A file of one record, which is there whole or not at all."""
    (folder / "in").mkdir(exist_ok=True)
    value = json.dumps({"n": n, "town": "Oulu"})
    part = folder / f"{n}.part"
    part.write_text(json.dumps({"topic": "in.x", "partition": 0, "offset": n, "value": value}) + "\n")
    part.rename(folder / "in" / f"{n}.json")


def test_the_jvm_is_killed(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The command ends with one sentence and 1; run again, it goes on exactly."""
    publish(streams, 0, 2000)
    route = write_route(tmp_path, text(streams))
    with running(tmp_path, route) as switch:
        wait_for(lambda: streams.stored(streams.sink) > 100)
        jvm = switch.jvm()
        assert jvm is not None
        jvm.kill()
        code = switch.wait(60)
    lines = [line for line in switch.said().splitlines() if line.startswith("turnout: ")]

    assert code == 1
    assert lines == [
        "turnout: route recovered failed: Spark's JVM ended by SIGKILL; run it again: it continues from its checkpoint"
    ]
    assert streams.stored(streams.sink) < 2000

    job.run(Route.parse(text(streams, batch=2000), {}), spark, once=True, checkpoint=switch.checkpoint)

    assert books(streams) == Counter(range(2000))


@pytest.mark.heavy
def test_sigterm_to_all_processes(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Stopped like a service by its supervisor, the run ends after its micro-batch, with its counts and 0."""
    publish(streams, 0, 2000)
    route = write_route(tmp_path, text(streams))
    with running(tmp_path, route, "--json") as switch:
        wait_for(lambda: streams.stored(streams.sink) > 100)
        for process in switch.all():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        code = switch.wait(60)
    report = _report(switch)
    at_the_stop = streams.stored(streams.sink)

    assert code == 0
    assert report["stopped"]
    assert report["counts"]["messages"] == at_the_stop < 2000

    rest = job.run(Route.load(route), spark, once=True, checkpoint=switch.checkpoint)

    assert rest.counts.messages == 2000 - at_the_stop
    assert books(streams) == Counter(range(2000))
