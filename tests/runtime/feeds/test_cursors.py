"""Cursors of feeds: sequences and offsets, and the positions of named readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.runtime.feeds.cursors import FeedCursor, FeedCursors, cursor_at, cursor_of, offsets_in

NAMES = st.sampled_from(["0", "1", "27", "ORDERS", "orders:0", "orders.eu:12"])
OFFSETS = st.dictionaries(NAMES, st.integers(0, 30), max_size=5)


@given(OFFSETS.filter(bool))
def test_offsets_are_read_as_they_were_written(offsets: dict[str, int]) -> None:
    """Their order, which says whose turn it is, included."""
    cursor = cursor_at(offsets)

    assert list((offsets_in(cursor) or {}).items()) == list(offsets.items())
    assert cursor_of(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text", ["", ",", "1:", ":1", "1:2,", "1:2,1:3", "1:-2", "a b:1", "1:x", "9" * 20, f"{'a' * 256}:1"]
)
def test_other_texts_are_no_cursors(text: str) -> None:
    """Nothing is guessed."""
    assert cursor_of(text) is None


@given(st.lists(OFFSETS, max_size=6))
def test_a_reader_moves_forward_in_each_partition(
    tmp_path_factory: pytest.TempPathFactory, acknowledged: list[dict[str, int]]
) -> None:
    """Whatever the order of acknowledgements, the position is the highest of each partition."""
    cursors = FeedCursors(tmp_path_factory.mktemp("cursors"))
    expected: dict[str, int] = {}
    for offsets in acknowledged:
        cursors.acknowledge("oulu", "desk", cursor_at(offsets))
        expected |= {partition: max(at, expected.get(partition, -1)) for partition, at in offsets.items()}

    assert offsets_in(cursors.read("oulu", "desk") or 0) == expected


def test_an_older_acknowledgement_keeps_the_turn(tmp_path: Path) -> None:
    """The partition that was read last stays the last one."""
    cursors = FeedCursors(tmp_path)

    assert cursors.acknowledge("oulu", "desk", "1:7,0:3") == "1:7,0:3"
    assert cursors.acknowledge("oulu", "desk", "0:2,1:7") == "1:7,0:3"
    assert cursors.acknowledge("oulu", "desk", "0:3,1:8") == "0:3,1:8"


@pytest.mark.parametrize(
    ("written", "cursor"),
    [
        ({"sequence": 17}, 17),
        ({"offsets": "0:17"}, "0:17"),
        ({"offsets": "x"}, None),
        ({"sequence": -1}, None),
        ({}, None),
        ([], None),
    ],
)
def test_positions_of_earlier_releases_are_read(tmp_path: Path, written: object, cursor: FeedCursor | None) -> None:
    """A sequence is stored as before; a damaged file is no position."""
    cursors = FeedCursors(tmp_path)
    cursors.acknowledge("oulu", "desk", 1)
    (file,) = (tmp_path / "feed-readers").iterdir()
    file.write_text(json.dumps(written))

    assert cursors.read("oulu", "desk") == cursor
