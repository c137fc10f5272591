"""The tables of an SQLite store, version by version."""

from __future__ import annotations

APPLICATION_ID = 0x7475726E
"""The letters "turn" in the file's header, by which ``file`` and we recognise it."""

SCHEMA = (
    # 1. Bodies are appended in the order of revisions, so bulk loads write them once and in sequence, and the
    # newest are found from the end. The indexes hold ids as text, because pages are in the order of ids.
    """
    CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        revision INTEGER NOT NULL,
        horizon INTEGER NOT NULL
    );
    INSERT INTO state VALUES (1, 0, 0);
    CREATE TABLE subscription (
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        revision INTEGER NOT NULL,
        record TEXT NOT NULL
    );
    CREATE TABLE leaf (
        key TEXT NOT NULL,
        pattern TEXT NOT NULL,
        partial INTEGER NOT NULL,
        id TEXT NOT NULL,
        PRIMARY KEY (key, pattern, partial, id)
    ) WITHOUT ROWID;
    CREATE TABLE metadata (
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        id TEXT NOT NULL,
        PRIMARY KEY (name, value, id)
    ) WITHOUT ROWID;
    CREATE TABLE deleted (
        id TEXT PRIMARY KEY,
        born INTEGER NOT NULL,
        died INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX deleted_died ON deleted (died);
    """,
    # 2. Deleted subscriptions are kept for a while, with the time of each revision. History begins here: what an older
    # version deleted is not known.
    """
    CREATE TABLE moment (
        revision INTEGER PRIMARY KEY,
        at INTEGER NOT NULL
    );
    CREATE TABLE past (
        id TEXT NOT NULL,
        died INTEGER NOT NULL,
        born INTEGER NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (id, died)
    ) WITHOUT ROWID;
    CREATE INDEX past_died ON past (died);
    ALTER TABLE state ADD COLUMN remembered INTEGER NOT NULL DEFAULT 0;
    UPDATE state SET remembered = revision;
    INSERT INTO moment SELECT revision, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) FROM state
    """,
    # 3. Author of the change of each revision.
    "ALTER TABLE moment ADD COLUMN actor TEXT NOT NULL DEFAULT ''",
)
"""One script for each version of the schema, each a step from the one before; ``user_version`` counts them."""
