"""Checkpoints at ``s3a://``: Hadoop's own client, against a stand-in of the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.routes import Streams, command, wait_for, write_route
from tests.s3_server import S3Server, jars_of_s3, s3_server

from turnout.conditions import compare
from turnout.subscriptions import Subscription, open_store

pytestmark = [pytest.mark.heavy, pytest.mark.spark, pytest.mark.jetstream]

ROUTE = """
name: test
source: {{format: nats, servers: "{url}", stream: {source}}}
value: {{format: json}}
mappings: {{"in-{name}.*": "out-{name}.all"}}
{more}
sink: {{format: nats, servers: "{url}", stream: {sink}}}
checkpoint: s3a://bucket/checkpoint
spark:
  spark.jars: "{jars}"
  spark.hadoop.fs.s3a.endpoint: {s3}
  spark.hadoop.fs.s3a.endpoint.region: us-east-1
  spark.hadoop.fs.s3a.path.style.access: true
"""


@pytest.fixture(scope="module")
def jars() -> str:
    return jars_of_s3()


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


class Runs:
    """Runs of one route, one after the other, each in a process of its own."""

    def __init__(self, streams: Streams, s3: S3Server, jars: str, folder: Path, more: str = "") -> None:
        names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
        self._streams = streams
        self._published = 0
        self._route = write_route(folder, ROUTE.format(**names, more=more, jars=jars, s3=s3.url))

    def publish(self) -> None:
        self._streams.publish([("a", b'{"n": %d}' % self._published, [])])
        self._published += 1

    def run(self, *options: str, until: Callable[[], bool] | None = None) -> dict[str, int]:
        """Run the route; return the counts of its records. *until* is waited for before a SIGTERM."""
        words = command("run", str(self._route), "--json", "--master", "local[2]", *options)
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            if until is not None:
                wait_for(lambda: process.poll() is not None or until())
                process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err.decode()
        counts = json.loads(out)["counts"]
        return {name: counts[name] for name in ("read", "delivered", "duplicates")}

    def are_delivered(self) -> bool:
        """Return True if everything that was published has been delivered."""
        return self._streams.stored(self._streams.sink) == self._published


@pytest.mark.parametrize(
    ("more", "subscribed"),
    [
        ("trigger: {availableNow: true}", False),
        ("", True),
        ("trigger: {latency: low}", False),
        ("trigger: {latency: low}", True),
    ],
)
def test_runs_continue(streams: Streams, s3: S3Server, jars: str, tmp_path: Path, more: str, subscribed: bool) -> None:
    """Each run reads what has come since the one before, and nothing a second time, whatever its trigger."""
    if subscribed:
        url = f"sqlite:///{tmp_path / 'subscriptions.db'}"
        store = open_store(url)
        store.create_many([Subscription(destinations=(streams.out("all"),), condition=compare("n", ">=", 0), id="all")])
        store.close()
        more += f'\nsubscriptions: {{store: "{url}", metadata: {{n: value.n}}}}'
    runs = Runs(streams, s3, jars, tmp_path, more)
    until = None if "availableNow" in more else runs.are_delivered

    for _ in range(2):
        runs.publish()
        assert runs.run(until=until) == {"read": 1, "delivered": 1, "duplicates": 0}

    assert runs.are_delivered()
    assert sorted(name for name in s3.objects if "/commits/" in name)[-2:] == [
        "bucket/checkpoint/commits/0", "bucket/checkpoint/commits/1",
    ]  # fmt: skip


def test_a_stop_while_a_micro_batch_is_planned(streams: Streams, s3: S3Server, jars: str, tmp_path: Path) -> None:
    """A store that takes seconds for the plan of a micro-batch: it is delivered before the run ends.

    Spark does not report it as work yet. A run that ended here left it to the next one, which delivered two records
    where one had come.
    """
    runs = Runs(streams, s3, jars, tmp_path)
    runs.publish()
    writing = threading.Event()

    def delay(method: str, path: str) -> None:
        if method == "PUT" and "/offsets/.1." in path and not writing.is_set():
            writing.set()
            time.sleep(2)

    def second_is_planned() -> bool:
        if runs.are_delivered() and s3.delay is not delay:
            s3.delay = delay
            runs.publish()
        return writing.is_set()

    assert runs.run(until=second_is_planned) == {"read": 2, "delivered": 2, "duplicates": 0}
    runs.publish()
    assert runs.run("--once") == {"read": 1, "delivered": 1, "duplicates": 0}
    assert runs.are_delivered()
    assert not [name for name in s3.objects if ".tmp" in name]
