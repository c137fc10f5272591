"""What routes cost that have nothing to do: `turnout serve` over one and over twenty of them, on a quiet machine."""

from __future__ import annotations

import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks._serving import serving
from benchmarks.harness import Case, Options, Result, Setup
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, create_stream

ROUTES = 20
_TRIGGERS = {
    "default trigger": "",
    "low latency": "trigger: {latency: low}",
    "every second": "trigger: {processingTime: 1 second}",
}
_ROUTE = """
name: route-{number}
source: {{format: nats, servers: "{url}", stream: IN_{number}}}
value: {{format: json}}
mappings: {{"in.{number}.*": "out.{number}.{{{{wildcard(1)}}}}"}}
sink: {{format: nats, servers: "{url}", stream: OUT}}
{trigger}
"""
_PARTS = ("server", "jvm", "workers", "nats")
_PATIENCE = 240.0


def cases(options: Options) -> Iterator[Case]:
    """Each trigger with one, two, and many routes."""
    most = options.rows(ROUTES, 4)
    for name, trigger in _TRIGGERS.items():
        yield Case(f"idle, {name}", partial(_growing, name, trigger, most, quick=options.quick))


def _growing(name: str, trigger: str, most: int, *, quick: bool) -> Iterator[Result]:
    first: dict[str, float] | None = None
    for routes in dict.fromkeys((1, most)):
        # Spark ends Python workers that had nothing to do for a minute: three of a route's four, of 40 MB each.
        shares, memory = _measured(routes, trigger, 5 if quick else 30, 5 if quick else 75)
        first = first or shares
        yield _result(f"{routes} idle, {name}", routes, shares, first, memory)


def _result(
    case: str, routes: int, shares: Mapping[str, float], first: Mapping[str, float], memory: Mapping[str, int]
) -> Result:
    """Shares of a core, the nats-server's aside, and what each route beyond the first adds, in hundredths of a core."""
    ours = sum(shares.values()) - shares["nats"]
    figures = {"core_percent": 100 * ours, **{f"{part}_core_percent": 100 * share for part, share in shares.items()}}
    if routes > 1:
        figures["each_more_core_percent"] = 100 * (ours - sum(first.values()) + first["nats"]) / (routes - 1)
    figures |= {f"{part}_mb": size / 2**20 for part, size in memory.items() if part != "nats"}
    return Result(case, routes, (0.0,), Setup("none", None, 2), extra=figures)


def _measured(routes: int, trigger: str, seconds: int, settle: int) -> tuple[dict[str, float], dict[str, int]]:
    """The share of a core that each part of a server takes, and its memory, where every route has run once."""
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder, NatsServer(Path(folder) / "nats") as server:
        files = Path(folder) / "routes"
        files.mkdir()
        with Connection.open(server.url) as connection:
            create_stream(connection, {"name": "OUT", "subjects": ["out.>"]})
            for number in range(routes):
                create_stream(connection, {"name": f"IN_{number}", "subjects": [f"in.{number}.>"]})
                text = _ROUTE.format(number=number, url=server.url, trigger=trigger)
                (files / f"route-{number}.yaml").write_text(text, encoding="utf-8")
        with serving(files) as (process, url), Connection.open(server.url) as connection:
            for number in range(routes):
                connection.publish(f"in.{number}.x", b"{}")
            connection.ping()
            _wait_until_read(url, routes)
            time.sleep(settle)
            return _shares(process, psutil.Process(server.pid), seconds)


def _wait_until_read(url: str, records: int) -> None:
    """Until so many records are delivered, by all routes together."""
    deadline = time.monotonic() + _PATIENCE
    delivered = 0.0
    while delivered < records:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {delivered:.0f} of {records} routes have delivered their record")
        time.sleep(0.5)
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as response:
            families = text_string_to_metric_families(response.read().decode())
        delivered = sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "turnout_route_records_total" and sample.labels["outcome"] == "delivered"
        )


def _shares(server: psutil.Process, nats: psutil.Process, seconds: int) -> tuple[dict[str, float], dict[str, int]]:
    before, begun = _times(server, nats), time.monotonic()
    time.sleep(seconds)
    passed, after = time.monotonic() - begun, _times(server, nats)
    shares = dict.fromkeys(_PARTS, 0.0)
    memory = dict.fromkeys(_PARTS, 0)
    for pid, (part, spent, size) in after.items():
        shares[part] += (spent - (before[pid][1] if pid in before else 0.0)) / passed
        memory[part] += size
    return shares, memory


def _times(server: psutil.Process, nats: psutil.Process) -> dict[int, tuple[str, float, int]]:
    """Of each process: which part it is of, its processor time, and its memory, of shared pages its part."""
    seen: dict[int, tuple[str, float, int]] = {}
    for process in (server, *server.children(recursive=True), nats):
        with suppress(psutil.NoSuchProcess):
            part = "server" if process.pid == server.pid else "nats" if process.pid == nats.pid else "workers"
            part = "jvm" if process.name() == "java" else part
            times = process.cpu_times()
            seen[process.pid] = part, times.user + times.system, process.memory_full_info().pss
    return seen
