"""Earlier records that a run still has to deliver: the position at which a feed has to wait."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.runtime.backfill.test_ledger import Follower, run  # noqa: F401 - a fixture
from tests.runtime.backfill.test_seams import REVISION, write

from turnout.runtime.backfill import FILE, pending_positions


def pending(run: Follower, id_: str) -> dict[str, int]:  # noqa: F811 - the fixture
    return pending_positions(run.checkpoint, run.store.read(id_), ("S", "T"))


def test_a_starting_point(run: Follower) -> None:  # noqa: F811
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


def test_another_starting_point(run: Follower) -> None:  # noqa: F811
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
def test_a_kept_pause(run: Follower, is_resumed: bool) -> None:  # noqa: F811
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
