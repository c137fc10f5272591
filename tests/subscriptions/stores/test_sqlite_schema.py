"""Files of earlier and later schemas, and of other programs."""

from __future__ import annotations

import sqlite3

import pytest
from tests.contracts.store import subscription
from tests.subscriptions.stores.sqlite_files import opened

from turnout.errors import HistoryForgottenError, SubscriptionError
from turnout.subscriptions.stores.sqlite import APPLICATION_ID, SCHEMA


def test_of_another_program(path):
    """An SQLite file of another program is refused, and not touched."""
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()

    with pytest.raises(SubscriptionError, match="of another program"):
        opened(path)
    other = sqlite3.connect(path)
    assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    other.close()


def test_of_a_newer_turnout(path):
    """A schema that this version does not know is refused."""
    opened(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()

    with pytest.raises(SubscriptionError, match="newer turnout"):
        opened(path)


_FIRST_LAYOUT = """
    CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL, horizon INTEGER NOT NULL
    );
    INSERT INTO state VALUES (1, 2, 0);
    CREATE TABLE subscription (
        row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, record TEXT NOT NULL
    );
    INSERT INTO subscription VALUES
        (1, 'old', 1, '[["d"],{"kiwiCondition":{"key":"subject","pattern":"orders*","id":"leaf"}},{"n":"x"}]');
    CREATE TABLE leaf (
        key TEXT NOT NULL, pattern TEXT NOT NULL, partial INTEGER NOT NULL, id TEXT NOT NULL,
        PRIMARY KEY (key, pattern, partial, id)
    ) WITHOUT ROWID;
    INSERT INTO leaf VALUES ('subject', 'orders*', 0, 'old');
    CREATE TABLE metadata (
        name TEXT NOT NULL, value TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (name, value, id)
    ) WITHOUT ROWID;
    INSERT INTO metadata VALUES ('n', 'x', 'old');
    CREATE TABLE deleted (id TEXT PRIMARY KEY, born INTEGER NOT NULL, died INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX deleted_died ON deleted (died);
    PRAGMA application_id = 0x7475726E;
    PRAGMA user_version = 1;
"""
"""A store as turnout wrote it before there were tenants."""


def test_a_store_from_before_tenants(path):
    """A file of the first layout accepts tenants; its subscriptions belong to no tenant and are found as before."""
    before = sqlite3.connect(path)
    before.executescript(_FIRST_LAYOUT)
    before.close()
    with opened(path) as store:
        acme = store.for_tenant("acme")
        assert [subscription.id for subscription in store.snapshot()] == ["old"]
        assert [item.id for item in store.search_by_metadata({"n": "x"}).items] == ["old"]
        assert len(acme.snapshot()) == len(acme.search_by_condition("subject", "orders*").items) == 0
        acme.create(subscription(id="old"))
        acme.delete("old")
        acme.create(subscription(id="new"))
    with opened(path) as store:
        assert [subscription.id for subscription in store.for_tenant("acme").snapshot()] == ["new"]
        assert [subscription.id for subscription in store.snapshot()] == ["@acme/new", "old"]
        assert store.read("old").destinations == ("d",)


def test_a_file_of_the_version_before(path):
    """The file is migrated in place: its subscriptions are kept, and history begins then."""
    with opened(path) as store:
        store.create(subscription(id="a"))
        store.delete(store.create(subscription()))
    with sqlite3.connect(path) as connection:
        for statement in ("DROP TABLE moment", "DROP TABLE past", "ALTER TABLE state DROP COLUMN remembered"):
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 1")
    connection.close()

    with pytest.raises(SubscriptionError, match="older schema"):
        opened(path, mode="ro").revision()
    with opened(path) as store:
        store.delete("a")

        assert [subscription.id for subscription in store.as_of(3)] == ["a"]
        assert [subscription.id for subscription in store.as_of(4)] == []
        with pytest.raises(HistoryForgottenError, match="it remembers revisions 3"):
            store.as_of(2)


def test_a_file_of_schema_2(path):
    """A file of the version before updates opens with its subscriptions and its history, and takes updates."""
    record = '[["d"],{"kiwiCondition":{"id":"l","key":"k","pattern":"v"}},{}]'
    with sqlite3.connect(path) as connection:
        for script in SCHEMA[:2]:
            connection.executescript(script)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 2")
        connection.execute("UPDATE state SET revision = 2")
        connection.execute("INSERT INTO moment VALUES (1, 1000000), (2, 2000000)")
        connection.execute("INSERT INTO past VALUES ('gone', 2, 1, ?)", (record,))
        connection.execute("INSERT INTO subscription VALUES (1, 'a', 2, ?)", (record,))
        connection.execute("INSERT INTO leaf VALUES ('k', 'v', 0, 'a')")
    connection.close()

    with opened(path) as store:
        assert [one.id for one in store.snapshot()] == ["a"]
        assert [one.id for one in store.as_of(1)] == ["gone"]
        assert [(entry.action, entry.actor) for entry in store.history("a")] == [("created", "")]
        assert store.update("a", subscription(), expected_revision=2) == 3
        assert store.search_by_condition("k", "v").items == ()
