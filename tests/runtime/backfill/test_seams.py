"""Seams: where a revision of the subscriptions begins to be in use, as a checkpoint says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from turnout.runtime.backfill import matched_before, seam_of

REVISION = "subscriptions.revision"


def write(checkpoint: Path, *offsets: Mapping[str, object], first: int = 0) -> None:
    """Write the offsets of micro-batches; all but the last are committed."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir()
    for number, offset in enumerate(offsets, first):
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offset)}", encoding="utf-8")
        if number < first + len(offsets) - 1:
            (checkpoint / "commits" / str(number)).write_text("v1\n{}", encoding="utf-8")


BATCHES = [
    {"S": 11, "S.from": 1, REVISION: 3},
    {"S": 21, REVISION: 3},
    {"S": 31, REVISION: 5},
    {"S": 41, REVISION: 6},
]


@pytest.mark.parametrize(("revision", "seam"), [(2, 1), (3, 1), (4, 21), (5, 21), (6, 31), (7, None)])
def test_micro_batches(tmp_path: Path, revision: int, seam: int | None) -> None:
    """It is the beginning of the first micro-batch that has the revision or a later one, also if it is under way."""
    write(tmp_path, *BATCHES)

    assert seam_of(tmp_path, revision, {}) == (None if seam is None else {"S": seam})
    assert matched_before(tmp_path) == {"S": 31}


def test_a_revision_that_is_older_than_the_checkpoint_remembers(tmp_path: Path) -> None:
    """Rather twice than never: the end of the oldest micro-batch."""
    write(tmp_path, *BATCHES[1:], first=200)

    assert seam_of(tmp_path, 3, {}) == {"S": 21}


def test_an_open_split(tmp_path: Path) -> None:
    """It begins with the revision of its offset, and uses later ones when its task reports them."""
    opened = {"S": 41, "S.open": 1, REVISION: 6}
    closed = {"S": 90, "S.from": 80, REVISION: 9}
    write(tmp_path, BATCHES[0], opened, closed)

    turns = {7: 50, 8: 60}
    assert [seam_of(tmp_path, revision, turns) for revision in (5, 7, 8, 9)] == [
        {"S": 41},
        {"S": 50},
        {"S": 60},
        {"S": 80},
    ]


def test_kafka(tmp_path: Path) -> None:
    """Positions are by partition; a topic that came later has its own beginning."""
    first = {"a.b": {"0": 5, "1": 7}, ":from": {"a.b": {"0": 0, "1": 2}}, REVISION: 1}
    second = {"a.b": {"0": 9, "1": 7}, "c": {"0": 4}, ":from": {"c": {"0": 1}}, REVISION: 2}
    write(tmp_path, first, second, second)

    assert seam_of(tmp_path, 1, {}) == {"a.b:0": 0, "a.b:1": 2}
    assert seam_of(tmp_path, 2, {}) == {"a.b:0": 5, "a.b:1": 7, "c:0": 1}
    assert matched_before(tmp_path) == {"a.b:0": 9, "a.b:1": 7, "c:0": 4}


def test_before_the_first_micro_batch(tmp_path: Path) -> None:
    """Nothing is known yet."""
    assert (seam_of(tmp_path, 1, {}), matched_before(tmp_path)) == (None, {})
