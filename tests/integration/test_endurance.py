"""What a run takes of the machine over hundreds of micro-batches; ``make soak`` runs it.

``TURNOUT_SOAK_BATCHES`` says how many. The figures are printed for every fiftieth.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass, fields
from pathlib import Path

import psutil
import pytest
from tests.integration.routes import write_route
from tests.integration.switch import Switch, running
from tests.integration.traffic import create_streams, subscriptions

from turnout.conditions import kiwi
from turnout.embedded import NatsServer
from turnout.errors import SubscriptionNotFoundError
from turnout.nats.wire import Connection, Publisher
from turnout.subscriptions import Store, Subscription, open_store

_EVERY = 50
_RECORDS = 100
_SUBSCRIPTIONS = 1000
_SETTLED_FROM = 150
"""Until then pools fill, Spark keeps its first hundred entries of the checkpoint, and the JVM compiles."""

ROUTE = """
name: endurance
source: {{format: nats, servers: "{url}", stream: IN, maxRecordsPerTrigger: {records}}}
value: {{format: json}}
subscriptions: {{store: "{store}", metadata: {{bucket: value.bucket}}}}
sink: {{format: nats, servers: "{url}", stream: OUT}}
# As small as Spark takes it: a heap that may grow to a gigabyte would hide for an hour what else grows.
spark: {{spark.driver.memory: 480m}}
"""


@dataclass(frozen=True, slots=True)
class Use:
    """Megabytes of memory and disk, and open files.

    The workers are all Python processes but the driver, of which Spark ends those that are idle for a minute: *worker*
    and *worker_files* are of the one that has most.
    """

    batch: int
    processes: int
    driver: float
    jvm: float
    heap: float
    workers: float
    worker: float
    driver_files: int
    jvm_files: int
    worker_files: int
    checkpoint: float
    scratch: float

    def __str__(self) -> str:
        return "  ".join(f"{item.name} {getattr(self, item.name):g}" for item in fields(self))

    @classmethod
    def of(cls, switch: Switch, batch: int, scratch: Path) -> Use:
        jvm, helpers = switch.jvm(), switch.helpers()
        assert jvm is not None
        heap = _live(jvm)
        memory = list(map(_own, helpers))
        return cls(
            batch=batch,
            processes=len(helpers) + 2,
            driver=_own(switch.process),
            jvm=_own(jvm),
            heap=heap,
            workers=sum(memory),
            worker=max(memory),
            driver_files=_files(switch.process),
            jvm_files=_files(jvm),
            worker_files=max(map(_files, helpers)),
            checkpoint=_size(switch.checkpoint),
            scratch=_size(scratch),
        )


def _live(jvm: psutil.Process) -> float:
    """Return the live heap of the JVM after a collection; 0 if its JDK has no tool for this."""
    program = Path(jvm.exe()).with_name("jcmd")
    if not program.exists():
        return 0.0
    subprocess.run([program, str(jvm.pid), "GC.run"], stdout=subprocess.DEVNULL, check=True)
    printed = subprocess.run([program, str(jvm.pid), "GC.heap_info"], capture_output=True, text=True, check=True).stdout
    tenured = re.search(r"tenured generation .* used (\d+)K", printed)
    return int(tenured[1]) / 1e3 if tenured else 0.0


def _own(process: psutil.Process) -> float:
    """Return the private memory of a process; memory shared by forked workers is not counted."""
    with contextlib.suppress(psutil.Error):
        return float(process.memory_full_info().uss) / 1e6
    return 0.0


def _files(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return process.num_fds()
    return 0


def _size(folder: Path) -> float:
    """Of all its files, which may go while they are counted."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).stat().st_blocks * 512
    return total / 1e6


MAY_GROW = {
    "processes": 2,
    "driver": 5.0,
    # Its compiled code and what the collector has touched once: both have bounds that it takes longer to reach.
    "jvm": 40.0,
    "heap": 10.0,
    "worker": 5.0,
    "driver_files": 3,
    "jvm_files": 25,
    "worker_files": 6,
    "checkpoint": 1.0,
    "scratch": 2.0,
}
"""By how much the later half of a run that has settled may be above the half before it: noise, and not a trend."""


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_grows(tmp_path: Path) -> None:
    """Memory, open files and disk are as they were a third of the run before; subscriptions come and go meanwhile."""
    batches = int(os.environ.get("TURNOUT_SOAK_BATCHES", "500"))
    url = f"sqlite:///{tmp_path / 'subscriptions.db'}"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with NatsServer(tmp_path / "nats") as server, contextlib.closing(open_store(url)) as store:
        store.create_many(subscriptions(_SUBSCRIPTIONS))
        create_streams(server)
        _publish(server, batches * _RECORDS)
        route = write_route(tmp_path, ROUTE.format(url=server.url, store=url, records=_RECORDS))
        uses: list[Use] = []
        seen = -1
        with running(tmp_path, route, env={"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}) as switch:
            while seen < batches - 1:
                assert switch.runs(), switch.said()[-3000:]
                newest = _newest(switch)
                if newest // 10 > seen // 10:
                    _change(store, newest // 10)
                if newest // _EVERY > seen // _EVERY and newest >= _EVERY:
                    uses.append(Use.of(switch, newest, scratch))
                    print(
                        "  ".join(f"{item.name} {getattr(uses[-1], item.name):g}" for item in fields(Use)), flush=True
                    )
                seen = newest
                time.sleep(0.05)

    settled = [use for use in uses if use.batch >= min(_SETTLED_FROM, batches // 3)]
    before, after = settled[: len(settled) // 2], settled[len(settled) // 2 :]
    growth = {name: _mean(after, name) - _mean(before, name) for name in MAY_GROW}
    print(f"growth { ({name: round(value, 1) for name, value in growth.items()}) }")
    assert {name: value for name, value in growth.items() if value > MAY_GROW[name]} == {}


def _mean(uses: list[Use], name: str) -> float:
    return float(sum(getattr(use, name) for use in uses) / len(uses))


def _newest(switch: Switch) -> int:
    """The number of the last micro-batch that is committed; -1 before the first."""
    folder = switch.checkpoint / "commits"
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)


def _change(store: Store, number: int) -> None:
    """One subscription comes, and one goes."""
    store.create(Subscription(destinations=(f"out.t{number}",), condition=kiwi("bucket", str(number)), id=f"t{number}"))
    with contextlib.suppress(SubscriptionNotFoundError):
        store.delete(f"t{number - 1}")


def _publish(server: NatsServer, count: int) -> None:
    with Connection.open(server.url) as connection, Publisher(connection) as publisher:
        for n in range(count):
            publisher.publish(f"in.{n % 60}", json.dumps({"n": n, "bucket": n % 997}).encode())
