"""Committed position of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from turnout.runtime.offsets import Offsets, committed
from turnout.runtime.open_splits import OpenProgress, ProgressFolder


def checkpoint(folder: Path, *places: str, done: int | None = None) -> Path:
    """Write a checkpoint as Spark does: the offsets of micro-batches, of which *done* are committed."""
    for part in ("offsets", "commits"):
        (folder / part).mkdir(parents=True)
    for batch, place in enumerate(places):
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{place}")
        if done is None or batch < done:
            (folder / "commits" / str(batch)).write_text("v1\n{}")
    return folder


def test_the_last_committed_micro_batch_says_how_far_it_is(tmp_path: Path) -> None:
    """A planned one does not count; other entries beside the streams are ignored."""
    written = checkpoint(
        tmp_path / "c", '{"A": 3, "A.from": 1}', '{"A": 10, "subscriptions.revision": 4}', '{"A": 20}', done=2
    )

    assert committed(written) == Offsets(1, {"A": 10})


def test_kafka_topics_may_have_dots(tmp_path: Path) -> None:
    """Their offsets are those of partitions."""
    written = checkpoint(tmp_path / "c", '{"a.b": {"0": 5, "1": 7}}')

    assert committed(written).next == {"a.b": {"0": 5, "1": 7}}


def test_no_checkpoint_and_a_broken_one_say_nothing(tmp_path: Path) -> None:
    """Nothing is done then."""
    assert committed(tmp_path / "none") == Offsets(None, {})
    assert committed(checkpoint(tmp_path / "c", "nonsense")) == Offsets(None, {})


def test_an_open_split_says_how_far_it_is(tmp_path: Path) -> None:
    """It is recorded every second, also before the commit; if it is lost, the beginning is used."""
    written = checkpoint(tmp_path / "c", '{"A": 1, "A.open": 1}', '{"A": 40, "A.open": 2}', done=1)
    assert committed(written) == Offsets(0, {"A": 1})
    folder = ProgressFolder(written)
    folder.write(1, OpenProgress(40))
    assert committed(written) == Offsets(0, {"A": 40})
    folder.write(2, OpenProgress(75))
    assert committed(written) == Offsets(0, {"A": 75})


def test_the_first_open_split_says_how_far_it_is(tmp_path: Path) -> None:
    """Nothing is committed for as long as it is open."""
    written = checkpoint(tmp_path / "c", '{"A": 1, "A.open": 1}', done=0)
    ProgressFolder(written).write(1, OpenProgress(9))

    assert committed(written) == Offsets(None, {"A": 9})


def test_offsets_of_kafka(tmp_path: Path) -> None:
    """Offsets of partitions are found by topic and partition; ids and plans beside them are no topics."""
    written = '{"a.b": {"0": 5, "1": 7}, ":ids": {"a.b": "x"}, ":from": {"a.b": {"0": 1}}, ":splits": 2}'
    checkpoint(tmp_path / "c", written)

    found = committed(tmp_path / "c")

    assert found.next == {"a.b": {"0": 5, "1": 7}}
    assert found.by_stream == {"a.b:0": 5, "a.b:1": 7}
    assert Offsets(0, {"S": 4}).by_stream == {"S": 4}
    assert [found.sequence(name) for name in ("a.b:0", "a.b:1", "a.b:2", "c:0")] == [5, 7, 0, 0]
