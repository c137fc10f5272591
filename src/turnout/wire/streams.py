"""What one asks the JetStream API about streams and consumers, each in one call."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from turnout.errors import StreamError
from turnout.wire.connection import Connection

__all__ = [
    "create_consumer",
    "create_stream",
    "delete_consumer",
    "delete_stream",
    "purge_stream",
    "stream_info",
    "streams_of",
    "subject_counts",
]

_CONSUMER_NOT_FOUND = 10014


def create_stream(connection: Connection, config: Mapping[str, Any]) -> dict[str, Any]:
    """Create the stream that *config* describes (``name``, ``subjects`` …); the same one again is no error."""
    return connection.api(f"STREAM.CREATE.{config['name']}", config)


def stream_info(connection: Connection, stream: str, **request: Any) -> dict[str, Any]:
    """Configuration and state of *stream*; *request* may ask for more (``subjects_filter=">"``)."""
    return connection.api(f"STREAM.INFO.{stream}", request or None)


def streams_of(connection: Connection, subject: str) -> list[str]:
    """The names of the streams that take *subject*; also those that are without a leader just now."""
    told = connection.api("STREAM.NAMES", {"subject": subject})
    return [str(name) for name in told.get("streams") or ()]


def delete_stream(connection: Connection, stream: str) -> None:
    """Delete *stream* and all that it holds."""
    connection.api(f"STREAM.DELETE.{stream}")


def purge_stream(connection: Connection, stream: str, **request: Any) -> int:
    """Remove messages, all or those that *request* names (``filter``, ``seq``, ``keep``); how many they were."""
    return int(connection.api(f"STREAM.PURGE.{stream}", request or None)["purged"])


def subject_counts(connection: Connection, stream: str, pattern: str = ">") -> dict[str, int]:
    """How many messages *stream* holds for each subject that *pattern* matches."""
    counts: dict[str, int] = {}
    while True:
        told = stream_info(connection, stream, subjects_filter=pattern, offset=len(counts))
        page = told["state"].get("subjects") or {}
        counts.update(page)
        if not page or len(counts) >= told.get("total", 0):
            return counts


def create_consumer(connection: Connection, stream: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Create the consumer that *config* describes, under its ``name`` or one of its own; the server's answer."""
    name = config.get("name") or f"turnout-{secrets.token_hex(8)}"
    body = {"stream_name": stream, "config": {**config, "name": name}}
    return connection.api(f"CONSUMER.CREATE.{stream}.{name}", body)


def delete_consumer(connection: Connection, stream: str, consumer: str) -> None:
    """Delete *consumer*; that it is gone already is no error."""
    try:
        connection.api(f"CONSUMER.DELETE.{stream}.{consumer}")
    except StreamError as failure:
        if failure.err_code != _CONSUMER_NOT_FOUND:
            raise
