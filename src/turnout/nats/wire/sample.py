"""Samples of a stream's messages by sequence, without a consumer."""

from __future__ import annotations

import json
import time
from typing import Any

from turnout.nats.protocol.answers import read_object
from turnout.nats.wire.connection import Connection
from turnout.nats.wire.rows import Row, record_batch
from turnout.nats.wire.stored import stored_row
from turnout.nats.wire.streams import stream_info

_BATCH_REQUESTS = 250


def sample(connection: Connection, stream: str, count: int, subject: str = ">") -> Any:
    """Return up to *count* messages spread evenly over *stream*, as a `turnout.nats.wire.records.SCHEMA` batch.

    Hundreds are asked for at a time, so a server that is far away costs a few round trips and no more. Where a message
    is gone, or is not on *subject*, the next one that is takes its place.

    Raises:
        StreamError: when the stream is not there; with code 403 when its messages may not be asked for.
        ConnectionLostError: when the server goes away.
    """
    state = stream_info(connection, stream)["state"]
    first, last = state["first_seq"], state["last_seq"]
    sequences = sorted({first + (last - first) * n // max(1, count - 1) for n in range(count)}) if last >= first else []
    sampled: dict[int, Row] = {}
    for begin in range(0, len(sequences), _BATCH_REQUESTS):
        rows = _ask(connection, stream, sequences[begin : begin + _BATCH_REQUESTS], subject)
        if not rows:
            # Nothing is behind these sequences then, or nobody answers: not worth the same wait again.
            break
        sampled |= {row.offset: row for row in rows}
    return record_batch([sampled[sequence] for sequence in sorted(sampled)])


def _ask(connection: Connection, stream: str, sequences: list[int], subject: str) -> list[Row]:
    """Request the first message at or after each of *sequences*; late answers are omitted."""
    inbox = connection.new_inbox()
    number = connection.subscribe(inbox)
    for sequence in sequences:
        body = json.dumps({"seq": sequence, "next_by_subj": subject}).encode()
        connection.publish_api(f"STREAM.MSG.GET.{stream}", body, inbox)
    rows: list[Row] = []
    answers = 0
    try:
        for message in connection.messages(time.monotonic() + connection.options.timeout):
            if message.subject != inbox:
                continue
            answer = read_object(message.payload or b"{}", request=f"STREAM.MSG.GET.{stream}")
            rows += [stored_row(stream, answer)] if "message" in answer else []
            answers += 1
            if answers == len(sequences):
                break
    except TimeoutError:
        pass
    connection.unsubscribe(number)
    return rows
