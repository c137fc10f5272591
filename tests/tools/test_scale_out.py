"""Extrapolation to many executors."""

from __future__ import annotations

import pytest
from tools.scale_out import Cluster, Constants, resources


def _results(**benchmarks):
    return {"benchmarks": {name: {"cases": cases} for name, cases in benchmarks.items()}}


def _case(name, size, **figures):
    return {"case": name, "size": size, "figures": {figure: {"value": value} for figure, value in figures.items()}}


def test_constants_and_bottleneck():
    """Constants come from the largest case; the resource that carries the least comes first."""
    results = _results(
        route=[_case("whole route, streaming", 1000, after_first_cpu_us=20.0, messages=500)],
        push_down=[_case("read whole", 10, server_cpu_us=5.0)],
        memory=[_case("memory", 1, index_mb=7.0), _case("memory", 1024, index_mb=0.125)],
    )
    constants = Constants.of(results)

    assert constants == Constants(20.0, 5.0, 0.5, 128.0)
    cluster = Cluster(executors=10, cores=2, servers=1, server_cores=4, gigabits=1.0, record_bytes=1000)
    found = resources(constants, cluster, 2e6)
    assert [(one.name, one.needed, round(one.records_per_second)) for one in found[:2]] == [
        ("servers' cores", 10.0, 800_000),
        ("executors' cores", 40.0, 1_000_000),
    ]


def test_a_missing_case():
    """A results file without a case is refused with its name."""
    with pytest.raises(KeyError, match="route: whole route, streaming"):
        Constants.of(_results(memory=[]))
