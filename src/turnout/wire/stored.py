"""One message of a stream, asked for by its sequence: without any consumer, and whatever its subject is."""

from __future__ import annotations

import base64
from typing import Any

from turnout.errors import StreamError
from turnout.wire import headers as _headers
from turnout.wire.connection import Connection
from turnout.wire.rows import Row, record_batch, row

__all__ = ["stored_message", "stored_row"]

_NO_MESSAGE = 10037


def stored_message(connection: Connection, stream: str, sequence: int) -> Any:
    """The message as a record batch of `turnout.wire.records.SCHEMA`, as a reader of the stream sees it.

    Raises:
        StreamError: the stream is not there, or holds no message of this sequence (code 404).
        ConnectionLostError: the server goes away.
    """
    try:
        answer = connection.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
    except StreamError as failure:
        if failure.err_code == _NO_MESSAGE:
            text = f"the stream {stream!r} holds no message {sequence}"
            raise StreamError(text, code=404, err_code=failure.err_code) from None
        raise
    return record_batch([stored_row(answer["message"])])


def stored_row(message: dict[str, Any]) -> Row:
    """A message as the API answers with it."""
    headers = _headers.parse(base64.b64decode(message.get("hdrs", "")))
    value = base64.b64decode(message.get("data", ""))
    return row(message["subject"], message["seq"], value, headers, message["time"])
