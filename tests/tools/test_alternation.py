"""`tools.alternation`: two workers give times for the same records, and describe conditions alike."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.harness import Options
from benchmarks.match import workloads
from tools.alternation_worker import condition

from tools import alternation

_SIZE = 20


@pytest.fixture
def workers() -> Iterator[tuple[alternation.Worker, alternation.Worker]]:
    pair = alternation.Worker(alternation.ROOT), alternation.Worker(alternation.ROOT)
    yield pair
    for worker in pair:
        worker.close()


def test_conditions_of_all_workloads_are_described() -> None:
    for workload in workloads(Options(size=_SIZE)):
        for subscription in workload.subscriptions(_SIZE):
            written = pickle.loads(pickle.dumps(alternation._tree(subscription.condition)))
            assert condition(written) == subscription.condition, workload.name


def test_both_sides_run_each_round(workers: tuple[alternation.Worker, alternation.Worker], tmp_path: Path) -> None:
    messages = [{"city": f"c{number}"} for number in range(60)]
    file = tmp_path / "match.pickle"
    file.write_bytes(pickle.dumps(([("one", ("d",), ("Kiwi", "city", "c1*", False, False, False))], messages)))
    case = {"kind": "match", "name": "few", "file": str(file), "mode": "ids", "batch": 10, "begin": 0, "size": 20}
    comparison = alternation.compared(case, workers, tmp_path, rounds=2)
    assert len(comparison.ratios) == 2
    assert comparison.own_us > 0
    assert comparison.other_us > 0
    assert comparison.line().endswith("few")


def test_a_worker_of_another_turnout_is_refused(tmp_path: Path) -> None:
    worker = alternation.Worker(tmp_path)
    with pytest.raises(ChildProcessError, match="ended at the request 'round 0'"):
        worker.ask("round 0")
    worker.close()


def test_quartiles_of_a_line() -> None:
    line = alternation.Comparison("case", (0.5, 1.0, 1.5), 3.0, 4.0).line()
    assert line.split() == ["1.000", "0.500", "1.500", "3.00", "4.00", "case"]
