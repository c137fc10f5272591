"""Cursors of feeds: sequences and offsets, and the positions of named readers."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import QuotaExceededError
from turnout.runtime import cursors as cursors_module
from turnout.runtime.cursors import FeedCursor, FeedCursors, cursor_at, cursor_of, offsets_in

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


@pytest.mark.parametrize(
    ("cursor", "before", "now", "left"),
    [
        (17, {"ORDERS": "1"}, {"ORDERS": "1"}, 17),
        (17, {"ORDERS": "1"}, {}, 17),
        (17, {}, {"ORDERS": "2"}, 17),
        (17, {"ORDERS": "1"}, {"ORDERS": "2"}, None),
        ("17.2", {"ORDERS": "1"}, {"ORDERS": "2"}, None),
        ("A:17,B:4.1", {"A": "1", "B": "1"}, {"A": "2", "B": "1"}, "B:4.1"),
        ("A:17,B:4", {"A": "1"}, {"A": "2", "B": "1"}, "B:4"),
        ("0:17,2:4", {"orders": "1"}, {"orders": "2"}, None),
        ("a.b:0:17,c:2:4", {"a.b": "1", "c": "1"}, {"a.b": "1", "c": "2"}, "a.b:0:17"),
    ],
)
def test_readers_of_streams_that_were_made_anew(
    cursor: FeedCursor,
    before: dict[str, str],
    now: dict[str, str],
    left: FeedCursor | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They begin again there, with a warning; what they acknowledge then counts, although it is less."""
    cursors = FeedCursors(tmp_path)
    cursors.acknowledge("oulu", "desk", cursor, before)

    assert cursors.read("oulu", "desk", now) == left
    assert ("made anew since it acknowledged" in caplog.text) == (left != cursor)
    if left is None:
        assert cursors.acknowledge("oulu", "desk", 3, now) == 3
        assert cursors.read("oulu", "desk", now) == 3


def test_readers_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller with the right to read cannot make files without end: of a subscription, a tenant and a route."""
    monkeypatch.setattr(cursors_module, "MAX_READERS", 3)
    monkeypatch.setattr(cursors_module, "MAX_TENANT_READERS", 5)
    monkeypatch.setattr(cursors_module, "MAX_ROUTE_READERS", 9)
    cursors = FeedCursors(tmp_path)

    def names(subscription: str) -> list[str]:
        made = []
        for number in range(20):
            with suppress(QuotaExceededError):
                cursors.acknowledge(subscription, f"r{number}", 7)
                made.append(f"r{number}")
        return made

    assert names("@acme/a") == ["r0", "r1", "r2"]
    assert names("@acme/b") == ["r0", "r1"]
    assert names("plain") == ["r0", "r1", "r2"]
    assert names("@other/a") == ["r0"]
    with pytest.raises(QuotaExceededError, match="named readers of a subscription is 3, and 4 would be used"):
        cursors.acknowledge("@acme/a", "one more", 1)
    assert cursors.acknowledge("@acme/a", "r1", 9) == 9
    assert len(list((tmp_path / "feed-readers").iterdir())) == 9


def test_forgotten_readers_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only at the limit, only those without an acknowledgement for long, and not without a word."""
    monkeypatch.setattr(cursors_module, "MAX_READERS", 2)
    cursors = FeedCursors(tmp_path)
    cursors.acknowledge("a", "old", 1)
    (old,) = (tmp_path / "feed-readers").iterdir()
    os.utime(old, (0, 0))
    cursors.acknowledge("a", "new", 2)
    assert cursors.read("a", "old") == 1
    cursors.acknowledge("a", "newer", 3)

    assert [cursors.read("a", name) for name in ("old", "new", "newer")] == [None, 2, 3]


def test_files_of_earlier_releases(tmp_path: Path) -> None:
    """They are read, and replaced by the next acknowledgement."""
    digest = hashlib.sha256(json.dumps(["a", "desk"]).encode()).hexdigest()[:32]
    folder = tmp_path / "feed-readers"
    folder.mkdir()
    (folder / f"{digest}.json").write_text('{"subscription": "a", "reader": "desk", "sequence": 5}')
    cursors = FeedCursors(tmp_path)

    assert cursors.read("a", "desk") == 5
    assert cursors.acknowledge("a", "desk", 6) == 6
    assert [file.name == f"{digest}.json" for file in folder.iterdir()] == [False]
