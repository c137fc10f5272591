"""Files of SQLite stores that are replaced or removed while they are open."""

from __future__ import annotations

import sqlite3

import pytest
from tests.contracts.store import subscription
from tests.subscriptions.stores.sqlite_files import ids_of, opened, replaced

from turnout.errors import StoreUnavailableError
from turnout.subscriptions import Matcher
from turnout.subscriptions.stores import sqlite


@pytest.mark.parametrize("before", [1, 5])
def test_a_file_that_is_replaced(path, caplog, before):
    """It is followed from the next call on, whatever its revisions are, with one warning; writes go into it."""
    with opened(path) as store:
        store.create_many([subscription(id="old")])
        for number in range(before - 1):
            store.create(subscription(id=f"old{number}"))
        matcher = Matcher.from_store(store)
        replaced(path, "new1", "new2", "new3")

        assert ids_of(store) == ["new1", "new2", "new3"]
        created = store.create(subscription(id="later"))
        assert matcher.refresh(store)
        assert len(matcher) == 4
        assert store.changes(before).reset
        assert store.revision() > max(before, 3)
    with opened(path) as again:
        assert again.read(created).id == "later"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "was replaced by another file" in caplog.text


def test_the_log_of_a_replaced_file_is_not_taken_for_that_of_the_new_one(path):
    """All that was written to the old file is in it, wherever it was moved, and nothing of it is in the new one."""
    with opened(path) as store:
        store.create_many(subscription(id=f"old{number:03}") for number in range(200))
        moved = path.with_name("moved.db")
        path.rename(moved)
        replaced(path, "new")

        assert ids_of(store) == ["new"]
        with opened(moved) as old:
            assert len(old.snapshot()) == 200
    with opened(path) as again, sqlite3.connect(path) as connection:
        assert ids_of(again) == ["new"]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_two_that_follow_a_replaced_file(path):
    """Each of two processes' stores notices it; followers of both begin again, and the second changes nothing."""
    with opened(path) as one, opened(path) as other:
        for number in range(4):
            one.create(subscription(id=f"old{number}"))
        revision = other.revision()
        replaced(path, "new")

        assert one.changes(revision).reset
        now = one.revision()
        assert other.changes(revision).reset
        assert other.revision() == one.revision() == now


def test_a_file_that_is_removed(path):
    """Nothing is written to the removed file: calls are refused until a file exists again, and none is created."""
    with opened(path) as store:
        store.create(subscription(id="x"))
        away = path.with_name("away.db")
        path.rename(away)
        for call in (lambda: store.create(subscription()), store.revision, lambda: store.read("x")):
            with pytest.raises(StoreUnavailableError, match="was removed while it was open"):
                call()
        assert not path.exists()

        away.rename(path)
        assert store.read("x").id == "x"


def test_a_file_that_is_replaced_in_the_middle_of_a_write(path, monkeypatch):
    """A write in progress is refused: it would be stored in a file that is no longer used."""
    monkeypatch.setattr(sqlite.SqliteStore, "chunk", 2_000)

    def many():
        for number in range(3_000):
            if number == 2_500:
                replaced(path, "new")
            yield subscription(id=f"lost{number}")

    with opened(path) as store:
        with pytest.raises(StoreUnavailableError, match="nothing was stored"):
            store.create_many(many())
        assert ids_of(store) == ["new"]


def test_a_file_that_is_replaced_for_a_reader_only(path):
    """A read-only store refuses to continue, as it cannot tell its followers to begin again."""
    opened(path).close()
    with opened(path, mode="ro") as store:
        replaced(path, "new")
        with pytest.raises(StoreUnavailableError, match="has to start again"):
            store.snapshot()
