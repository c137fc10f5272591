"""Files of SQLite stores for tests."""

from __future__ import annotations

from pathlib import Path

from tests.contracts.store import subscription

from turnout.subscriptions import open_store
from turnout.subscriptions.stores.sqlite import SqliteStore


def opened(path: Path, **options: object) -> SqliteStore:
    """Open the store of a file, with options of its URL."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    store = open_store(f"sqlite:///{path}{'?' if query else ''}{query}")
    assert isinstance(store, SqliteStore)
    return store


def ids_of(store: SqliteStore) -> list[str]:
    """Return the ids of all subscriptions of a store."""
    return [subscription.id for subscription in store.snapshot()]


def replaced(path: Path, *names: str) -> None:
    """Replace the file by another store with these subscriptions, as in restoring a backup."""
    backup = path.with_name("backup.db")
    with opened(backup) as store:
        for name in names:
            store.create(subscription(id=name))
    backup.rename(path)
