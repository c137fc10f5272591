"""Recorded progress of open splits."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.base.histogram import Histogram
from turnout.base.untrusted import LARGEST_SEQUENCE
from turnout.engine.counts import NUMBERS, Counts
from turnout.engine.flow import Flow
from turnout.runtime.open_splits import OpenProgress, ProgressFolder, position_after

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
