"""Publishing into a stream, with the server's word that it is stored."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from math import ceil
from time import monotonic
from typing import Literal, Self, TypedDict, Unpack

import msgspec

from turnout.errors import ConfigError, ConnectionLostError, Mistake, TurnoutError
from turnout.nats.jetstream.connection import NatsConnection
from turnout.nats.jetstream.errors import NoRespondersError, RequestTimeoutError, StreamError, api_error
from turnout.nats.protocol.headers import HeaderInput, Status
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
