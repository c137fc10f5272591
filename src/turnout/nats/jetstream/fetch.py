"""Batches of messages from a pull consumer (ADR-15, "Pull Mode Statuses")."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from turnout.errors import ConfigError, Mistake
from turnout.nats.jetstream._client import Frame, Watchdog, replies_of_messages
from turnout.nats.jetstream.api import Api
from turnout.nats.jetstream.connection import Interest, NatsConnection
from turnout.nats.jetstream.errors import (
    HeartbeatMissedError,
    NoRespondersError,
    NotJetStreamMessageError,
    PermissionDeniedError,
    StreamError,
)
from turnout.nats.jetstream.message import ACK_PREFIX, Message, make_messages
from turnout.nats.jetstream.subscription import status_error
from turnout.nats.protocol.frames import PullStatus, next_request, pull_body
from turnout.nats.protocol.headers import Status, parse_table

_PIN: Final = "Nats-Pin-Id"
_GROUP: Final = re.compile(r"[A-Za-z0-9_/=-]{1,16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityGroup:
    """The priority group of a pull request, and when the request gets messages (ADR-42).

    Attributes:
        name: the group, one of the consumer's.
        min_pending: messages that must wait, for a consumer with the policy ``overflow``.
        min_ack_pending: messages that must be unacknowledged; either of the two is enough.
        priority: 0 (first) to 9, for a consumer with the policy ``prioritized``.
        on_pin: called with the pin's id when this client is pinned, and with None when it is not any more, for a
            consumer with the policy ``pinned_client``.
    """

    name: str
    min_pending: int | None = None
    min_ack_pending: int | None = None
    priority: int | None = None
    on_pin: Callable[[str | None], None] | None = None

    def __post_init__(self) -> None:
        rules = (
            ("name", bool(_GROUP.fullmatch(self.name)), "must be 1 to 16 of A-Z, a-z, 0-9, -, _, / and ="),
            ("min_pending", self.min_pending is None or self.min_pending >= 1, "must be at least 1"),
            ("min_ack_pending", self.min_ack_pending is None or self.min_ack_pending >= 1, "must be at least 1"),
            ("priority", self.priority is None or 0 <= self.priority <= 9, "must be 0 to 9"),
        )
        mistakes = [Mistake(name, f"{getattr(self, name)!r} {why}") for name, good, why in rules if not good]
        if mistakes:
            raise ConfigError(mistakes, what="bad priority group")


class Pin:
    """The id that a client's pull requests carry while a priority group's messages go to it.

    Args:
        known: False for a consumer with another policy, whose messages may have the header for another reason.
    """

    def __init__(self, *, known: bool = True) -> None:
        self.id: str | None = None
        self._known = known

    def fields(self, group: PriorityGroup | None) -> Mapping[str, object]:
        """Return the fields of a pull request about its group."""
        if group is None:
            return {}
        limits = {"min_pending": group.min_pending, "min_ack_pending": group.min_ack_pending}
        fields = {"group": group.name, **limits, "priority": group.priority, "id": self.id}
        return {name: value for name, value in fields.items() if value is not None}

    def read(self, group: PriorityGroup | None, frames: Sequence[Frame]) -> None:
        """Take the id from the newest message that has one."""
        if group is None or not self._known:
            return
        for _, _, headers, data in reversed(frames):
            if b"Nats-Pin-Id" in headers and Status.of(headers, data) is None:
                self._set(group, parse_table(headers).get(_PIN, [None])[-1])
                return

    def lose(self, group: PriorityGroup | None) -> None:
        """Forget the id."""
        self._set(group, None)

    def _set(self, group: PriorityGroup | None, new: str | None) -> None:
        if new != self.id:
            self.id = new
            if group is not None and group.on_pin is not None:
                group.on_pin(new)


class Batch(list[Message]):
    """The messages of one fetch, in order; `turnout.records.Batch` is another thing, records as columns.

    Attributes:
        error: reason of an early end after the first messages.
    """

    error: StreamError | None = None


def receive(connection: NatsConnection, frame: Frame, acks_nothing: bool) -> Message | Status | None:
    """Decode the answer to a pull request: a message, a status, or None for other statuses."""
    subject, reply, headers, data = frame
    if headers and not data:
        status = Status.of(headers, data, reply)
        if status is not None:
            return status
    if not reply.startswith(ACK_PREFIX):
        reason = "does not begin with $JS.ACK"
        connection.report(NotJetStreamMessageError(reply.decode("utf-8", "replace"), reason))
        return None
    return Message(connection, subject, reply, headers, data, acks_nothing)


def receive_all(connection: NatsConnection, frames: Sequence[Frame], acks_nothing: bool) -> list[Message] | None:
    """Decode answers that are all messages; None for few, and if one may be something else."""
    replies = replies_of_messages(frames)
    # Blanks are in no reply.
    if replies is not None and b" ".join((b"", *replies)).count(b" " + ACK_PREFIX) == len(frames):
        return make_messages(connection, frames, acks_nothing)
    return None


@dataclass(slots=True, eq=False)
class PullRequest:
    """Outstanding pull request: the messages, and bytes if limited, that it may still deliver."""

    left: int
    room: int | None

    def came(self, frame: Frame) -> bool:
        """Count a message like the server; return True if the request has ended with it.

        The server ends a request whose bytes are used up to the last one without a word.
        """
        self.left -= 1
        if self.room is not None:
            self.room -= sum(map(len, frame))
        return self.left == 0 or self.room == 0


class _Fetch:
    """Batch that is being fetched."""

    def __init__(
        self,
        api: Api,
        request: str,
        batch: int,
        max_bytes: int | None,
        acks_nothing: bool,
        group: PriorityGroup | None,
        pin: Pin,
    ) -> None:
        self._connection = api.connection
        self._group, self._pin = group, pin
        self._request = request
        self._under_way = PullRequest(batch, max_bytes or None)
        self._acks_nothing = acks_nothing
        self.messages = Batch()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watchdog: Watchdog | None = None

    def receive(self, frames: Sequence[Frame]) -> None:
        if self.watchdog is not None:
            self.watchdog.last_seen = monotonic()
        self._pin.read(self._group, frames)
        request = self._under_way
        messages = receive_all(self._connection, frames, self._acks_nothing) if request.room is None else None
        if messages is not None:
            self.messages += messages
            request.left -= len(messages)
            if request.left <= 0:
                self.finish()
            return
        for frame in frames:
            received = receive(self._connection, frame, self._acks_nothing)
            if isinstance(received, Message):
                self.messages.append(received)
                if self._under_way.came(frame):
                    self.finish()
            elif received is not None:
                self._receive_status(received)

    def _receive_status(self, status: Status) -> None:
        meaning = PullStatus.of(status.code, status.description)
        if meaning is PullStatus.HEARTBEAT:
            return
        if meaning is PullStatus.EXPIRED:
            self.finish()
        elif meaning is PullStatus.NO_RESPONDERS:
            self.finish(NoRespondersError(self._request))
        else:
            if meaning is PullStatus.UNPINNED:
                self._pin.lose(self._group)
            self.finish(status_error(status, self._request))

    def finish(self, failure: StreamError | None = None) -> None:
        if not self.done.done():
            self.messages.error = failure
            self.done.set_result(None)

    def denied(self, failure: PermissionDeniedError) -> None:
        self.finish(failure)

    def missed(self, idle: float) -> None:
        self.finish(HeartbeatMissedError(self._request, idle))


async def fetch(
    api: Api,
    stream: str,
    consumer: str,
    batch: int,
    *,
    timeout: float,
    no_wait: bool = False,
    max_bytes: int | None = None,
    heartbeat: float | None = None,
    acks_nothing: bool = False,
    group: PriorityGroup | None = None,
    pin: Pin | None = None,
) -> Batch:
    """Request up to *batch* messages and wait for them, for at most *timeout* seconds.

    If the caller is cancelled, received messages are returned to the server immediately.

    Raises:
        StatusError: the server refused the request before any message; the status has the reason.
        PinLostError: another client of the priority group has the pin; the next request waits for it.
        NoRespondersError: there is no such consumer.
        PermissionDeniedError: the user may not pull from it, or not subscribe to the answers.
    """
    if batch < 1:
        raise ConfigError([Mistake("batch", f"{batch} is not a number of messages")])
    request = next_request(stream, consumer)
    connection = api.connection
    held = pin or Pin()
    work = _Fetch(api, request, batch, max_bytes, acks_nothing, group, held)
    inbox = connection.new_inbox()
    subject = api.prefix.api(request)
    denials = [connection.on_denied(denied, work.denied) for denied in (subject, inbox)]
    interest: Interest | None = None
    try:
        interest = await connection.listen(inbox, work.receive)
        # The server's timeout is shorter, so that its last messages are not lost on the way.
        expires = None if no_wait else max(timeout - 0.05, timeout * 0.9)
        body = pull_body(
            batch, expires=expires, no_wait=no_wait, max_bytes=max_bytes, heartbeat=heartbeat, more=held.fields(group)
        )
        if heartbeat:
            work.watchdog = Watchdog(3 * heartbeat, work.missed)
            work.watchdog.start()
        connection.send(subject, body, inbox.encode())
        await asyncio.wait([work.done], timeout=timeout)
    except asyncio.CancelledError:
        for message in work.messages:
            message.nak_now()
        raise
    finally:
        if work.watchdog is not None:
            work.watchdog.stop()
        if interest is not None:
            connection.ignore(interest)
        for forget in denials:
            forget()
        work.done.cancel()
    if work.messages.error is not None and not work.messages:
        raise work.messages.error
    return work.messages
