"""History of an SQLite store: its retention, and the times of revisions."""

from __future__ import annotations

import sqlite3
import time
from datetime import timedelta

import pytest
from tests.contracts.store import subscription
from tests.subscriptions.stores.sqlite_files import opened

from turnout.errors import HistoryForgottenError
from turnout.subscriptions.stores import _sql


def test_forgets_beyond_the_retention(path, monkeypatch):
    """History before the retention is deleted from the file; the state at its beginning is kept."""
    monkeypatch.setattr(_sql, "_PRUNE_EVERY", 1)
    with opened(path, retention="1s") as store:
        store.create(subscription(id="a"))
        store.delete("a")
        store.create(subscription(id="b"))
        time.sleep(1.1)
        store.delete("b")

        assert [subscription.id for subscription in store.as_of(3)] == ["b"]
        with pytest.raises(HistoryForgottenError, match="revision 1: it remembers revisions 3"):
            store.as_of(1)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT id FROM past").fetchall() == [("b",)]
    connection.close()


def test_the_times_of_revisions(path):
    """Births say when, and a file that is opened again still knows."""
    with opened(path) as store:
        store.create(subscription(id="a"))
        born = store.births()["a"]
        assert born.at is not None
    with opened(path) as store:
        assert store.births()["a"] == born
        assert store.as_of(born.at).revision == 1
        assert store.as_of(born.at - timedelta(days=1)).revision == 0
