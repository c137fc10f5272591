"""Positions in a stream: conversion of a word, a sequence or a time to a sequence."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from turnout.base.clocks import parse_duration
from turnout.base.untrusted import decimal, is_whole
from turnout.errors import ConfigError, ConnectionLostError, Mistake, StreamError
from turnout.nats.protocol.errors import MessageNotFoundError, StreamNotFoundError, StreamReplacedError
from turnout.nats.protocol.frames import ephemeral_config, next_request, number_in, object_in, pull_body
from turnout.nats.protocol.positions import (
    Position,
    microseconds,
    older_data_error,
    other_message_error,
    replaced_error,
    sequences,
)
from turnout.nats.wire.connection import Connection
from turnout.nats.wire.streams import create_consumer, delete_consumer, stream_info

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
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


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
    if isinstance(written, datetime) and written.tzinfo is None:
        # Times without a zone are UTC, as everywhere in turnout.
        return written.replace(tzinfo=UTC)
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
