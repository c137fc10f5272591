"""Batches of messages from a pull consumer (ADR-15, "Pull Mode Statuses")."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from turnout.errors import ConfigError, Mistake
from turnout.nats.jetstream._frames import Frame, replies_of_messages
from turnout.nats.jetstream._time_limits import Watchdog
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
from turnout.nats.protocol.pull_requests import PullStatus, next_request, pull_body
from turnout.nats.protocol.status import Status


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

    def __init__(self, api: Api, request: str, batch: int, max_bytes: int | None, acks_nothing: bool) -> None:
        self._connection = api.connection
        self._request = request
        self._under_way = PullRequest(batch, max_bytes or None)
        self._acks_nothing = acks_nothing
        self.messages = Batch()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watchdog: Watchdog | None = None

    def receive(self, frames: Sequence[Frame]) -> None:
        if self.watchdog is not None:
            self.watchdog.last_seen = monotonic()
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
) -> Batch:
    """Request up to *batch* messages and wait for them, for at most *timeout* seconds.

    If the caller is cancelled, received messages are returned to the server immediately.

    Raises:
        StatusError: the server refused the request before any message; the status has the reason.
        NoRespondersError: there is no such consumer.
        PermissionDeniedError: the user may not pull from it, or not subscribe to the answers.
    """
    if batch < 1:
        raise ConfigError([Mistake("batch", f"{batch} is not a number of messages")])
    request = next_request(stream, consumer)
    connection = api.connection
    work = _Fetch(api, request, batch, max_bytes, acks_nothing)
    inbox = connection.new_inbox()
    subject = api.prefix.api(request)
    denials = [connection.on_denied(denied, work.denied) for denied in (subject, inbox)]
    interest: Interest | None = None
    try:
        interest = await connection.listen(inbox, work.receive)
        # The server's timeout is shorter, so that its last messages are not lost on the way.
        expires = None if no_wait else max(timeout - 0.05, timeout * 0.9)
        body = pull_body(batch, expires=expires, no_wait=no_wait, max_bytes=max_bytes, heartbeat=heartbeat)
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
