"""Ledger of missed ranges: what versions of subscriptions miss, over restarts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from turnout.runtime.backfill import FILE, BackfillLedger, WatchedStore, matched_before, pending_positions, seam_of
from turnout.subscriptions import Subscription
from turnout.subscriptions.model import Start
from turnout.subscriptions.store import edit
from turnout.subscriptions.stores.memory import MemoryStore


class Follower:
    """A run that follows a store from revision to revision."""

    def __init__(self, checkpoint: Path) -> None:
        self.store = MemoryStore()
        self.checkpoint = checkpoint
        self.restart()

    def restart(self) -> None:
        self.ledger = BackfillLedger(self.checkpoint)
        self.watched = WatchedStore(self.store, self.ledger)
        self.revision = self.watched.snapshot().revision

    def create(self, id_: str, start: object = None, *, keep: bool = False) -> None:
        self.store.create(Subscription(["d"], "a:1", id=id_, start=Start.from_plain(start), keep=keep))

    def change(self, id_: str, **parts: object) -> None:
        edit(self.store, id_, lambda found: replace(found, **parts))  # type: ignore[arg-type]

    def refresh(self) -> list[tuple[str, str | None, int | None, int | None]]:
        self.revision = self.watched.changes(self.revision).revision
        return self.rows

    @property
    def rows(self) -> list[tuple[str, str | None, int | None, int | None]]:
        return [(row.id, row.position, row.paused, row.live) for row in self.ledger.rows]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(tmp_path / "c")
    yield follower
    follower.ledger.close()


def test_without_any_there_is_no_file(run: Follower, tmp_path: Path) -> None:
    """Routes whose subscriptions begin with the present have no ledger."""
    run.create("a")
    run.change("a", enabled=False)

    assert run.refresh() == []
    assert not (tmp_path / "c").exists()


def test_a_starting_point_is_noted_once(run: Follower) -> None:
    """Of a new version with the same one nothing is missing; another one is noted, also after a restart."""
    run.create("a", "earliest")
    first = [("a", "earliest", None, 1)]
    assert run.refresh() == first
    run.change("a", metadata={"n": "1"})
    assert run.refresh() == first
    run.ledger.remove(run.ledger.rows[0].number)
    run.ledger.close()
    run.change("a", metadata={"n": "2"})
    run.restart()
    assert run.rows == []
    run.change("a", start=Start(7))
    run.restart()
    assert run.rows == [("a", "7", None, 4)]
    run.store.delete("a")
    assert run.refresh() == []
    run.create("a", 7)
    assert run.refresh() == [("a", "7", None, 6)]


def test_a_kept_pause_lasts_until_it_is_enabled(run: Follower) -> None:
    """It waits once its beginning is known, over updates and restarts; one without a beginning is dropped."""
    run.create("a", keep=True)
    run.create("b", keep=True)
    for name in ("a", "b"):
        run.change(name, enabled=False)
    assert run.refresh() == [("a", None, 3, None), ("b", None, 4, None)]
    for row in run.ledger.rows:
        run.ledger.set_bounds(row.number, following={"S": 5})
    assert run.rows == []
    run.change("a", metadata={"n": "1"})
    run.ledger.close()
    run.restart()
    run.change("b", keep=False)
    run.change("a", enabled=True)
    run.change("b", enabled=True)
    assert run.refresh() == [("a", None, 3, 7)]
    assert run.ledger.rows[0].next == {"S": 5}


def test_a_pause_between_two_looks_misses_nothing(run: Follower) -> None:
    """No record was matched meanwhile."""
    run.create("a", keep=True)
    run.refresh()
    run.change("a", enabled=False)
    run.change("a", enabled=True)

    assert run.refresh() == []


def test_changes_seen_twice(run: Follower) -> None:
    """A rebuilt index processes past changes again."""
    run.create("a", "earliest", keep=True)
    run.change("a", enabled=False)
    run.refresh()
    before = run.rows
    run.revision = 0

    assert run.refresh() == before == [("a", "earliest", None, 2), ("a", None, 2, None)]


def test_turns_of_open_splits_are_kept_as_long_as_they_are_needed(run: Follower) -> None:
    """A bound that is not known yet needs them; afterwards they are forgotten."""
    run.ledger.turned(1, 10)
    assert run.ledger.turns == {}
    run.create("a", "earliest")
    run.refresh()
    run.ledger.turned(1, 10)
    run.ledger.turned(1, 20)
    run.ledger.close()
    run.restart()
    assert run.ledger.turns == {1: 10}
    run.ledger.set_bounds(run.ledger.rows[0].number, until={"S": 10})
    assert run.ledger.turns == {}


def test_a_stream_that_was_made_anew(run: Follower) -> None:
    """What is missed of the former one is gone; a range without an end has all of the present one. Over restarts."""
    for id_ in ("ended", "open"):
        run.create(id_, "earliest")
    run.refresh()
    ended, still_open = (row.number for row in run.ledger.rows)
    run.ledger.set_bounds(ended, {"S": 10, "T": 1}, {"S": 50, "T": 9})
    run.ledger.set_bounds(still_open, {"S": 20})

    assert run.ledger.follow({"S": "monday", "T": "monday"}) == []
    run.restart()
    assert run.ledger.follow({"S": "monday", "T": "monday"}) == []
    lost = run.ledger.follow({"S": "tuesday", "T": "monday"})

    assert [row.id for row in lost] == ["ended", "open"]
    assert [row.next for row in run.ledger.rows] == [{"S": 50, "T": 1}, {"S": 0}]
    assert run.ledger.follow({"S": "tuesday", "T": "monday"}) == []


def pending(run: Follower, id_: str) -> dict[str, int]:
    return pending_positions(run.checkpoint, run.store.read(id_), ("S", "T"))


def test_a_starting_point(run: Follower) -> None:
    """All streams wait for a run that sees it, then each as far as it is delivered."""
    run.create("all", "earliest")
    run.create("none")
    unseen = pending(run, "all")
    run.refresh()
    (row,) = run.ledger.rows
    seen = pending(run, "all")
    run.ledger.set_bounds(row.number, {"S": 1, "T": 5}, {"S": 31, "T": 5})
    begun = pending(run, "all")
    run.ledger.advance(row.number, "S", 21)
    advanced = pending(run, "all")
    run.ledger.advance(row.number, "S", 31)
    delivered = pending(run, "all")
    run.ledger.remove(row.number)

    assert unseen == seen == {"S": 0, "T": 0}
    assert (begun, advanced, delivered) == ({"S": 1}, {"S": 21}, {})
    assert pending(run, "all") == pending(run, "none") == {}


def test_another_starting_point(run: Follower) -> None:
    """A change that no run has seen is a new one."""
    run.create("all", "earliest")
    run.refresh()
    run.ledger.remove(run.ledger.rows[0].number)
    before = pending(run, "all")
    run.change("all", start=None)
    run.refresh()
    run.create("other", 7)

    assert before == pending(run, "all") == {}
    assert pending(run, "other") == {"S": 0, "T": 0}


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_kept_pause(run: Follower, is_resumed: bool) -> None:
    """The feed ends at the seam of the pause, which may be in the checkpoint before the ledger has it."""
    run.create("kept")
    run.refresh()
    run.change("kept", enabled=False, keep=True)
    run.refresh()
    if is_resumed:
        run.change("kept", enabled=True)
        run.refresh()
    unknown = pending(run, "kept")
    write(run.checkpoint, {"S": 11, "S.from": 1, REVISION: 1}, {"S": 21, REVISION: 2}, {"S": 31, REVISION: 3})

    assert unknown == {}
    assert pending(run, "kept") == {"S": 11, "T": 0}


def test_without_a_ledger(tmp_path: Path) -> None:
    """A route that has never had a starting point or a pause has no file, and makes none."""
    follower = Follower(tmp_path / "c")
    follower.create("plain")

    assert pending(follower, "plain") == {}
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("tables", ["", "CREATE TABLE starts (id TEXT PRIMARY KEY, position TEXT NOT NULL)"])
def test_while_the_ledger_is_made(tmp_path: Path, tables: str) -> None:
    """A file without all tables says nothing yet."""
    follower = Follower(tmp_path / "c")
    follower.create("all", "earliest")
    follower.checkpoint.mkdir()
    with closing(sqlite3.connect(follower.checkpoint / FILE)) as database:
        database.executescript(tables)

    assert pending(follower, "all") == {"S": 0, "T": 0}


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


def test_open_splits_of_partitions(tmp_path: Path) -> None:
    """A revision is in use when all partitions have turned to it, each at its own position."""
    first = {"t": {"0": 5, "1": 7}, ":splits": 2, ":open": 1, REVISION: 6}
    write(tmp_path, first)
    ledger = BackfillLedger(tmp_path)
    ledger.see_all([Subscription(("x",), "a:1", id="a", start=Start("earliest"), revision=7)])
    ledger.turned(7, {"t": {"0": 20}})
    assert seam_of(tmp_path, 6, ledger.turns) == {"t:0": 5, "t:1": 7}
    assert seam_of(tmp_path, 7, ledger.turns) is None
    ledger.turned(7, {"t": {"1": 30}})
    ledger.turned(7, {"t": {"1": 99}})
    ledger.close()

    turns = BackfillLedger(tmp_path).turns

    assert turns == {7: {"t:0": 20, "t:1": 30}}
    assert seam_of(tmp_path, 7, turns) == {"t:0": 20, "t:1": 30}


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
