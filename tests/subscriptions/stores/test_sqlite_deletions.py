"""Deletion from an SQLite store: one pass over the tables leaves what deletion by rows leaves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.store import subscription

from turnout.errors import SubscriptionNotFoundError
from turnout.subscriptions import open_store
from turnout.subscriptions.stores import sqlite
from turnout.subscriptions.stores.sqlite import SqliteStore

IDS = [f"s{number}" for number in range(8)]
CONDITIONS = ("a:1", "a:1 AND b:2*", "NOT a:3 AND (b:x OR c:~y)", "n>3 AND a:1")
TABLES = ("subscription", "leaf", "metadata", "deleted", "past")
CHOSEN = st.lists(st.sampled_from(IDS), unique=True, min_size=1)


def deleted(path: Any, made: list[str], first: list[str], again: list[str], retention: str) -> tuple[SqliteStore, Any]:
    """A store in which some of what was made is deleted, and some of that again after it was made again."""
    store = open_store(f"sqlite:///{path}?retention={retention}")
    assert isinstance(store, SqliteStore)
    store.create_many(
        subscription(id=id_, condition=CONDITIONS[n % 4], metadata={"n": str(n % 3), "all": "x"})
        for n, id_ in enumerate(made)
    )
    missing = [id_ for id_ in first if id_ not in made]
    if missing:
        with pytest.raises(SubscriptionNotFoundError, match=missing[0]):
            store.delete_many(first)
    else:
        store.delete_many(first)
        store.create_many(subscription(id=id_) for id_ in first)
        store.delete_many([id_ for id_ in again if id_ in made])
    with store._file.reading() as connection:
        names = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in TABLES}
        return store, {
            name: sorted(
                connection.execute(
                    f"SELECT {', '.join(c for c in names[name] if c not in ('row', 'record'))}"
                    f"{', length(record)' if 'record' in names[name] else ''} FROM {name}"
                )
            )
            for name in TABLES
        }


@settings(max_examples=25, deadline=None)
@given(made=CHOSEN, first=CHOSEN, again=CHOSEN, retention=st.sampled_from(["0s", "1h"]))
def test_scan_is_deletion_by_rows(tmp_path_factory, made, first, again, retention):
    """Both leave the same tables and the same changes, also of ids that are used again, and refuse the same id."""
    folder = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "scan_pays", lambda *_: False)
        by_rows, expected = deleted(folder / "rows.db", made, first, again, retention)
        patch.setattr(sqlite, "scan_pays", lambda *_: True)
        by_scan, found = deleted(folder / "scan.db", made, first, again, retention)
    with by_rows, by_scan:
        assert found == expected
        for since in range(by_rows.revision()):
            assert by_scan.changes(since).deleted_ids == by_rows.changes(since).deleted_ids


def test_when_a_scan_pays(tmp_path):
    """Tables are scanned for many ids that are a good part of the store, and for no others."""
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        assert isinstance(store, SqliteStore)
        least = sqlite._SCAN_LEAST
        with store._file.writing() as connection:
            assert not sqlite.scan_pays(connection, least)
        store.create_many(subscription(id=f"s{number}") for number in range(2 * least))
        with store._file.writing() as connection:
            assert sqlite.scan_pays(connection, least)
            assert not sqlite.scan_pays(connection, least - 1)
            connection.execute("UPDATE subscription SET row = row * 1000 WHERE id = 's1999'")
            assert not sqlite.scan_pays(connection, least)
        ids = [f"s{number}" for number in range(2 * least)]
        store.delete_many(ids[:least])
        store.delete_many(ids[least:])
        assert not store.snapshot().subscriptions
