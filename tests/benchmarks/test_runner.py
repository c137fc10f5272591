"""Running benchmarks: what happens to one case leaves the others alone, and everything measured is in the file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks._results import ResultsFile
from benchmarks._runner import SHARES, _received, measured, rows
from benchmarks.harness import CannotRunError, Case, Options, Result, Setup, names, timed, unit_of

from benchmarks import _results

RESULT = Result("good", 10, (100.0, 300.0, 200.0), Setup("new", 5, 1), "slow", 2.0, {"cpu_us": 5.0, "matches": 3})


def _missing() -> Iterable[Result]:
    raise CannotRunError("no such program")


def _wrong() -> Iterator[Result]:
    yield RESULT
    raise ValueError("too late")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> str:
    """A benchmark with a case that fails, one that cannot run, and one that can."""
    module = ModuleType("benchmarks.fake")
    made = [Case("wrong", _wrong), Case("missing", _missing), Case("good", lambda: [RESULT])]
    module.cases = lambda options: iter(made)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.fake", module)
    return "fake"


def told(found: Iterable[dict[str, object]]) -> list[tuple[object, object, object]]:
    return [(row["case"], row["status"], row.get("reason")) for row in found if row["status"] != "running"]


def test_other_cases_go_on(fake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure and a missing peer are rows with their reasons, and the traceback is on standard error."""
    assert told(measured(fake, Options())) == [
        ("good", "measured", None),
        ("wrong", "failed", "ValueError: too late"),
        ("missing", "skipped", "no such program"),
        ("good", "measured", None),
    ]
    assert "too late" in capsys.readouterr().err


def test_cases_are_chosen_by_name(fake: str) -> None:
    """Only those whose name contains a text."""
    assert told(measured(fake, Options(cases=("goo",)))) == [("good", "measured", None)]


def test_time_that_is_over_skips_cases(fake: str) -> None:
    """No case starts after the deadline, and each skipped case is listed."""
    found = told(measured(fake, Options(), time.monotonic() - 1))

    assert [status for _, status, _ in found] == ["skipped"] * 3
    assert "time" in str(found[0][2])


def test_benchmark_without_any_time_is_not_begun() -> None:
    """The one that would come after the end of the budget, whose servers would take some more."""
    assert [status for _, status, _ in told(rows("fake", Options(), 0.0))] == ["skipped"]


def test_hanging_case_is_named() -> None:
    """When the time is over the case that was running has failed."""
    receiver, sender = Pipe(duplex=False)
    sender.send({"case": "slow", "status": "running"})

    (row,) = _received(receiver, time.monotonic() + 0.2)

    assert (row["case"], row["status"]) == ("slow", "failed")


def test_dead_process_is_a_failure() -> None:
    """It is reported, and does not raise."""
    receiver, sender = Pipe(duplex=False)
    sender.close()

    (row,) = _received(receiver, None)

    assert (row["status"], row["reason"]) == ("failed", "the process of the benchmark died")


def test_child_process_measures() -> None:
    """A benchmark runs in a separate process, and its rows are returned."""
    (row,) = rows("match", Options(size=100, quick=True, cases=("alerts: micro-batch",)), 100.0)

    assert (row["status"], row["size"]) == ("measured", 100)
    assert (row["records"], row["batch"], row["threads"]) == ("new", 1_000, 1)


def test_row_has_unit_setup_and_spread() -> None:
    """Every figure says how it was measured."""
    row = RESULT.row()

    assert (row["rows_per_second"], row["min"], row["max"], row["repeats"]) == (200.0, 100.0, 300.0, 3)
    assert (row["records"], row["batch"], row["threads"], row["unit"]) == ("new", 5, 1, "1/s")
    assert row["figures"] == {"cpu_us": {"value": 5.0, "unit": "µs"}, "matches": {"value": 3, "unit": ""}}
    assert unit_of("net_per_second") == "1/s"


def test_file_has_every_row_at_once(tmp_path: Path) -> None:
    """A run that is killed after its first row leaves that row, with machine, versions and load."""
    file = ResultsFile.of_today(tmp_path)
    next(file.recorded("fake", Options(quick=True), iter([RESULT.row(), {"case": "next"}])))
    content = json.loads(file.path.read_text(encoding="utf-8"))

    assert content["schema"] == 1
    assert content["machine"].keys() >= {"cpu", "cores"}
    assert content["versions"].keys() >= {"turnout", "python", "numpy", "pyarrow", "pyspark", "nats-server"}
    run = content["benchmarks"]["fake"]
    assert run.keys() >= {"commit", "at", "load_before", "load_after"}
    assert (run["options"], [case["case"] for case in run["cases"]]) == ({"quick": True}, ["good"])


def test_chosen_cases_replace_their_own_rows(tmp_path: Path) -> None:
    """The others of the day stay; a whole run replaces all."""
    other, again = RESULT.row() | {"case": "other"}, RESULT.row() | {"max": 7.0}
    for options, given in ((Options(), [RESULT.row(), other]), (Options(cases=("good",)), [again])):
        file = ResultsFile(tmp_path / "file.json")
        list(file.recorded("fake", options, given))
    cases = json.loads(file.path.read_text(encoding="utf-8"))["benchmarks"]["fake"]["cases"]

    assert [(case["case"], case["max"]) for case in cases] == [("other", 300.0), ("good", 7.0)]


def test_a_case_that_failed_is_gone_when_it_is_measured(tmp_path: Path) -> None:
    """Its results have longer names; the failure of a case that is not measured again stays."""
    failed = [{"case": name, "status": "failed", "reason": "no server"} for name in ("good", "bad")]
    for options, given in ((Options(), failed), (Options(cases=("good",)), [RESULT.row() | {"case": "good, twice"}])):
        file = ResultsFile(tmp_path / "file.json")
        list(file.recorded("fake", options, given))
    cases = json.loads(file.path.read_text(encoding="utf-8"))["benchmarks"]["fake"]["cases"]

    assert [(case["case"], case["status"]) for case in cases] == [("bad", "failed"), ("good, twice", "measured")]


def test_every_benchmark_has_a_share_of_the_time() -> None:
    """That of ``turnout bench all``."""
    assert sorted(SHARES) == names()


def test_saved_files_are_of_the_schema() -> None:
    """Each file that the pages are written from has it, and no case without a status."""
    for path in _results.FOLDER.glob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        found = [case for run in content["benchmarks"].values() for case in run["cases"]]

        assert content["schema"] == 1
        assert {case["status"] for case in found} <= {"measured", "failed", "skipped"}
        assert {case["records"] for case in found if case["status"] == "measured"} <= {"new", "none"}


def test_each_repeat_is_prepared() -> None:
    """Each timed run gets its own records, and the first run is not counted."""
    prepared = iter(range(10))
    given: list[int] = []

    seconds = timed(2, lambda: next(prepared), given.append)

    assert (len(seconds), given) == (2, [0, 1, 2])
