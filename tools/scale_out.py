"""Extrapolation of a route to many executors, from the constants of the newest results files.

``python -m tools.scale_out --executors 100 --rate 100000000`` prints, for each resource, what is needed, what
there is, and the highest rate that it carries; the lowest of these is the bottleneck. It is arithmetic: every executor
is as fast as the measured machine for each core, load is spread evenly, and nothing fails.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple

from tools.figures import Row, rows, value_of


@dataclass(frozen=True, slots=True)
class Constants:
    """Measured constants.

    Attributes:
        engine_us: processor time of a record outside nats-server.
        server_us: processor time of nats-server for reading a record and storing its messages.
        messages: messages that a record becomes.
        index_bytes: index of a subscription.
        batch_ms: planning and committing a micro-batch.
        task_us: processor time of the driver for a task.
        copy_ms: processor time of the driver for copying a megabyte of the index to an executor.
    """

    engine_us: float
    server_us: float
    messages: float
    index_bytes: float
    batch_ms: float
    task_us: float
    copy_ms: float

    @classmethod
    def of(cls, measured: Callable[[str], Iterable[Row]]) -> Constants:
        """Return the constants of the rows of benchmarks.

        Raises:
            KeyError: a case was not measured; the message is its name.
        """

        def case(benchmark: str, name: str) -> Callable[[str], float]:
            found = [row for row in measured(benchmark) if row["case"] == name]
            if not found:
                raise KeyError(f"{benchmark}: {name}")
            largest = max(found, key=lambda row: row["size"])
            return lambda figure: float(value_of(largest, figure))

        route, memory = case("route", "whole route, streaming"), case("memory", "memory")
        cluster, index = case("cluster", "4 workers"), case("cluster", "index to 4 hosts")
        return cls(
            engine_us=route("after_first_cpu_us"),
            server_us=case("push_down", "read whole")("server_cpu_us"),
            messages=route("messages") / route("size"),
            index_bytes=memory("index_mb") * 1e6 / memory("size"),
            batch_ms=cluster("planning_ms") + cluster("committing_ms"),
            task_us=cluster("driver_task_us"),
            copy_ms=index("driver_cpu_ms") / index("index_mb"),
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Assumed machines, subscriptions and records: these are chosen, not measured.

    Attributes:
        interval: seconds of a micro-batch.
    """

    executors: int = 100
    cores: int = 16
    servers: int = 100
    server_cores: int = 16
    gigabits: float = 25.0
    record_bytes: int = 500
    interval: float = 10.0
    subscriptions: int = 1_000_000


class Resource(NamedTuple):
    """Resource of a cluster, in its own unit, and the highest rate that it carries."""

    name: str
    needed: float
    there: float
    records_per_second: float


class Driver(NamedTuple):
    """Times of the driver, which do not depend on the rate.

    Attributes:
        batch_seconds: planning, starting the tasks of and committing a micro-batch, while the executors wait.
        index_megabytes: index of each executor.
        copy_seconds: copying the whole index to all executors, at the beginning and when its base is built again.
    """

    batch_seconds: float
    index_megabytes: float
    copy_seconds: float


def driver_of(constants: Constants, cluster: Cluster) -> Driver:
    """Return the driver's times, with a task for each core of the executors."""
    tasks = cluster.executors * cluster.cores
    megabytes = constants.index_bytes * cluster.subscriptions / 1e6
    batch = constants.batch_ms / 1e3 + tasks * constants.task_us / 1e6
    return Driver(batch, megabytes, cluster.executors * megabytes * constants.copy_ms / 1e3)


def resources(constants: Constants, cluster: Cluster, rate: float) -> list[Resource]:
    """Return what a rate of records per second needs, the bottleneck first."""
    bits = 8 * cluster.record_bytes
    network = cluster.executors * cluster.gigabits
    busy = max(0.0, 1 - driver_of(constants, cluster).batch_seconds / cluster.interval)
    demands = (
        ("executors' cores", constants.engine_us / 1e6, cluster.executors * cluster.cores * busy),
        ("servers' cores", constants.server_us / 1e6, float(cluster.servers * cluster.server_cores)),
        ("network into executors, Gbit/s", bits / 1e9, network),
        ("network out of executors, Gbit/s", bits * constants.messages / 1e9, network),
    )
    found = [Resource(name, rate * each, there, there / each) for name, each, there in demands]
    return sorted(found, key=lambda resource: resource.records_per_second)


def page_part(rate: float, cluster: Cluster | None = None) -> str:
    """Return the extrapolation as Markdown, for pages and for the command."""
    cluster = cluster or Cluster()
    try:
        constants = Constants.of(rows)
    except KeyError as missing:
        return f"\n\nNot computed: {missing.args[0]} was not measured.\n\n"
    found, driver = resources(constants, cluster, rate), driver_of(constants, cluster)
    assumed = ", ".join(f"{_spoken(field.name)} {getattr(cluster, field.name):,}" for field in fields(Cluster))
    measured = ", ".join(f"{_spoken(field.name)} {getattr(constants, field.name):,.3g}" for field in fields(Constants))
    table = [
        "| resource | needed | there | carries, M records/s |",
        "| --- | --: | --: | --: |",
        *(f"| {name} | {needed:,.0f} | {there:,.0f} | {limit / 1e6:,.1f} |" for name, needed, there, limit in found),
    ]
    share = driver.batch_seconds / cluster.interval
    reached = "is reached" if found[0].records_per_second >= rate else "is not reached"
    waiting = f"{driver.batch_seconds:,.2f} s of each micro-batch, {share:.0%} of its interval"
    copying = f"{driver.copy_seconds:,.1f} s of the driver's processor time"
    sentences = [
        f"{rate:,.0f} records/s {reached}: the first bottleneck is {found[0].name}.",
        f"Planning, starting tasks and committing take {waiting}, in which the executors wait.",
        f"Each executor has {driver.index_megabytes:,.0f} MB of index; copying it to all of them takes {copying}.",
    ]
    return "\n\n".join(["", f"Measured: {measured}. Assumed: {assumed}.", "\n".join(table), " ".join(sentences), ""])


def _spoken(name: str) -> str:
    words = name.split("_")
    return " ".join([*words[:-1], {"us": "µs", "ms": "ms"}.get(words[-1], words[-1])])


def main() -> None:
    """Print the extrapolation."""
    parser = argparse.ArgumentParser(description=__doc__)
    for field in fields(Cluster):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    parser.add_argument("--rate", type=float, default=100e6)
    given = vars(parser.parse_args())
    rate = given.pop("rate")
    print(page_part(rate, Cluster(**given)).strip())


if __name__ == "__main__":
    main()
