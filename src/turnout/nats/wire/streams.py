"""JetStream API requests about streams, consumers, stored messages and positions in a stream.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from turnout.base.clocks import parse_duration, parse_time, with_zone
from turnout.base.untrusted import JsonMapping, JsonObject, decimal, is_whole
from turnout.errors import ConfigError, ConnectionLostError, Mistake, StreamError
from turnout.nats.protocol.errors import (
    ConsumerNotFoundError,
    MessageNotFoundError,
    StreamNotFoundError,
    StreamReplacedError,
)
from turnout.nats.protocol.frames import (
    PullStatus,
    ephemeral_config,
    frame,
    next_request,
    number_in,
    object_in,
    pull_body,
    read_object,
)
from turnout.nats.protocol.headers import parse
from turnout.nats.protocol.positions import (
    Position,
    microseconds,
    older_data_error,
    other_message_error,
    replaced_error,
    sequences,
)
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


_STREAM_NOT_FOUND = 10059
_FORBIDDEN, _NOT_FOUND = 403, 404
_CONSUMED = frozenset({"workqueue", "interest"})

StreamPosition = str | int | datetime | Mapping[str, int]
"""``earliest``, ``latest``, a sequence, a time, or a sequence for each stream."""


@dataclass(frozen=True, slots=True)
class StoredSequences:
    """Sequences that a stream holds: *first* up to, not including, *next*, without the *deleted* ones.

    Attributes:
        consumed: messages are deleted when the stream's consumers have acknowledged them (a work queue, or by
            interest): an observer must not be one of these.
        created: creation time of the stream, which distinguishes it from others of its name.
        time: when its last message was stored, in microseconds since 1970; None for an empty stream.
    """

    first: int
    next: int
    mean_bytes: float
    deleted: int
    consumed: bool
    created: str
    time: int | None


def state_of(connection: Connection, stream: str) -> StoredSequences:
    """Request the state of *stream*.

    Raises:
        StreamError: the stream does not exist, or access is denied.
    """
    try:
        info = stream_info(connection, stream)
    except StreamError as failure:
        if failure.err_code == _STREAM_NOT_FOUND:
            raise StreamNotFoundError(f"there is no stream {stream!r}", code=404, err_code=failure.err_code) from None
        raise
    state, consumed = info["state"], info["config"].get("retention") in _CONSUMED
    messages = state["messages"]
    # A stream that never had a message says that its first is 0.
    first, following = max(1, state["first_seq"]), state["last_seq"] + 1
    mean = state["bytes"] / messages if messages else 0
    deleted = max(0, following - first - messages)
    created, last_time = str(info.get("created", "")), str(state.get("last_ts", ""))
    return StoredSequences(first, following, mean, deleted, consumed, created, microseconds(last_time))


def position_problem(
    connection: Connection, stream: str, position: Position, state: StoredSequences
) -> StreamReplacedError | None:
    """Return an error if a position is not in the stream as it is now: made anew, or restored to older data.

    The message before the position is requested if others may have taken its sequence. It may be deleted, or access to
    it denied: then only the creation time and the end of the stream are compared.

    Args:
        connection: connection for the request.
        stream: the stream.
        position: a position in it.
        state: its present state.
    """
    if position.identity.created != state.created:
        return replaced_error(stream, position, state.created)
    if position.next > state.next:
        return older_data_error(stream, position, state.next)
    if position.time is None or (position.next == state.next and position.time == state.time):
        return None
    found = time_before(connection, stream, position.next, state)
    return None if found in (None, position.time) else other_message_error(stream, position, found)


def time_before(connection: Connection, stream: str, sequence: int, state: StoredSequences) -> int | None:
    """Return when the message before *sequence* was stored, in microseconds since 1970; None if that is unknown."""
    if not state.first < sequence <= state.next:
        return None
    try:
        request = f"STREAM.MSG.GET.{stream}"
        message = object_in(connection.api(request, {"seq": sequence - 1}), "message", request=request)
        return microseconds(str(message["time"]))
    except StreamError as failure:
        if failure.code not in (_FORBIDDEN, _NOT_FOUND):
            raise
        return None


def resolve(connection: Connection, stream: str, position: StreamPosition) -> int:
    """Return the sequence that *position* names in *stream*."""
    if isinstance(position, datetime):
        return _sequence_at(connection, stream, position)
    if isinstance(position, int):
        return max(1, position)
    state = state_of(connection, stream)
    if position == "earliest":
        return state.first
    if position == "latest":
        return state.next
    if isinstance(position, str) or stream not in position:
        raise ConfigError([Mistake("startingOffsets", f"has no sequence for the stream {stream!r}")])
    return max(1, position[stream])


def _sequence_at(connection: Connection, stream: str, moment: datetime) -> int:
    """Return the first sequence at or after *moment*, or the end of the stream."""
    state = state_of(connection, stream)
    if state.consumed:
        return _stored_at(connection, stream, moment) or state.next
    name = f"turnout-time-{secrets.token_hex(8)}"
    create_consumer(connection, stream, ephemeral_config(moment, name=name, headers_only=True))
    inbox = connection.new_inbox()
    number = connection.subscribe(inbox)
    connection.publish_api(next_request(stream, name), pull_body(1, no_wait=True), inbox)
    sequence = state.next
    try:
        for message in connection.messages(time.monotonic() + connection.options.timeout):
            if message.reply.startswith("$JS.ACK."):
                sequence = sequences(message.reply.encode())[0]
            if message.reply or message.subject == inbox:
                break
        connection.unsubscribe(number)
    except TimeoutError as late:
        raise ConnectionLostError(f"stream {stream!r} did not report its position at {moment.isoformat()}") from late
    delete_consumer(connection, stream, name)
    return sequence


def _stored_at(connection: Connection, stream: str, moment: datetime) -> int | None:
    """Return the first sequence at or after *moment*, without a consumer; None if no message is that late."""
    request = f"STREAM.MSG.GET.{stream}"
    try:
        answer = connection.api(request, {"start_time": moment.isoformat()})
    except MessageNotFoundError:
        return None
    return number_in(object_in(answer, "message", request=request), "seq", request=request)


def pending_from(connection: Connection, stream: str, start: int, filters: Sequence[str]) -> int:
    """Return the number of messages stored from *start* on, on the subjects *filters* if given, at this moment."""
    created = create_consumer(connection, stream, ephemeral_config(start, filters))
    delete_consumer(connection, stream, created["name"])
    return int(created["num_pending"])


def parse_position(text: str) -> StreamPosition | None:
    """Parse a text as a position in a stream; None if it is not one."""
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.isdecimal():
        return decimal(text)
    if text.startswith("{"):
        try:
            table = json.loads(text)
        except (ValueError, RecursionError):
            return None
        numbers = isinstance(table, dict) and all(map(is_whole, table.values()))
        return table if numbers else None
    try:
        return parse_time(text)
    except ValueError:
        return None


def parse_place(text: str) -> StreamPosition | None:
    """Parse a text as a position, or as an age such as ``10m``, the time so long ago; None if it is neither."""
    age = parse_duration(text)
    if age is None:
        return parse_position(text)
    try:
        return datetime.now(UTC) - timedelta(seconds=age)
    except OverflowError:
        return None


PLACES: Final = "earliest, latest, a sequence, an ISO time, an age such as 10m or {stream: sequence}"
"""Texts that `parse_place` accepts, for errors."""


def position_of(option: str, written: StreamPosition) -> StreamPosition:
    """A place that may be given as text.

    Args:
        option: option that has it, for the error.
        written: the place, or the text that names it.

    Raises:
        ConfigError: the text names none.
    """
    if isinstance(written, datetime):
        return with_zone(written)
    if not isinstance(written, str):
        return written
    position = parse_place(written.strip())
    if position is None:
        raise ConfigError([Mistake(option, f"expected {PLACES}, found {written!r}")])
    return position


_MAX_LISTED: Final = 10_000
"""Maximum number of deleted sequences to request: the server lists them in one answer."""

_MAX_TRIES: Final = 20


def count_exactly(connection: Connection, stream: str, start: int, end: int, filters: Sequence[str] = ()) -> int | None:
    """Return the number of messages from *start* up to, not including, *end*, on the subjects *filters* if given.

    Args:
        connection: connection for the requests.
        stream: the stream.
        start: the first sequence.
        end: the sequence behind the last; the stream has reached it.
        filters: none for all subjects.

    Returns:
        The number; None if unknown: so many messages arrive or are deleted that no two answers are consistent, or only
        a consumer could say it, of a stream that counts its consumers.

    Raises:
        StreamError: the stream does not exist, or access is denied.
    """
    if end <= start:
        return 0
    before = state_of(connection, stream)
    start = max(start, before.first)
    if not filters or ">" in filters:
        if not before.deleted:
            return max(0, end - start)
        if before.deleted <= _MAX_LISTED:
            return _less_listed(connection, stream, start, end)
    if before.consumed:
        return None
    counted = _between(connection, stream, start, end, filters)
    return None if counted is None or _lost_some(before, state_of(connection, stream)) else counted


def count_about(connection: Connection, stream: str, start: int, end: int, filters: Sequence[str] = ()) -> int:
    """Count like `count_exactly`, in two requests; messages published between them may be counted."""
    if end <= start:
        return 0
    behind = pending_from(connection, stream, end, filters)
    return max(0, pending_from(connection, stream, start, filters) - behind)


def _less_listed(connection: Connection, stream: str, start: int, end: int) -> int:
    """Count the sequences minus the listed deleted ones, from a single and thus consistent answer."""
    state = stream_info(connection, stream, deleted_details=True)["state"]
    first = max(start, int(state["first_seq"]))
    deleted: list[int] = state.get("deleted") or []
    return max(0, end - first) - sum(first <= sequence < end for sequence in deleted)


def _between(connection: Connection, stream: str, start: int, end: int, filters: Sequence[str]) -> int | None:
    least, most = 0, end - start
    earlier = pending_from(connection, stream, end, filters)
    for _ in range(_MAX_TRIES):
        whole = pending_from(connection, stream, start, filters)
        later = pending_from(connection, stream, end, filters)
        least, most = max(least, whole - later), min(most, whole - earlier)
        if least == most:
            return least
        earlier = later
    return None


def _lost_some(before: StoredSequences, after: StoredSequences) -> bool:
    """Return True if messages above the retained beginning may have been deleted between the two requests."""
    if after.deleted != before.deleted:
        return True
    # With holes, others may have been passed by the beginning while as many new ones were made.
    return bool(before.deleted) and after.first != before.first
