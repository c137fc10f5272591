"""JetStream API requests about streams, consumers and stored messages.

`Acknowledger` is a durable consumer used only to acknowledge processed messages, up to a sequence. The messages
themselves are read by sequence (`turnout.nats.wire.direct`), so that a batch that failed can be read
again as it was; the consumer follows when the batch is committed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import time
from collections.abc import Sequence

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.errors import ConsumerNotFoundError, MessageNotFoundError
from turnout.nats.protocol.frames import PullStatus, frame, next_request, number_in, object_in, pull_body, read_object
from turnout.nats.protocol.headers import parse
from turnout.nats.protocol.positions import sequences
from turnout.nats.wire.connection import Connection
from turnout.nats.wire.records import Row, record_batch, row
from turnout.records.types import ArrowBatch


def create_stream(connection: Connection, config: JsonMapping) -> JsonObject:
    """Create the stream that *config* describes (``name``, ``subjects`` …); the same one again is no error."""
    return connection.api(f"STREAM.CREATE.{config['name']}", config)


def stream_info(connection: Connection, stream: str, **body: object) -> JsonObject:
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


def storing_problem(config: JsonMapping) -> str | None:
    """Return the reason that a stream of this configuration never acknowledges a message that is published to it.

    >>> storing_problem({"name": "M", "mirror": {"name": "ORDERS"}})
    "is a mirror of 'ORDERS', and stores only that stream's messages"
    """
    mirror = config.get("mirror")
    if isinstance(mirror, dict):
        return f"is a mirror of {mirror.get('name')!r}, and stores only that stream's messages"
    if config.get("sealed"):
        return "is sealed, and stores no new messages"
    if config.get("no_ack"):
        return "has no_ack: it acknowledges nothing, so that nothing can be known to be stored (set no_ack: false)"
    return None


_LONGEST_WAIT = 30 * 86_400 * 10**9
"""The longest that a message waits, in nanoseconds."""


def schedules_problem(config: JsonMapping) -> str | None:
    """Return the reason that a stream of this configuration does not publish messages at their times (ADR-51).

    >>> schedules_problem({"name": "ORDERS"})
    'has allow_msg_schedules: false (servers have it from 2.12 on)'
    """
    if not config.get("allow_msg_schedules"):
        return "has allow_msg_schedules: false (servers have it from 2.12 on)"
    if config.get("retention", "limits") != "limits":
        return f"has retention: {config['retention']}, by which a consumer removes what waits; it needs limits"
    return removing_problem(config)


def removing_problem(config: JsonMapping) -> str | None:
    """Return the limit by which a stream of this configuration may remove what has waited for less than 30 days."""
    if 0 < config.get("max_age", 0) < _LONGEST_WAIT:
        return "has a max_age below 30 days, after which it removes what waits"
    limits = [name for name in ("max_msgs", "max_bytes") if config.get(name, -1) > 0]
    if limits and config.get("discard", "old") == "old":
        return f"has {limits[0]} with discard: old, by which it removes what waits; it needs discard: new"
    return None


def delete_stream(connection: Connection, stream: str) -> None:
    """Delete *stream* with all its messages."""
    connection.api(f"STREAM.DELETE.{stream}")


def purge_stream(connection: Connection, stream: str, **body: object) -> int:
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


def create_consumer(connection: Connection, stream: str, config: JsonMapping) -> JsonObject:
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


def stored_message(connection: Connection, stream: str, sequence: int) -> ArrowBatch:
    """The message as a record batch of `turnout.nats.wire.records.SCHEMA`, as a reader of the stream sees it.

    Raises:
        StreamError: the stream is not there, or holds no message of this sequence (code 404).
        ConnectionLostError: the connection is lost.
    """
    try:
        answer = connection.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
    except MessageNotFoundError as failure:
        text = f"the stream {stream!r} holds no message {sequence}"
        raise MessageNotFoundError(text, code=404, err_code=failure.err_code) from None
    return record_batch([stored_row(stream, answer)])


def stored_row(stream: str, answer: JsonMapping) -> Row:
    """The message in an answer of the API.

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


_BATCH_REQUESTS = 250


def sample(connection: Connection, stream: str, count: int, subject: str = ">") -> ArrowBatch:
    """Return up to *count* messages spread evenly over *stream*, as a `turnout.nats.wire.records.SCHEMA` batch.

    Hundreds are requested at a time, so a distant server costs only a few round trips. A message that was deleted, or
    is not on *subject*, is replaced by the next one that is.

    Raises:
        StreamError: the stream does not exist; with code 403 if access to its messages is denied.
        ConnectionLostError: the connection is lost.
    """
    state = stream_info(connection, stream)["state"]
    first, last = state["first_seq"], state["last_seq"]
    sequences = sorted({first + (last - first) * n // max(1, count - 1) for n in range(count)}) if last >= first else []
    sampled: dict[int, Row] = {}
    for begin in range(0, len(sequences), _BATCH_REQUESTS):
        some = sequences[begin : begin + _BATCH_REQUESTS]
        rows, _ = _ask(connection, stream, [{"seq": sequence, "next_by_subj": subject} for sequence in some])
        if not rows:
            # Nothing is behind these sequences then, or there is no answer: not worth the same wait again.
            break
        sampled |= {row.offset: row for row in rows}
    return record_batch([sampled[sequence] for sequence in sorted(sampled)])


def stored_messages(connection: Connection, stream: str, sequences: Sequence[int]) -> ArrowBatch:
    """Return the messages at *sequences* that the stream still holds, ascending, as one record batch.

    Hundreds are requested at a time.

    Raises:
        StreamError: the stream does not exist, or access to its messages is denied.
        ConnectionLostError: not all requests are answered in time.
    """
    rows: list[Row] = []
    for begin in range(0, len(sequences), _BATCH_REQUESTS):
        some = sequences[begin : begin + _BATCH_REQUESTS]
        found, answers = _ask(connection, stream, [{"seq": sequence} for sequence in some])
        if answers < len(some):
            raise ConnectionLostError(f"stream {stream!r}: {answers} of {len(some)} requests were answered in time")
        rows += found
    return record_batch(sorted(rows, key=lambda row: row.offset))


def _ask(connection: Connection, stream: str, requests: Sequence[JsonMapping]) -> tuple[list[Row], int]:
    """Send requests for messages together; return the messages, and the number of answers in time."""
    inbox = connection.new_inbox()
    number = connection.subscribe(inbox)
    request = f"STREAM.MSG.GET.{stream}"
    for body in requests:
        connection.publish_api(request, json.dumps(body).encode(), inbox)
    rows: list[Row] = []
    answers = 0
    try:
        for message in connection.messages(time.monotonic() + connection.options.timeout):
            if message.subject != inbox:
                continue
            answer = read_object(message.payload or b"{}", request=request)
            rows += [stored_row(stream, answer)] if "message" in answer else []
            answers += 1
            if answers == len(requests):
                break
    except TimeoutError:
        pass
    connection.unsubscribe(number)
    return rows, answers


_BATCH_MESSAGES = 500


class Acknowledger:
    """Acknowledges the messages of *stream* for the durable *consumer*, which is made if it is not there."""

    def __init__(self, connection: Connection, stream: str, consumer: str, filters: tuple[str, ...] = ()) -> None:
        self._connection = connection
        self._stream = stream
        self._consumer = consumer
        config = {
            "durable_name": consumer,
            "name": consumer,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "headers_only": True,
            **({"filter_subject": filters[0]} if filters else {}),
        }
        request = f"consumer {consumer!r}"
        floor = object_in(create_consumer(connection, stream, config), "ack_floor", request=request)
        self.floor = number_in(floor, "stream_seq", request=request) + 1

    def acknowledge(self, end: int) -> int:
        """Acknowledge all pending messages below *end* and return their number.

        Not promised: one that was delivered moments ago to a process that then died is acknowledged by a later
        call only, when the consumer delivers it again (after its ``ack_wait``).
        """
        connection = self._connection
        count = 0
        # At most one message per sequence can be below the end.
        while (left := end - self.floor - count) > 0:
            if not connection.is_open:
                connection.reconnect()
            inbox = connection.new_inbox()
            number = connection.subscribe(inbox)
            batch = min(_BATCH_MESSAGES, left)
            connection.publish_api(next_request(self._stream, self._consumer), pull_body(batch, no_wait=True), inbox)
            try:
                below, more = self._answer(number, inbox, end, batch)
            except (TimeoutError, ConnectionLostError):
                connection.close()
                raise ConnectionLostError("the acknowledgements could not be sent") from None
            count += below
            if not more:
                break
        # Once a PONG is back the server has read every acknowledgement.
        if count:
            connection.ping()
        self.floor = max(self.floor, end)
        return count

    def _answer(self, number: int, inbox: str, end: int, batch: int) -> tuple[int, bool]:
        """Acknowledge one pull's messages below *end*, return the others; return the count, and whether to continue.

        How much is pending says nothing here: messages that were given back do not count as such.
        """
        connection = self._connection
        answers: list[bytes] = []
        below = received = 0
        ended = False
        for message in connection.messages(time.monotonic() + connection.options.timeout):
            status = message.status
            if status is not None and message.subject == inbox:
                if PullStatus.of(status.code, status.text) is not PullStatus.EXPIRED:
                    raise StreamError(f"consumer {self._consumer!r}: {status.text or 'refused'}", code=status.code)
                ended = True
                break
            if not message.reply.startswith("$JS.ACK."):
                continue
            mine = sequences(message.reply.encode())[0] < end
            answers.append(frame(message.reply, b"+ACK" if mine else b"-NAK"))
            below += mine
            received += 1
            if received == batch:
                break
        connection.unsubscribe(number)
        if answers:
            connection.send(b"".join(answers))
        return below, below == received and not ended
