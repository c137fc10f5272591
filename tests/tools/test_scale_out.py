"""Extrapolation to many executors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tools.scale_out import Cluster, Constants, driver_of, resources


def _case(name, size, **figures):
    return {"case": name, "size": size, "figures": {figure: {"value": value} for figure, value in figures.items()}}


_ROWS = {
    "route": [_case("whole route, streaming", 1000, after_first_cpu_us=20.0, messages=500)],
    "push_down": [_case("read whole", 10, server_cpu_us=5.0)],
    "memory": [_case("memory", 1, index_mb=7.0), _case("memory", 1000, index_mb=0.125)],
    "cluster": [
        _case("4 workers", 10, planning_ms=60.0, committing_ms=40.0, driver_task_us=5_000.0),
        _case("index to 4 hosts", 10, index_mb=4.0, driver_cpu_ms=8.0),
    ],
}
_CLUSTER = Cluster(
    executors=10, cores=2, servers=1, server_cores=4, gigabits=1.0, record_bytes=1000, interval=1.0, subscriptions=8_000
)


def test_constants_and_bottleneck():
    """Constants come from the largest case; the resource that carries the least comes first."""
    constants = Constants.of(_ROWS.__getitem__)

    assert constants == Constants(20.0, 5.0, 0.5, 125.0, 100.0, 5_000.0, 2.0)
    found = resources(constants, _CLUSTER, 2e6)
    assert [(one.name, one.needed, round(one.there), round(one.records_per_second)) for one in found[:2]] == [
        ("executors' cores", 40.0, 16, 800_000),
        ("servers' cores", 10.0, 4, 800_000),
    ]


def test_the_drivers_times():
    """Executors wait while the driver plans, starts a task for each core and commits; an index is copied to each."""
    constants = Constants.of(_ROWS.__getitem__)

    assert list(driver_of(constants, _CLUSTER)) == pytest.approx([0.2, 1.0, 0.02])
    slow = replace(_CLUSTER, interval=0.1)
    assert resources(constants, slow, 1.0)[0].records_per_second == 0.0


def test_a_missing_case():
    """A benchmark without a case is refused with its name."""
    with pytest.raises(KeyError, match="route: whole route, streaming"):
        Constants.of(lambda _: [])
