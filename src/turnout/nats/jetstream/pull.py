"""Overlapping pull requests that deliver messages without a pause (ADR-15, "Pull Mode Statuses")."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Self

from turnout.errors import ConfigError, Mistake, TurnoutError
from turnout.nats.jetstream._client import Frame, Watchdog
from turnout.nats.jetstream.api import Api
from turnout.nats.jetstream.connection import Interest
from turnout.nats.jetstream.errors import (
    ConsumerNotFoundError,
    HeartbeatMissedError,
    NoRespondersError,
    PermissionDeniedError,
    StreamError,
    SubscriptionClosedError,
)
from turnout.nats.jetstream.fetch import Pin, PriorityGroup, PullRequest, receive, receive_all
from turnout.nats.jetstream.message import Callback, Mailbox, Message
from turnout.nats.jetstream.subscription import status_error
from turnout.nats.protocol.frames import PullStatus, next_request, pull_body
from turnout.nats.protocol.headers import Status


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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
