"""JetStream API requests about streams and consumers, one function per request."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from typing import Any

from turnout.errors import StreamError
from turnout.nats.protocol.answers import number_in, object_in
from turnout.nats.protocol.errors import ConsumerNotFoundError
from turnout.nats.wire.connection import Connection


def create_stream(connection: Connection, config: Mapping[str, Any]) -> dict[str, Any]:
    """Create the stream that *config* describes (``name``, ``subjects`` …); the same one again is no error."""
    return connection.api(f"STREAM.CREATE.{config['name']}", config)


def stream_info(connection: Connection, stream: str, **body: Any) -> dict[str, Any]:
    """Return configuration and state of *stream*; *body* may request more (``subjects_filter=">"``).

    Raises:
        StreamNotFoundError: when there is no such stream.
        StreamError: when the answer is not one about a stream.
    """
    request = f"STREAM.INFO.{stream}"
    info = connection.api(request, body or None)
    object_in(info, "config", request=request)
    state = object_in(info, "state", request=request)
    for name in ("messages", "bytes", "first_seq", "last_seq"):
        number_in(state, name, request=request)
    return info


def streams_of(connection: Connection, subject: str) -> list[str]:
    """Return the names of the streams that capture *subject*, including streams without a leader."""
    response = connection.api("STREAM.NAMES", {"subject": subject})
    return [str(name) for name in response.get("streams") or ()]


def delete_stream(connection: Connection, stream: str) -> None:
    """Delete *stream* and all that it holds."""
    connection.api(f"STREAM.DELETE.{stream}")


def purge_stream(connection: Connection, stream: str, **body: Any) -> int:
    """Remove all messages or a selection in *body* (``filter``, ``seq``, ``keep``); return their number."""
    request = f"STREAM.PURGE.{stream}"
    return number_in(connection.api(request, body or None), "purged", request=request)


def subject_counts(connection: Connection, stream: str, pattern: str = ">") -> dict[str, int]:
    """Return the number of messages that *stream* holds for each subject matching *pattern*."""
    counts: dict[str, int] = {}
    while True:
        known = len(counts)
        info = stream_info(connection, stream, subjects_filter=pattern, offset=known)
        request = f"STREAM.INFO.{stream}"
        page = info["state"].get("subjects") or {}
        if not isinstance(page, dict):
            raise StreamError(f"{request}: 'subjects' in the answer is not an object")
        counts.update({subject: number_in(page, subject, request=request) for subject in page})
        if len(counts) == known or len(counts) >= number_in(info, "total", request=request, default=0):
            return counts


def create_consumer(connection: Connection, stream: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Create the consumer of *config*, with its ``name`` or a generated one; return the server's answer.

    Raises:
        StreamNotFoundError: when there is no such stream.
        StreamError: when the server refuses, or answers about another consumer.
    """
    name = config.get("name") or f"turnout-{secrets.token_hex(8)}"
    body = {"stream_name": stream, "config": {**config, "name": name}}
    request = f"CONSUMER.CREATE.{stream}.{name}"
    info = connection.api(request, body)
    if info.get("name") != name:
        raise StreamError(f"{request}: the answer is about {info.get('name')!r:.60}")
    number_in(info, "num_pending", request=request, default=1)
    return info


def delete_consumer(connection: Connection, stream: str, consumer: str) -> None:
    """Delete *consumer*; a missing consumer is not an error."""
    with contextlib.suppress(ConsumerNotFoundError):
        connection.api(f"CONSUMER.DELETE.{stream}.{consumer}")
