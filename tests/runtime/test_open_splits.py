"""Ledger of open splits: positions, attempts and counts, as driver and tasks use it."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.fakes import FakeRevisions, read

from turnout.base.histogram import Histogram
from turnout.base.untrusted import LARGEST_SEQUENCE
from turnout.engine.counts import NUMBERS, Counts, Flow
from turnout.runtime import open_splits
from turnout.runtime.open_splits import (
    OpenProgress,
    OpenSplits,
    Plan,
    ProgressFolder,
    SlotUse,
    TaskSlots,
    position_after,
)


def test_a_new_split_begins_where_it_was_planned(tmp_path: Path) -> None:
    """The next one begins after the recorded position, with another number."""
    splits = OpenSplits(tmp_path)
    assert splits.plan(None) == Plan(None, 1, opens=False)
    splits.seconds = 30.0
    assert splits.plan(None) == Plan(None, 1, opens=True)
    attempt = splits.begin(1, 17, 5)
    assert (attempt.progress, attempt.seconds) == (OpenProgress(17), 30.0)

    assert splits.record(attempt, OpenProgress(20, read(3)), final=True)

    assert splits.plan(1) == Plan(20, 2, opens=True)


def test_an_attempt_goes_on_where_the_last_one_recorded(tmp_path: Path) -> None:
    """With its counts; what the replaced attempt still reports is refused."""
    splits = OpenSplits(tmp_path)
    first = splits.begin(1, 1, None)
    assert splits.record(first, OpenProgress(11, read(10)), final=False)

    second = splits.begin(1, 1, None)

    assert (second.progress.next, second.progress.counts) == (11, read(10))
    assert not splits.holds(first)
    assert not splits.record(first, OpenProgress(99, read(98)), final=True)
    assert splits.record(second, OpenProgress(16, read(15)), final=False)
    assert splits.counts() == {1: read(15)}
    assert splits.committed(1, read(15)) == read(15)
    assert splits.counts() == {}


def test_a_number_is_never_used_twice(tmp_path: Path) -> None:
    """Not even if the checkpoint has lost the offset that it belongs to."""
    before = OpenSplits(tmp_path)
    before.record(before.begin(7, 1, None), OpenProgress(5), final=False)

    splits = OpenSplits(tmp_path)

    assert splits.plan(None).number == 8
    assert splits.plan(6) == Plan(None, 8, opens=False)
    assert splits.plan(12).number == 13


def test_the_counts_of_another_process_are_counted_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed before its micro-batch was reported; those of this process were reported as they were recorded."""
    monkeypatch.setattr(open_splits, "PROCESS", "killed")
    killed = OpenSplits(tmp_path)
    killed.record(killed.begin(1, 1, None), OpenProgress(11, read(10)), final=False)
    monkeypatch.undo()

    first = OpenSplits(tmp_path)
    attempt = first.begin(1, 1, None)
    assert first.counts() == {1: read(10)}
    assert first.record(attempt, OpenProgress(14, read(13)), final=False)
    assert first.counts() == {1: read(13)}
    first.end()
    assert not first.record(attempt, OpenProgress(15, read(14)), final=False)

    second = OpenSplits(tmp_path)
    attempt = second.begin(1, 1, None)
    assert attempt.progress.counts == read(13)
    assert second.counts() == {1: read(0)}
    assert second.record(attempt, OpenProgress(21, read(20)), final=True)
    assert second.counts() == {1: read(7)}
    assert second.committed(1, read(20)) == read(7)


def test_records_are_done_again_with_their_revision(tmp_path: Path) -> None:
    """The recorded one, or a later one where it is not kept any more; the newest where none was recorded."""
    splits = OpenSplits(tmp_path, FakeRevisions(9))
    assert splits.begin(1, 1, 4).progress.revision == 4
    splits.record(splits.begin(1, 1, 4), OpenProgress(5, read(4), 6), final=False)
    assert splits.revision == 6

    assert OpenSplits(tmp_path, FakeRevisions(9)).begin(1, 1, 4).progress.revision == 6
    assert OpenSplits(tmp_path, FakeRevisions(9, oldest=8)).begin(1, 1, 4).progress.revision == 8
    assert OpenSplits(tmp_path, FakeRevisions(9)).begin(2, 1, None).progress.revision == 9
    assert OpenSplits(tmp_path).begin(1, 1, 4).progress.revision is None


def test_a_run_that_stops_opens_nothing(tmp_path: Path) -> None:
    """A task that begins then ends at once."""
    splits = OpenSplits(tmp_path)
    splits.seconds = 30.0

    splits.close()

    attempt = splits.begin(1, 1, None)
    assert splits.closes(attempt)
    assert attempt.seconds == 0
    assert not splits.plan(1).opens


def test_progress_is_marked_with_the_process(tmp_path: Path) -> None:
    """The mark is independent of the task's own process."""
    splits = OpenSplits(tmp_path)
    splits.record(splits.begin(1, 1, None), OpenProgress(5, process="task"), final=False)

    recorded = ProgressFolder(tmp_path).read(1)

    assert recorded is not None
    assert recorded.process == open_splits.PROCESS


def test_splits_stay_open_by_what_a_gap_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one for a moment; then so long that at most a five-hundredth of the time is lost."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    splits = OpenSplits(tmp_path)
    splits.open()
    first = splits.begin(1, 5, None)
    splits.reads(first)
    assert (splits.ready, splits.gap, first.seconds) == (False, None, open_splits.FIRST_SECONDS)
    splits.record(first, OpenProgress(9), final=True)
    now += 0.08
    second = splits.begin(2, 9, None)
    assert splits.gap is None
    splits.reads(second)

    assert splits.gap == pytest.approx(0.08)
    third = splits.begin(3, 9, None)
    assert third.seconds == pytest.approx(40.0)
    assert not splits.ready
    splits.reads(third)
    assert splits.ready


def test_a_backlog_between_two_splits_is_no_gap(tmp_path: Path) -> None:
    """The source has planned a micro-batch with an end behind the last split: its time says nothing of the next one."""
    splits = OpenSplits(tmp_path)
    splits.open()
    splits.record(splits.begin(1, 5, None), OpenProgress(9), final=True)
    splits.plan(None)
    splits.reads(splits.begin(2, 100_000, None))

    assert splits.gap is None
    assert splits.seconds == open_splits.FIRST_SECONDS


def test_a_stop_is_not_undone_by_a_task_that_begins(tmp_path: Path) -> None:
    """It measures a gap, and opens nothing."""
    splits = OpenSplits(tmp_path)
    splits.open()
    splits.record(splits.begin(1, 5, None), OpenProgress(9), final=True)
    second = splits.begin(2, 9, None)
    splits.close()
    splits.reads(second)

    assert splits.closes(second)


WHOLE = st.integers(0, LARGEST_SEQUENCE)


@given(WHOLE, st.lists(WHOLE, min_size=len(NUMBERS), max_size=len(NUMBERS)), st.none() | WHOLE)
def test_what_is_written_is_read(sequence: int, numbers: list[int], revision: int | None) -> None:
    """Position, counts with their flow, and revision."""
    flow = Flow({"source": 3, "sink": 2}, {"value": 1}, Histogram.of(0.5))
    progress = OpenProgress(sequence, Counts(*numbers, flow=flow), revision, "p")

    read = OpenProgress.from_dict(progress.as_dict())

    assert read == progress
    assert read.counts.flow == flow


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"next": -1}',
        b"\0" * 40,
        b'{"next": 1, "counts": {"read": "x"}, "flow": {}, "revision": 1}',
    ],
)
def test_a_torn_record_is_none(tmp_path: Path, written: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """As after a power cut: the split begins at its planned position, which is logged."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "3").write_bytes(written)

    with caplog.at_level(logging.WARNING):
        assert ProgressFolder(tmp_path).read(3) is None
    assert "open/3 is torn" in caplog.text


def test_the_newest_ten_are_kept(tmp_path: Path) -> None:
    """A folder does not grow; a position is found by its number, and is private."""
    folder = ProgressFolder(tmp_path)
    assert (folder.numbers(), folder.read(1)) == ([], None)
    for number in range(1, 31):
        folder.write(number, OpenProgress(number * 100))
        folder.write(number, OpenProgress(number * 100 + 1), fsync=True)

    assert folder.numbers() == list(range(21, 31))
    assert position_after(tmp_path, 30) == 3001
    assert position_after(tmp_path, 20) is None
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o700


def test_one_slot_is_left_for_others() -> None:
    """Of two applications each has its own."""
    slots = TaskSlots()

    assert not slots.take("one", 1, "a")
    assert [slots.take("two", 3, route) for route in "abc"] == [True, True, False]
    assert slots.use("one", 1) == SlotUse(1, (), ("a",))
    assert slots.use("two", 3) == SlotUse(3, ("a", "b"), ("c",))


def test_a_route_that_waits_takes_what_is_given_back() -> None:
    """Repeated requests of one route count once; a route that ends no longer waits."""
    slots = TaskSlots()
    assert slots.take("app", 2, "a")
    assert not any(slots.take("app", 2, "b") for _ in range(3))
    assert not slots.take("app", 2, "c")
    slots.give_back("app", "c")
    slots.give_back("app", "a")

    assert slots.use("app", 2) == SlotUse(2, (), ("b",))
    assert slots.take("app", 2, "b")
    assert slots.use("app", 2) == SlotUse(2, ("b",), ())


def test_an_application_that_grows() -> None:
    """The number that a route has seen last counts."""
    slots = TaskSlots()
    assert slots.use("app", 2).total == 2
    slots.take("app", 4, "a")

    assert slots.use("app", 2).total == 4


def test_splits_of_one_micro_batch_end_together(tmp_path: Path) -> None:
    """When one has ended, the others are closed, and one that begins later does not stay open."""
    splits = OpenSplits(tmp_path)
    splits.open(tasks=3)
    splits.seconds = 30.0
    assert splits.plan(None).tasks == 3
    position = {"t": {"0": 5}, ":ids": {"t": "x"}}
    first, second = splits.begin(7, position, None, 7), splits.begin(8, {"t": {"1": 2}}, None, 7)
    assert first.progress.next == position
    assert not splits.closes(second)

    splits.record(first, OpenProgress({"t": {"0": 9}}, read(4)), final=True)

    assert splits.closes(second)
    assert splits.begin(9, {"t": {"2": 0}}, None, 7).seconds == 0
    assert splits.begin(10, {"t": {"0": 9}}, None, 10).seconds == 30.0
    assert position_after(tmp_path, 7) == {"t": {"0": 9}}
