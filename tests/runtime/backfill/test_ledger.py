"""Ledger of missed ranges: what versions of subscriptions miss, over restarts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from turnout.runtime.backfill import BackfillLedger, WatchedStore
from turnout.subscriptions import Subscription
from turnout.subscriptions.start import Start
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
