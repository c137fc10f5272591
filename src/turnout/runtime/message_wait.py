"""Waiting at the server for the next message, instead of asking again and again."""

from __future__ import annotations

import contextlib
import logging
import time

from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.errors import PermissionDeniedError
from turnout.nats.protocol.pull_requests import ephemeral_config, next_request, pull_body
from turnout.nats.wire import Connection, create_consumer, delete_consumer

_log = logging.getLogger(__name__)

_denied: set[str] = set()
"""Streams at which a warning has said that this user may not wait."""

_DENIED_SECONDS = 0.5
"""Poll interval in seconds of a stream whose consumers this user may not make."""

_POLL_SECONDS = 0.05
"""Poll interval in seconds of a stream without a consumer to wait on."""


def wait_for_more(connection: Connection, positions: dict[str, int], filters: tuple[str, ...], seconds: float) -> None:
    """Return when one of the streams has a message at or after its sequence, or after *seconds*.

    A consumer for each stream hands over the headers of one message. It is a hint only: an error here repeats, and is
    reported, when the state of the stream is requested. A permission that is missing for the consumer alone is not: a
    warning says so, once in a process.
    """
    consumers: list[tuple[str, str]] = []
    try:
        _wait(connection, positions, filters, seconds, consumers)
    except PermissionDeniedError as denied:
        names = ", ".join(positions)
        if names not in _denied:
            _denied.add(names)
            text = "waiting for messages of %s is not permitted, so the state of the stream is requested instead: %s;"
            _log.warning(f"{text} a user who reads needs this subject for short-lived consumers", names, denied)
        time.sleep(min(seconds, _DENIED_SECONDS))
    except StreamError:
        # A stream whose consumers must not overlap has none to wait with.
        time.sleep(min(seconds, _POLL_SECONDS))
    except (ConnectionLostError, TimeoutError):
        pass
    for stream, name in consumers:
        with contextlib.suppress(StreamError, ConnectionLostError):
            delete_consumer(connection, stream, name)


def _wait(
    connection: Connection,
    positions: dict[str, int],
    filters: tuple[str, ...],
    seconds: float,
    consumers: list[tuple[str, str]],
) -> None:
    """Wait for a message in one of the streams; append the consumers to remove afterwards to *consumers*."""
    inbox = connection.new_inbox()
    number = connection.subscribe(inbox)
    try:
        for stream, position in positions.items():
            config = ephemeral_config(position, filters, headers_only=True)
            consumers.append((stream, create_consumer(connection, stream, config)["name"]))
        request = pull_body(1, expires=seconds)
        for stream, name in consumers:
            connection.publish_api(next_request(stream, name), request, inbox)
        for message in connection.messages(time.monotonic() + seconds + 1):
            if message.subject == inbox or message.reply.startswith("$JS.ACK."):
                break
    finally:
        with contextlib.suppress(ConnectionLostError):
            connection.unsubscribe(number)
