"""The tables of a PostgreSQL store, version by version."""

from __future__ import annotations

SCHEMA = (
    # 1. Ids are compared by their code points, as everywhere in turnout. Leaves and pairs are found by digests, because
    # an index takes no text as long as a key may be.
    """
    CREATE SCHEMA IF NOT EXISTS {schema};
    CREATE TABLE {schema}.state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        version INTEGER NOT NULL,
        revision BIGINT NOT NULL,
        horizon BIGINT NOT NULL,
        remembered BIGINT NOT NULL
    );
    INSERT INTO {schema}.state VALUES (1, 0, 0, 0, 0);
    CREATE TABLE {schema}.subscription (
        id TEXT COLLATE "C" PRIMARY KEY,
        revision BIGINT NOT NULL,
        record TEXT NOT NULL
    );
    CREATE INDEX ON {schema}.subscription (revision);
    CREATE TABLE {schema}.leaf (
        digest BYTEA NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        PRIMARY KEY (digest, id)
    );
    CREATE TABLE {schema}.metadata (
        digest BYTEA NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        PRIMARY KEY (digest, id)
    );
    CREATE TABLE {schema}.deleted (
        id TEXT COLLATE "C" PRIMARY KEY,
        born BIGINT NOT NULL,
        died BIGINT NOT NULL
    );
    CREATE INDEX ON {schema}.deleted (died);
    CREATE TABLE {schema}.past (
        id TEXT COLLATE "C" NOT NULL,
        died BIGINT NOT NULL,
        born BIGINT NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (id, died)
    );
    CREATE INDEX ON {schema}.past (died);
    CREATE TABLE {schema}.moment (
        revision BIGINT PRIMARY KEY,
        at BIGINT NOT NULL,
        actor TEXT NOT NULL
    );
    CREATE INDEX ON {schema}.moment (at);
    """,
)
"""One script for each version of the tables, each a step from the one before; ``state.version`` counts them."""
