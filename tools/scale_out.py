"""Extrapolation of a route to many executors, from the constants of the newest results file.

``python -m tools.scale_out --executors 100 --rate 100000000`` prints, for each resource, what is needed, what
there is, and the highest rate; the lowest of these names the bottleneck. It is arithmetic: it knows no skew, no
stragglers and nothing of the time that plans and commits take.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from tools.figures import RESULTS


@dataclass(frozen=True, slots=True)
class Constants:
    """Measured constants: processor µs of a record, messages that a record becomes, index bytes of a subscription."""

    engine_us: float
    server_us: float
    messages: float
    index_bytes: float

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> Constants:
        """Return the constants of a results file.

        Raises:
            KeyError: a case was not measured; the message is its name.
        """
        route = _case(results, "route", "whole route, streaming")
        server = _case(results, "push_down", "read whole")
        memory = _case(results, "memory", "memory")
        return cls(
            _figure(route, "after_first_cpu_us"),
            _figure(server, "server_cpu_us"),
            _figure(route, "messages") / route["size"],
            _figure(memory, "index_mb") * 2**20 / memory["size"],
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Assumed machines: these are chosen, not measured."""

    executors: int = 100
    cores: int = 16
    servers: int = 100
    server_cores: int = 16
    gigabits: float = 25.0
    record_bytes: int = 500


class Resource(NamedTuple):
    """Resource of a cluster, in its own unit, and the highest rate that it carries."""

    name: str
    needed: float
    there: float
    records_per_second: float


def resources(constants: Constants, cluster: Cluster, rate: float) -> list[Resource]:
    """Return what a rate of records per second needs, the bottleneck first."""
    bits = 8 * cluster.record_bytes
    demands = (
        ("executors' cores", constants.engine_us / 1e6, float(cluster.executors * cluster.cores)),
        ("servers' cores", constants.server_us / 1e6, float(cluster.servers * cluster.server_cores)),
        ("network into executors, Gbit/s", bits / 1e9, cluster.executors * cluster.gigabits),
        ("network out of executors, Gbit/s", bits * constants.messages / 1e9, cluster.executors * cluster.gigabits),
    )
    found = [Resource(name, rate * each, there, there / each) for name, each, there in demands]
    return sorted(found, key=lambda resource: resource.records_per_second)


def _case(results: Mapping[str, Any], benchmark: str, name: str) -> Mapping[str, Any]:
    """Return the case with the largest size."""
    cases = [case for case in results["benchmarks"].get(benchmark, {}).get("cases", ()) if case["case"] == name]
    if not cases:
        raise KeyError(f"{benchmark}: {name}")
    largest: Mapping[str, Any] = max(cases, key=lambda case: case["size"])
    return largest


def _figure(case: Mapping[str, Any], name: str) -> float:
    return float(case["figures"][name]["value"])


def main() -> None:
    """Print the table of the newest results file."""
    parser = argparse.ArgumentParser(description=__doc__)
    for field in fields(Cluster):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    parser.add_argument("--rate", type=float, default=100e6)
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    given = vars(parser.parse_args())
    rate, subscriptions = given.pop("rate"), given.pop("subscriptions")
    newest = max(RESULTS.glob("*.json"))
    constants = Constants.of(json.loads(newest.read_text(encoding="utf-8")))
    print(f"{newest.name}: {constants}")
    for name, needed, there, limit in resources(constants, Cluster(**given), rate):
        print(f"{name:34} needs {needed:10,.0f} of {there:8,.0f}; at most {limit / 1e6:8,.1f} M records/s")
    print(f"index: {constants.index_bytes * subscriptions / 2**20:,.0f} MB for each executor")


if __name__ == "__main__":
    main()
