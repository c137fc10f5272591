"""Pull requests: batches of messages, and overlapping requests without a pause (ADR-15, "Pull Mode Statuses")."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, Self

from turnout.errors import ConfigError, Mistake, TurnoutError
from turnout.nats.jetstream._client import Frame, Watchdog, replies_of_messages
from turnout.nats.jetstream.connection import Api, Interest, NatsConnection
from turnout.nats.jetstream.errors import (
    ConsumerNotFoundError,
    HeartbeatMissedError,
    NoRespondersError,
    NotJetStreamMessageError,
    PermissionDeniedError,
    StreamError,
    SubscriptionClosedError,
)
from turnout.nats.jetstream.message import ACK_PREFIX, Callback, Mailbox, Message, make_messages
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """Request sizes and time limits of a continuous pull.

    Attributes:
        max_messages: maximum number of messages requested and not handed over yet.
        max_bytes: how many bytes a request may bring; None leaves it to the number of messages.
        expires: seconds that a request stays open at the server.
        heartbeat: seconds between heartbeats of an idle stream; half of *expires* at the most.
        heartbeat_alarm: seconds of silence until an alarm and a new request; three heartbeats if not given.
        threshold: request more when fewer than this are left; half of *max_messages* if not given.
        group: the priority group, for a consumer that has one. A lost pin is reported as `PinLostError`, and the
            requests continue without it.
    """

    max_messages: int = 1000
    max_bytes: int | None = None
    expires: float = 30.0
    heartbeat: float = 5.0
    heartbeat_alarm: float | None = None
    threshold: int | None = None
    group: PriorityGroup | None = None

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigError: with all mistakes.
        """
        rules = (
            ("max_messages", self.max_messages >= 1, "must be at least 1"),
            ("expires", self.expires >= 1, "must be at least 1 second"),
            ("heartbeat", 0 < self.heartbeat <= self.expires / 2, "must be over 0 and at most half of expires"),
            ("threshold", (self.threshold or 0) < self.max_messages, "must be less than max_messages"),
        )
        mistakes = [Mistake(name, f"{getattr(self, name)!r} {why}") for name, good, why in rules if not good]
        if mistakes:
            raise ConfigError(mistakes, what="bad pull options")


class PullMessages:
    """Messages of a pull consumer, requested in advance.

    Take them with ``async for`` or `next`. Hidden: requests that end without messages, a change of leader, a server
    that restarts. Raised: a deleted consumer, and requests that the server refuses or that the user may not send.
    `stop` ends it and gives back messages that were not handed over; as an asynchronous context manager it stops at
    the end of the block.
    """

    def __init__(
        self, api: Api, stream: str, consumer: str, options: PullOptions, *, acks_nothing: bool, pin: Pin | None = None
    ) -> None:
        options.check()
        self._api = api
        self._connection = api.connection
        self._stream, self._consumer = stream, consumer
        self._options = options
        self._pin = pin or Pin()
        self._acks_nothing = acks_nothing
        self._request = next_request(stream, consumer)
        self._subject = api.prefix.api(self._request)
        self._inbox = api.connection.new_inbox()
        self._interest: Interest | None = None
        self._denials = [self._connection.on_denied(denied, self._denied) for denied in (self._subject, self._inbox)]
        self._requests: deque[PullRequest] = deque()
        # Messages that the server may still send without a further request.
        self._outstanding = 0
        self._came = False
        self._threshold = options.max_messages // 2 if options.threshold is None else options.threshold
        self._retry: asyncio.TimerHandle | None = None
        self._recovering: asyncio.Task[None] | None = None
        self._watchdog = Watchdog(options.heartbeat_alarm or 3 * options.heartbeat, self._alarm)
        self._mailbox = Mailbox(max_messages=1 << 30, max_bytes=1 << 40, answer=lambda subject: None)  # noqa: ARG005
        self._ended = False
        self._on_end: list[Callable[[PullMessages], None]] = []

    async def start(self) -> Self:
        """Subscribe and send the first request."""
        self._interest = await self._connection.listen(self._inbox, self._receive)
        self._connection.on_reconnected.append(self._again)
        self._watchdog.start()
        self._refill()
        return self

    def on_end(self, call: Callable[[PullMessages], None]) -> None:
        """Call when it has ended."""
        self._on_end.append(call)

    @property
    def pending(self) -> int:
        """Number of messages received and not handed over yet."""
        return len(self._mailbox)

    # -- the read loop's side

    def _receive(self, frames: Sequence[Frame]) -> None:
        self._watchdog.last_seen = monotonic()
        self._pin.read(self._options.group, frames)
        all_messages = receive_all(self._connection, frames, self._acks_nothing)
        if all_messages is not None:
            self._mailbox.put_all(all_messages)
            self._count_all(frames)
            return
        messages: list[Message] = []
        for frame in frames:
            received = receive(self._connection, frame, self._acks_nothing)
            if isinstance(received, Message):
                messages.append(received)
                self._count(frame)
            elif received is not None:
                self._mailbox.put_all(messages)
                messages = []
                self._receive_status(received)
                if self._ended:
                    return
        if messages:
            self._mailbox.put_all(messages)

    def _count_all(self, frames: Sequence[Frame]) -> None:
        """Count messages as those of the oldest requests."""
        self._came = True
        requests, uncounted = self._requests, len(frames)
        while uncounted and requests and requests[0].room is None:
            oldest = requests[0]
            counted = min(uncounted, oldest.left)
            oldest.left -= counted
            self._outstanding -= counted
            uncounted -= counted
            if not oldest.left:
                requests.popleft()
        for frame in frames[len(frames) - uncounted :]:
            self._count(frame)

    def _count(self, frame: Frame) -> None:
        """Count a message as one of the oldest request's."""
        self._came = True
        if self._requests:
            self._outstanding -= 1
            oldest = self._requests[0]
            if oldest.came(frame):
                self._outstanding -= oldest.left
                self._requests.popleft()

    def _receive_status(self, status: Status) -> None:
        meaning = PullStatus.of(status.code, status.description)
        if meaning is PullStatus.HEARTBEAT:
            return
        if meaning is PullStatus.TOO_LARGE and not self._came:
            # The next message alone is over max_bytes: every further request would end like this, at once.
            self._finish(status_error(status, self._request))
        elif meaning.ends_request:
            self._request_ended(status.number("Nats-Pending-Messages"))
            self._refill()
        elif meaning is PullStatus.UNPINNED:
            # Each request that was under way is refused: the first refusal is reported.
            if self._pin.id is not None:
                self._pin.lose(self._options.group)
                self._connection.report(status_error(status, self._request))
            self._forget_requests()
            self._refill_in(0.05)
        elif meaning is PullStatus.MOVED:
            self._forget_requests()
            self._refill_in(0.25)
        elif meaning is PullStatus.TOO_MANY_REQUESTS:
            self._connection.report(status_error(status, self._request))
            self._forget_requests()
            self._refill_in(1.0)
        elif meaning is PullStatus.NO_RESPONDERS:
            self._forget_requests()
            self._recover(NoRespondersError(self._request))
        else:
            self._finish(status_error(status, self._request))

    def _forget_requests(self) -> None:
        self._requests.clear()
        self._outstanding = 0

    def _request_ended(self, undelivered: int | None) -> None:
        """Remove a request that ended with *undelivered* messages missing; None if the number is unknown."""
        ended = next((request for request in self._requests if request.left == undelivered), None)
        if ended is not None:
            self._requests.remove(ended)
            self._outstanding -= ended.left
        elif undelivered != 0:
            self._forget_requests()

    def _refill(self) -> None:
        """Request more messages if the outstanding count is at or below the threshold."""
        outstanding = self._outstanding + len(self._mailbox)
        if self._ended or self._mailbox.closing or outstanding > self._threshold:
            return
        count = self._options.max_messages - outstanding
        options = self._options
        body = pull_body(
            count,
            expires=options.expires,
            max_bytes=options.max_bytes,
            heartbeat=options.heartbeat,
            more=self._pin.fields(options.group),
        )
        try:
            self._connection.send(self._subject, body, self._inbox.encode())
        except ConnectionError as failure:
            self._finish(StreamError(str(failure)) if self._connection.is_closed else None)
            return
        self._requests.append(PullRequest(count, options.max_bytes))
        self._outstanding += count
        self._came = False

    def _refill_in(self, seconds: float) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = asyncio.get_running_loop().call_later(seconds, self._refill)

    def _again(self) -> None:
        """Forget the requests of the lost connection, and request again after a short delay."""
        self._forget_requests()
        self._refill_in(0.05)

    def _alarm(self, idle: float) -> None:
        failure = HeartbeatMissedError(self._consumer, idle)
        self._connection.report(failure)
        self._forget_requests()
        self._recover(failure)

    def _recover(self, why: StreamError) -> None:
        if self._recovering is None or self._recovering.done():
            self._recovering = self._api.spawn(self._look_again(why))

    async def _look_again(self, why: StreamError) -> None:
        """Check that the consumer still exists; continue if it does, or if the server cannot answer yet."""
        try:
            await self._api.consumer_info(self._stream, self._consumer)
        except (ConsumerNotFoundError, LookupError) as missing:
            missing.__cause__ = why
            self._finish(missing if isinstance(missing, StreamError) else why)
        except (StreamError, ConnectionError):
            # A restarting server answers the API before, or after, it answers pull requests.
            self._refill_in(1.0)
        else:
            self._refill_in(0.1)

    def _denied(self, failure: PermissionDeniedError) -> None:
        self._finish(failure)

    def _finish(self, failure: StreamError | None) -> None:
        self._mailbox.close(failure)
        self._release()

    # -- the user's side

    async def next(self, timeout: float | None = 5.0) -> Message:
        """The next message.

        Raises:
            RequestTimeoutError: none arrived in *timeout* seconds.
            ConsumerDeletedError: the consumer was deleted.
            SubscriptionClosedError: it was stopped.
        """
        message = await self._mailbox.next(timeout)
        self._taken()
        return message

    def _taken(self) -> None:
        if self._outstanding + len(self._mailbox.items) <= self._threshold:
            self._refill()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._mailbox.messages(self._taken)

    async def __anext__(self) -> Message:
        try:
            return await self.next(None)
        except SubscriptionClosedError:
            raise StopAsyncIteration from None

    async def run(self, callback: Callback) -> None:
        """Hand every message to *callback* until stopped; its errors go to the error callback.

        Raises:
            StreamError: the reason of its end.
        """
        async for message in self:
            try:
                waits = callback(message)
                if waits is not None:
                    await waits
            except Exception as failure:  # noqa: BLE001 - the user's code: whatever it raises is reported
                self._connection.report(failure)

    def drain(self) -> None:
        """Stop requesting; buffered messages can still be taken, then the iteration ends."""
        self._mailbox.close()
        self._release()

    async def drained(self) -> None:
        """Call `drain`, and wait until the buffered messages are taken."""
        self.drain()
        await self._mailbox.emptied()

    def stop(self, reason: TurnoutError | None = None) -> None:
        """Stop and give buffered messages back to the server. Waiting readers get *reason*, or the iteration ends."""
        self._mailbox.close(reason)
        if not self._connection.is_closed:
            for message in self._mailbox.rest():
                message.nak_now()
        self._mailbox.clear()
        self._release()

    def _release(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._watchdog.stop()
        if self._retry is not None:
            self._retry.cancel()
        if self._again in self._connection.on_reconnected:
            self._connection.on_reconnected.remove(self._again)
        for forget in self._denials:
            forget()
        if self._interest is not None:
            self._connection.ignore(self._interest)
        for call in self._on_end:
            call(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
