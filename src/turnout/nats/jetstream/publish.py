"""Publishing into a stream, with the server's word that it is stored; in batches, atomic or fast (ADR-50)."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from math import ceil
from time import monotonic
from types import TracebackType
from typing import Literal, Self, TypedDict, Unpack

import msgspec

from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, ConnectionLostError, Mistake, TurnoutError
from turnout.nats.jetstream._client import Frame
from turnout.nats.jetstream.connection import Interest, NatsConnection
from turnout.nats.jetstream.errors import (
    BatchIncompleteError,
    BatchPublishError,
    NoRespondersError,
    RequestTimeoutError,
    StreamError,
    api_error,
)
from turnout.nats.protocol.headers import NO_RESPONDERS, HeaderInput, Status
from turnout.nats.protocol.options import DEFAULT_WINDOW


class PubAck(msgspec.Struct, frozen=True):
    """The server's word that a message is stored.

    Attributes:
        stream: the stream that has it.
        seq: its sequence there; of the first one, if this is a duplicate.
        duplicate: a message with the same Nats-Msg-Id was there already; this one was not stored.
        domain: the domain of the JetStream that has it, if it is in one.
        val: the counter's new value, in decimal digits as the server sends it, where the stream counts (ADR-49).
        batch: the id of the batch that it ended (ADR-50).
        count: how many messages of that batch are stored; the last one has the sequence *seq*.
    """

    stream: str
    seq: int
    duplicate: bool = False
    domain: str = ""
    val: str | None = None
    batch: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """Preconditions of a publish; the server checks them atomically and refuses the message otherwise.

    >>> Expect(stream="ORDERS", last_seq=7).headers()
    {'Nats-Expected-Stream': 'ORDERS', 'Nats-Expected-Last-Sequence': '7'}
    """

    stream: str | None = None
    last_seq: int | None = None
    last_subject_seq: int | None = None
    last_msg_id: str | None = None
    last_subject: str | None = None
    """The subject, or pattern of subjects, that *last_subject_seq* is of, where it is not the message's own."""

    def headers(self) -> dict[str, str]:
        """Return the preconditions as headers."""
        pairs = (
            ("Nats-Expected-Stream", self.stream),
            ("Nats-Expected-Last-Sequence", self.last_seq),
            ("Nats-Expected-Last-Subject-Sequence", self.last_subject_seq),
            ("Nats-Expected-Last-Msg-Id", self.last_msg_id),
            ("Nats-Expected-Last-Subject-Sequence-Subject", self.last_subject),
        )
        return {name: str(value) for name, value in pairs if value is not None}


Ttl = float | Literal["never"]
"""Seconds after which the server removes a message, or ``never``: the stream's maximum age does not hold for it."""


def _ttl(value: Ttl) -> str:
    """Return a TTL as its header has it: the server knows whole seconds, and would cut a fraction off."""
    return value if isinstance(value, str) else f"{ceil(value)}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Times at which a stream publishes a message, and their subject (ADR-51); `at`, `every` and `cron` make one.

    The message is stored under its own subject, which no other schedule may have: one more message there replaces the
    schedule, and its removal (`Stream.purge`, `Stream.delete_message`, a TTL) cancels it.

    Attributes:
        pattern: ``@at TIME``, ``@every DURATION``, ``@hourly`` and its kin, or six fields of cron.
        target: the subject of the messages that it publishes, one of the stream's.
        source: the subject whose last message is published in place of the schedule's own data and headers.
        ttl: the TTL of the messages that it publishes.
        rollup: each message that it publishes replaces the former ones of the target.
        time_zone: the zone of a cron pattern: ``Europe/Oslo``; UTC if not given.

    >>> Schedule.every(90, target="samples", source="readings", ttl=300).headers()["Nats-Schedule"]
    '@every 90000ms'
    """

    pattern: str
    target: str
    source: str | None = None
    ttl: Ttl | None = None
    rollup: bool = False
    time_zone: str | None = None

    @classmethod
    def at(cls, time: datetime, *, target: str, ttl: Ttl | None = None, rollup: bool = False) -> Self:
        """Publish once, at a time: at once if it is past; a server publishes up to 0.25 s late.

        >>> from datetime import UTC
        >>> Schedule.at(datetime(2027, 1, 1, 12, tzinfo=UTC), target="orders").pattern
        '@at 2027-01-01T12:00:00+00:00'
        """
        return cls(pattern=f"@at {time.astimezone(UTC).isoformat()}", target=target, ttl=ttl, rollup=rollup)

    @classmethod
    def every(
        cls, seconds: float, *, target: str, source: str | None = None, ttl: Ttl | None = None, rollup: bool = False
    ) -> Self:
        """Publish again and again, with pauses of at least one second.

        Raises:
            ConfigError: the pause is shorter.
        """
        if seconds < 1:
            raise ConfigError([Mistake("seconds", f"{seconds:g} is shorter than 1, the server's shortest interval")])
        pattern = f"@every {round(seconds * 1000)}ms"
        return cls(pattern=pattern, target=target, source=source, ttl=ttl, rollup=rollup)

    @classmethod
    def cron(
        cls,
        pattern: str,
        *,
        target: str,
        source: str | None = None,
        ttl: Ttl | None = None,
        rollup: bool = False,
        time_zone: str | None = None,
    ) -> Self:
        """Publish at the times of a pattern with six fields, from seconds to weekdays, or of ``@daily`` and its kin."""
        return cls(pattern=pattern, target=target, source=source, ttl=ttl, rollup=rollup, time_zone=time_zone)

    def headers(self) -> dict[str, str]:
        """Return the schedule as headers."""
        pairs = (
            ("Nats-Schedule", self.pattern),
            ("Nats-Schedule-Target", self.target),
            ("Nats-Schedule-Source", self.source),
            ("Nats-Schedule-TTL", None if self.ttl is None else _ttl(self.ttl)),
            ("Nats-Schedule-Rollup", "sub" if self.rollup else None),
            ("Nats-Schedule-Time-Zone", self.time_zone),
        )
        return {name: value for name, value in pairs if value is not None}


class PublishOptions(TypedDict, total=False):
    """Options of a message, besides its subject and its data."""

    headers: HeaderInput | None
    """Headers; a value may be a list of values."""
    msg_id: str | None
    """Its identity: a second one with the same id, within the stream's window, is not stored."""
    expect: Expect | None
    """Conditions for storing it."""
    ttl: Ttl | None
    """Seconds after which the server removes it, rounded up to whole ones, where the stream allows that."""
    schedule: Schedule | None
    """Times at which the stream publishes it, and the subject of that."""
    cancels: str | None
    """Subject of a schedule that ends when this message is stored, which has another subject."""
    increment: int | None
    """Number that is added to a counter, if the stream counts; the message has no data."""


_decode = msgspec.json.Decoder(PubAck).decode


def read_ack(data: bytes, raw_headers: bytes, subject: str) -> PubAck:
    """The PubAck of an answer to a publish.

    An overloaded server sends a status *and* a JSON body with the error: the body says more.
    """
    if data.find(b'"error"') < 0:
        # Nearly every answer there is: a message stored. Neither `in` nor `suppress`: each takes as long as decoding.
        try:
            return _decode(data)
        except (ValueError, RecursionError):
            pass
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        status = Status.of(raw_headers, b"")
        if status is not None:
            raise StreamError(f"publish to {subject!r}: {status.description}", code=status.code) from None
        raise StreamError(f"the answer to a publish to {subject!r} is not a PubAck: {data[:80]!r}") from None
    error = answer.get("error") if isinstance(answer, dict) else {"description": "the answer is not a JSON object"}
    if error:
        raise api_error(error, request=f"publish to {subject!r}")
    try:
        return msgspec.convert(answer, PubAck)
    except msgspec.ValidationError:
        raise StreamError(f"the answer to a publish to {subject!r} is not a PubAck: {data[:80]!r}") from None


def all_headers(options: PublishOptions) -> HeaderInput | None:
    """Return the headers of a message: its own, and those that say how it is stored."""
    more: dict[str, str] = {}
    for part in (options.get("expect"), options.get("schedule")):
        more |= part.headers() if part is not None else {}
    if (msg_id := options.get("msg_id")) is not None:
        more["Nats-Msg-Id"] = msg_id
    if (ttl := options.get("ttl")) is not None:
        more["Nats-TTL"] = _ttl(ttl)
    if (increment := options.get("increment")) is not None:
        more["Nats-Incr"] = f"{increment:+d}"
    if (cancels := options.get("cancels")) is not None:
        more |= {"Nats-Scheduler": cancels, "Nats-Schedule-Next": "purge"}
    headers = options.get("headers")
    return {**(headers or {}), **more} if more else headers


# Like a message, it is not tracked by the collector of cycles: thousands are open while many are sent.
class _Unconfirmed(msgspec.Struct, eq=False, gc=False):
    """Asynchronous publish without confirmation.

    Attributes:
        limit: time until which it may be confirmed.
    """

    publisher: AsyncPublisher
    future: asyncio.Future[PubAck]
    subject: str
    limit: float

    def settle(self, raw_headers: bytes, data: bytes) -> None:
        self.publisher.confirmed()
        future = self.future
        # A caller may have cancelled it.
        if future.done():
            return
        try:
            future.set_result(read_ack(data, raw_headers, self.subject))
        except TurnoutError as failure:
            future.set_exception(failure)

    def fail(self, failure: TurnoutError) -> None:
        self.publisher.confirmed()
        if not self.future.done():
            self.future.set_exception(failure)


class AsyncPublisher:
    """Publishes and counts unconfirmed messages.

    Args:
        connection: the connection.
        timeout: seconds until an unconfirmed publish fails.
        max_pending: how many unconfirmed publishes `publish_async` allows before it waits.
    """

    def __init__(self, connection: NatsConnection, *, timeout: float, max_pending: int = DEFAULT_WINDOW) -> None:
        self._connection = connection
        self._timeout = timeout
        self._max_pending = max_pending
        self._pending = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._room: deque[asyncio.Future[None]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        connection.on_disconnected.append(self._disconnected)

    @property
    def pending(self) -> int:
        """Number of asynchronous publishes not confirmed yet."""
        return self._pending

    async def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        timeout: float | None = None,
        retries: int = 2,
        retry_wait: float = 0.25,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        """Store a message and wait for the server's word.

        Args:
            subject: the subject; an API prefix is not put in front of it (ADR-19).
            data: the payload.
            timeout: seconds for the server's word.
            retries: number of retries if there are no responders: a stream's leader may be changing.
            retry_wait: seconds between two such tries.
            options: headers, message id, expectations and the others of `PublishOptions`.

        Raises:
            NoRespondersError: no stream takes the subject.
            RequestTimeoutError: no word in time; the message may be stored. Publish it again with the same *msg_id*.
            WrongLastSequenceError: *expect* did not hold.
            StreamError: the stream refused it otherwise.
        """
        full = all_headers(options)
        limit = self._timeout if timeout is None else timeout
        while True:
            try:
                answer = await self._connection.ask_and_wait(subject, data, timeout=limit, headers=full)
                return read_ack(answer.data, answer.raw_headers, subject)
            except NoRespondersError:
                if retries <= 0:
                    raise
                retries -= 1
                await asyncio.sleep(retry_wait)

    async def publish_async(
        self, subject: str, data: bytes = b"", **options: Unpack[PublishOptions]
    ) -> asyncio.Future[PubAck]:
        """Store a message and get the server's word later; *options* are those of `PublishOptions`.

        Waits only while too many are unconfirmed. Not promised: the returned future being done, or the message being
        stored. When the connection is lost, unconfirmed publishes fail with `ConnectionLostError`; they may be
        stored, and are safe to publish again if they have a *msg_id*.

        Returns:
            The future `PubAck`, or the error.
        """
        if self._pending >= self._max_pending:
            await self._wait_for_room()
        headers = all_headers(options) if options else None
        loop = self._loop
        if loop is None:
            self._loop = loop = asyncio.get_running_loop()
        connection = self._connection
        future: asyncio.Future[PubAck] = asyncio.Future(loop=loop)
        connection.ask(_Unconfirmed(self, future, subject, monotonic() + self._timeout), data, headers)
        self._pending += 1
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._timeout, self._sweep)
        if connection.congested:
            await connection.relieve(self._timeout)
        return future

    def confirmed(self) -> None:
        """Remove one publish from the unconfirmed count, after success or failure."""
        self._pending -= 1
        if self._room and self._pending <= self._max_pending // 2:
            # Half of the room at once: woken for every single ack, a publisher would send every frame by itself.
            while self._room:
                waiter = self._room.popleft()
                if not waiter.done():
                    waiter.set_result(None)
        if not self._pending and self._idle:
            for idle in self._idle:
                if not idle.done():
                    idle.set_result(None)
            self._idle.clear()

    async def _wait_for_room(self) -> None:
        while self._pending >= self._max_pending:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            await waiter

    def _unconfirmed(self) -> Iterator[tuple[bytes, _Unconfirmed]]:
        """Yield the tokens and publishes of this publisher that are not confirmed, in the order of sending."""
        for token, waiter in self._connection.waiting(_Unconfirmed):
            if waiter.publisher is self:
                yield token, waiter

    def _sweep(self) -> None:
        """Fail publishes after their deadline; deadlines have the order of sending."""
        now = monotonic()
        late = list(takewhile(lambda one: one[1].limit <= now, self._unconfirmed()))
        for token, waiter in late:
            self._connection.give_up(token)
            waiter.fail(RequestTimeoutError(f"no PubAck for {waiter.subject!r} in {self._timeout:g} s", code=408))
        _, oldest = next(self._unconfirmed(), (b"", None))
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(oldest.limit - now, self._sweep) if oldest else None

    def _disconnected(self) -> None:
        for token, waiter in tuple(self._unconfirmed()):
            self._connection.give_up(token)
            waiter.fail(ConnectionLostError("the connection was lost before the PubAck arrived; it may be stored"))

    async def complete(self, timeout: float | None = None) -> None:
        """Wait until every asynchronous publish is confirmed or has failed.

        Raises:
            RequestTimeoutError: some are still open after *timeout* seconds.
        """
        limit = self._timeout + 1 if timeout is None else timeout
        if not self._pending:
            return
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        try:
            async with asyncio.timeout(limit):
                await idle
        except TimeoutError:
            raise RequestTimeoutError(
                f"{self._pending} publishes are unconfirmed after {limit:g} s", code=408
            ) from None

    def close(self) -> None:
        """Stop the timeout timer."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None


class _OpenBatch:
    """Batch to which messages are added until it is committed or given up."""

    def __init__(self, connection: NatsConnection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._subject = ""
        self._closed = False
        self.size = 0
        """Number of messages added."""
        self.ack: PubAck | None = None
        """The server's word, once the batch is committed."""

    @property
    def closed(self) -> bool:
        """True once the batch is committed, has failed or is given up: nothing can be added."""
        return self._closed

    async def add(self, subject: str, data: bytes = b"", **options: Unpack[PublishOptions]) -> int:
        """Send a message as part of the batch, and return its number in it."""
        raise NotImplementedError

    async def commit(self, subject: str | None = None, data: bytes = b"", **options: Unpack[PublishOptions]) -> PubAck:
        """End the batch, with a last message if a subject is given, and return the server's word."""
        raise NotImplementedError

    def discard(self) -> None:
        """Give the batch up: nothing more can be added."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise BatchPublishError("the batch has ended: begin another one")

    def _check_messages(self, subject: str | None) -> None:
        self._check_open()
        if not self.size and subject is None:
            raise BatchPublishError("the batch has no messages: there is nothing to commit")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.size and not self._closed:
            await self.commit()
        else:
            self.discard()


class AtomicBatch(_OpenBatch):
    """Messages of which a stream stores all, one behind the other, or none; made by `JetStream.atomic_batch`.

    The end of its ``async with`` block commits it, and an exception gives it up. The stream needs ``allow_atomic``.
    Limits of the server: 1,000 messages, 10 seconds between two of them, 50 open batches for each stream. `Expect` with
    *last_seq* is for the first message alone, and *last_msg_id* for none.

    Args:
        connection: the connection.
        timeout: seconds for each of the server's answers.
        ack_first: wait for an answer to the first message, which says whether the stream takes batches.
        ack_every: wait for an answer to each of so many messages; 0 for the first and the last alone.
    """

    def __init__(
        self, connection: NatsConnection, *, timeout: float, ack_first: bool = True, ack_every: int = 0
    ) -> None:
        super().__init__(connection, timeout)
        self.id = connection.unique()
        self._ack_first, self._ack_every = ack_first, ack_every

    async def add(self, subject: str, data: bytes = b"", **options: Unpack[PublishOptions]) -> int:
        """Send a message as part of the batch, and return its number in it.

        Raises:
            BatchPublishError: the server refused the batch, or it has ended.
            NoRespondersError: no stream takes the subject.
            RequestTimeoutError: no answer in time; nothing of the batch is stored.
        """
        self._check_open()
        headers = self._next(subject, options)
        if (self.size == 1 and self._ack_first) or (self._ack_every and self.size % self._ack_every == 0):
            await self._request(subject, data, headers)
        else:
            self._connection.send(subject, data, headers=headers)
            if self._connection.congested:
                await self._connection.relieve(self._timeout)
        return self.size

    async def commit(self, subject: str | None = None, data: bytes = b"", **options: Unpack[PublishOptions]) -> PubAck:
        """Let the stream store all messages, and return its word: the sequence is that of the last one.

        Args:
            subject: subject of a last message; without it the batch ends behind the one before, which needs a server
                from 2.14.
            data: payload of the last message.
            options: its headers and the others of `PublishOptions`.

        Raises:
            BatchIncompleteError: messages were lost on the way, or the batch was silent for 10 seconds.
            BatchPublishError: it is refused for another reason.
            WrongLastSequenceError: an expectation of one of its messages does not hold.
            RequestTimeoutError: no answer in time; the batch may be stored.
        """
        self._check_messages(subject)
        ends = subject is None
        where = self._subject if subject is None else subject
        headers = self._next(where, options)
        answer = await self._request(where, data, {**headers, "Nats-Batch-Commit": "eob" if ends else "1"})
        self._closed = True
        ack = read_ack(*answer, where)
        if ends:
            self.size -= 1
        if (ack.batch, ack.count) != (self.id, self.size):
            raise BatchPublishError(
                f"the answer to the batch {self.id} of {self.size} messages is about {ack.count} of {ack.batch!r}: "
                "the stream does not know batches"
            )
        self.ack = ack
        return ack

    def _next(self, subject: str, options: PublishOptions) -> HeaderInput:
        self._subject = subject
        self.size += 1
        own = {"Nats-Batch-Id": self.id, "Nats-Batch-Sequence": str(self.size)}
        return {**(all_headers(options) or {}), **own}

    async def _request(self, subject: str, data: bytes, headers: HeaderInput) -> tuple[bytes, bytes]:
        """Send a message and return the answer's data and headers.

        Raises:
            StreamError: the server refused it, and with it the batch.
        """
        try:
            answer = await self._connection.ask_and_wait(subject, data, timeout=self._timeout, headers=headers)
            if b'"error"' in answer.data:
                read_ack(answer.data, answer.raw_headers, subject)
        except BaseException:
            self._closed = True
            raise
        return answer.data, answer.raw_headers


_START, _APPEND, _COMMIT, _END, _PING = range(5)


class FastBatch(_OpenBatch):
    """Messages that a stream stores as they come, confirmed in groups; made by `JetStream.fast_batch`.

    The server says how many messages it confirms at once, and so how fast they may come. The end of its ``async with``
    block commits it. The stream needs ``allow_batched``, the server must be 2.14 or newer. Not for use by several tasks
    at once.

    Args:
        connection: the connection.
        timeout: seconds for the server's answers; a third of it is the pause before it is asked for one that is lost.
        flow: the most messages that one confirmation may be for.
        max_outstanding: number of confirmations that may be missing before `add` waits: 1 to 3.
        gaps: whether the batch continues behind messages that were lost on the way, which are reported to the error
            callback. Otherwise it ends in front of them.
    """

    def __init__(
        self,
        connection: NatsConnection,
        *,
        timeout: float,
        flow: int = 100,
        max_outstanding: int = 2,
        gaps: bool = False,
    ) -> None:
        super().__init__(connection, timeout)
        rules = (("flow", flow, 65_535), ("max_outstanding", max_outstanding, 3))
        mistakes = [Mistake(name, f"{n} must be 1 to {most}") for name, n, most in rules if not 1 <= n <= most]
        if mistakes:
            raise ConfigError(mistakes, what="bad batch options")
        self._inbox = connection.new_inbox()
        self._replies = f"{self._inbox}.{flow}.{'ok' if gaps else 'fail'}."
        self._gaps = gaps
        self._flow = flow
        self._max_outstanding = max_outstanding
        self._interest: Interest | None = None
        self._begun = False
        self._failure: TurnoutError | None = None
        self._changed = asyncio.Event()
        self.acked = 0
        """Number of the last message that is confirmed: those up to it are stored, but for gaps that are allowed."""

    async def add(self, subject: str, data: bytes = b"", **options: Unpack[PublishOptions]) -> int:
        """Send a message, wait while too many are unconfirmed, and return its number in the batch.

        Raises:
            BatchIncompleteError: messages were lost; those up to `acked` are stored.
            BatchPublishError: the server refused the batch, or it has ended.
            NoRespondersError: no stream takes the subject.
            RequestTimeoutError: no confirmation in time.
        """
        self._check_open()
        await self._send(subject, data, options, _APPEND if self.size else _START)
        await self._until(
            lambda: self._begun and self.acked + self._flow * self._max_outstanding > self.size, self._ended_early
        )
        return self.size

    async def commit(self, subject: str | None = None, data: bytes = b"", **options: Unpack[PublishOptions]) -> PubAck:
        """End the batch, with a last message if a subject is given, and return the server's word.

        Raises:
            BatchIncompleteError: messages were lost; those up to `acked` are stored.
            BatchPublishError: the server refused the batch, or it has ended.
            RequestTimeoutError: no confirmation in time.
        """
        self._check_messages(subject)
        ends = subject is None
        await self._send(self._subject if subject is None else subject, data, options, _END if ends else _COMMIT)
        if ends:
            self.size -= 1
        await self._until(lambda: self.ack is not None, lambda: None)
        assert self.ack is not None
        self.discard()
        if self.ack.count < self.size and not self._gaps:
            raise self._incomplete(self.ack)
        self.acked = self.size
        return self.ack

    def discard(self) -> None:
        """Give the batch up: messages that the server has received stay stored."""
        super().discard()
        if self._interest is not None:
            self._connection.ignore(self._interest)
            self._interest = None

    async def _send(self, subject: str, data: bytes, options: PublishOptions, operation: int) -> None:
        if self._interest is None:
            self._interest = await self._connection.listen(f"{self._inbox}.>", self._receive)
        self._subject = subject
        self.size += 1
        self._connection.send(subject, data, self._reply(operation), all_headers(options))
        if self._connection.congested:
            await self._connection.relieve(self._timeout)

    def _reply(self, operation: int) -> bytes:
        return f"{self._replies}{self.size}.{operation}.$FI".encode()

    async def _until(self, done: Callable[[], bool], check: Callable[[], None]) -> None:
        """Wait until *done*, and ask for confirmations that may be lost.

        Raises:
            TurnoutError: the batch has failed, or nothing came in time.
        """
        loop = asyncio.get_running_loop()
        limit = loop.time() + self._timeout
        while True:
            self._changed.clear()
            try:
                self._check_failure()
                check()
                if done():
                    return
                async with asyncio.timeout(min(self._timeout / 3, limit - loop.time())):
                    await self._changed.wait()
            except TimeoutError as late:
                if isinstance(late, TurnoutError) or loop.time() >= limit:
                    self.discard()
                    message = f"no confirmation of the batch in {self._timeout:g} s: {self.acked} are confirmed"
                    raise RequestTimeoutError(message, code=408) from None
                self._connection.send(self._subject, b"", self._reply(_PING))
            except BaseException:
                self.discard()
                raise

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _ended_early(self) -> None:
        if self.ack is not None:
            raise self._incomplete(self.ack)

    def _incomplete(self, ack: PubAck) -> BatchIncompleteError:
        self.acked = ack.count
        return BatchIncompleteError(f"messages of the batch were lost: {ack.count} of {self.size} are stored")

    def _receive(self, frames: Sequence[Frame]) -> None:
        for _, _, headers, data in frames:
            if self.ack is not None or self._failure is not None:
                # Messages behind the end of a batch are refused: its end says why.
                break
            status = Status.of(headers, data)
            if status is not None:
                if status.code == NO_RESPONDERS:
                    self._failure = NoRespondersError(self._subject)
                continue
            try:
                self._read(data)
            except TurnoutError as failure:
                self._failure = failure
        self._changed.set()

    def _read(self, data: bytes) -> None:
        try:
            answer: JsonObject = json.loads(data)
            kind = answer.get("type")
        except (ValueError, RecursionError, AttributeError):
            raise BatchPublishError(f"an answer to the batch is not JSON: {data[:80]!r}") from None
        if kind == "ack":
            self._begun = True
            self.acked = max(self.acked, int(answer["seq"]))
            self._flow = max(1, int(answer["msgs"]))
        elif kind == "gap":
            if self._gaps:
                first, end = answer["last_seq"], answer["seq"]
                self._connection.report(BatchIncompleteError(f"messages {first} to {end - 1} of the batch were lost"))
        elif kind == "err":
            self._connection.report(api_error(answer.get("error"), request=f"message {answer.get('seq')} of the batch"))
        else:
            self.ack = read_ack(data, b"", self._subject)
