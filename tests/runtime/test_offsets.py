"""Offsets of open splits, and when there are any."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.nats.protocol.positions import Position, StreamIdentity
from turnout.runtime.offsets import (
    Backlog,
    Offsets,
    closed,
    committed,
    identities_in,
    identity_in,
    number_in,
    opened,
    position_keys,
    time_in,
)
from turnout.runtime.open_splits import OpenProgress, ProgressFolder

CREATED = "2026-11-28T15:10:45.5Z"
PRESENT = StreamIdentity.of(CREATED)


def test_an_open_offset_has_a_beginning_and_a_number() -> None:
    """Numbers are kept by stream if requested; other names beside a stream are ignored."""
    offset = opened({"S": Position(PRESENT, 17)}, 4)

    assert offset == {"S": 17, "S.created": CREATED, "S.open": 4}
    assert (number_in(offset), number_in(offset, "S"), number_in(offset, "T")) == (4, 4, None)
    assert number_in({"S": 17, "S.from": 1, "subscriptions.revision": 3}) is None


def test_a_closed_offset_says_where_to_go_on() -> None:
    """Earlier versions without open splits read it too; an offset that is already closed is unchanged."""
    reached = {"S": Position(PRESENT, 90, 5)}
    expected = {"S": 90, "S.created": CREATED, "S.time": 5, "S.from": 90}
    assert closed({"S": 17, "S.open": 4, "subscriptions.revision": 3}, reached) == expected
    bounded = {"S": 17}
    assert closed(bounded, {"S": Position(PRESENT, 17)}) is bounded


@pytest.mark.parametrize("identity", [PRESENT, StreamIdentity.adopted(CREATED)])
def test_an_offset_has_the_identity_of_its_stream(identity: StreamIdentity) -> None:
    """What follows from the creation time is not repeated; an offset of an earlier release has none."""
    offset = position_keys({"S": Position(identity, 17, 5), "T": Position(PRESENT, 1)})

    assert (identity_in(offset, "S"), time_in(offset, "S")) == (identity, 5)
    assert identities_in(offset) == {"S": identity, "T": PRESENT}
    assert ("S.id" in offset) == (identity != PRESENT)
    assert identity_in({"S": 17}, "S") is None


def test_a_large_backlog_is_worked_off_before_a_split_is_opened() -> None:
    """It counts as large above 50,000 records, until it is reduced to 10,000."""
    backlog = Backlog()

    assert [backlog.is_large(n) for n in (0, 50_000, 50_001, 30_000, 10_001, 10_000, 30_000, 60_000)] == [
        False, False, True, True, True, False, False, True,
    ]  # fmt: skip


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


def test_open_splits_of_kafka_say_how_far_they_are(tmp_path: Path) -> None:
    """Each has its own partitions; of one without a record, and of one that is torn, the beginning is used."""
    begin = '{"t": {"0": 5, "1": 7}, ":ids": {"t": "x"}, ":splits": 2, ":open": 3}'
    later = '{"t": {"0": 9, "1": 8}, ":ids": {"t": "y"}, ":splits": 2, ":open": 5}'
    written = checkpoint(tmp_path / "c", begin, later, done=1)
    folder = ProgressFolder(written)
    assert committed(written).by_stream == {"t:0": 5, "t:1": 7}
    folder.write(4, OpenProgress({"t": {"1": 8}, ":ids": {"t": "x"}}))
    assert committed(written).by_stream == {"t:0": 5, "t:1": 8}
    assert committed(written).topic_ids == {"t": "x"}
    folder.write(5, OpenProgress({"t": {"0": 20}, ":ids": {"t": "y"}}))

    found = committed(written)

    assert found.by_stream == {"t:0": 20, "t:1": 8}
    assert found.topic_ids == {"t": "y"}


def test_offsets_of_kafka(tmp_path: Path) -> None:
    """Offsets of partitions are found by topic and partition; ids and plans beside them are no topics."""
    written = '{"a.b": {"0": 5, "1": 7}, ":ids": {"a.b": "x"}, ":from": {"a.b": {"0": 1}}, ":splits": 2}'
    checkpoint(tmp_path / "c", written)

    found = committed(tmp_path / "c")

    assert found.next == {"a.b": {"0": 5, "1": 7}}
    assert found.by_stream == {"a.b:0": 5, "a.b:1": 7}
    assert Offsets(0, {"S": 4}).by_stream == {"S": 4}
    assert [found.sequence(name) for name in ("a.b:0", "a.b:1", "a.b:2", "c:0")] == [5, 7, 0, 0]
