"""Single message of a stream, read by its sequence: without a consumer, on any subject."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from turnout.errors import StreamError
from turnout.nats.protocol.answers import number_in, object_in
from turnout.nats.protocol.errors import MessageNotFoundError
from turnout.nats.protocol.headers import parse
from turnout.nats.wire.connection import Connection
from turnout.nats.wire.rows import Row, record_batch, row


def stored_message(connection: Connection, stream: str, sequence: int) -> Any:
    """The message as a record batch of `turnout.nats.wire.records.SCHEMA`, as a reader of the stream sees it.

    Raises:
        StreamError: the stream is not there, or holds no message of this sequence (code 404).
        ConnectionLostError: the server goes away.
    """
    try:
        answer = connection.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
    except MessageNotFoundError as failure:
        text = f"the stream {stream!r} holds no message {sequence}"
        raise MessageNotFoundError(text, code=404, err_code=failure.err_code) from None
    return record_batch([stored_row(stream, answer)])


def stored_row(stream: str, answer: Mapping[str, Any]) -> Row:
    """The message in what the API has answered.

    Raises:
        StreamError: there is none, or it cannot be read.
    """
    request = f"STREAM.MSG.GET.{stream}"
    message = object_in(answer, "message", request=request)
    sequence = number_in(message, "seq", request=request)
    try:
        headers, payload = (base64.b64decode(message.get(name) or "") for name in ("hdrs", "data"))
        return row(message["subject"], sequence, payload, parse(headers), message["time"])
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise StreamError(f"{request}: message {sequence} cannot be read: {failure!r:.80}") from None
