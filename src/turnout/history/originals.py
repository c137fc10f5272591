"""Records as their stream still has them, in the place of what their dead letters hold of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from turnout.engine.given import Given
from turnout.errors import StreamError
from turnout.history.dead_letters import DeadLetter
from turnout.routes import Route
from turnout.routes.endpoints import NatsSource
from turnout.wire import Connection, ConnectionOptions, stored_message

__all__ = ["originals"]

_FORBIDDEN, _GONE = 403, 404


def originals(route: Route, letters: Sequence[DeadLetter]) -> list[Given]:
    """The record of each letter.

    A letter from NATS lacks the record's key (its message id) and its time, and of a large record the value: the
    source's stream is asked for the message, and where that is gone the letter is all there is.

    Raises:
        ConnectionLostError: the server of the source cannot be reached.
    """
    if not isinstance(route.source, NatsSource):
        return [letter.record for letter in letters]
    with Connection.open(ConnectionOptions.from_mapping(route.source.options())) as connection:
        return [_original(connection, letter.record) or letter.record for letter in letters]


def _original(connection: Connection, record: Given) -> Given | None:
    if record.stream is None or record.offset is None:
        return None
    try:
        message = stored_message(connection, record.stream, record.offset)
    except StreamError as failure:
        if failure.code not in (_FORBIDDEN, _GONE):
            raise
        return None
    at = message.schema.get_field_index("timestamp")
    row: dict[str, Any] = message.set_column(at, "timestamp", message.column(at).cast(pa.int64())).to_pylist()[0]
    if row["topic"] != record.topic:
        # A stream of the same name, created again.
        return None
    headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
    return Given(
        row["topic"],
        row["value"],
        row["key"],
        headers,
        row["partition"],
        row["offset"],
        row["timestamp"],
        record.stream,
    )
