"""Publishing into a stream, with the server's word that it is stored."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from time import monotonic

import msgspec

from turnout.errors import ConnectionLostError, TurnoutError
from turnout.nats.jetstream.connection import NatsConnection
from turnout.nats.jetstream.errors import NoRespondersError, RequestTimeoutError, StreamError, api_error
from turnout.nats.protocol.headers import HeaderInput
from turnout.nats.protocol.status import Status


class PubAck(msgspec.Struct, frozen=True):
    """The server's word that a message is stored.

    Attributes:
        stream: the stream that has it.
        seq: its sequence there; of the first one, if this is a duplicate.
        duplicate: a message with the same Nats-Msg-Id was there already; this one was not stored.
        domain: the domain of the JetStream that has it, if it is in one.
    """

    stream: str
    seq: int
    duplicate: bool = False
    domain: str = ""


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

    def headers(self) -> dict[str, str]:
        """Return the preconditions as headers."""
        pairs = (
            ("Nats-Expected-Stream", self.stream),
            ("Nats-Expected-Last-Sequence", self.last_seq),
            ("Nats-Expected-Last-Subject-Sequence", self.last_subject_seq),
            ("Nats-Expected-Last-Msg-Id", self.last_msg_id),
        )
        return {name: str(value) for name, value in pairs if value is not None}


_decode = msgspec.json.Decoder(PubAck).decode


def _read(data: bytes, raw_headers: bytes, subject: str) -> PubAck:
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
        return PubAck(answer["stream"], answer["seq"], answer.get("duplicate", False), answer.get("domain", ""))
    except KeyError:
        raise StreamError(f"the answer to a publish to {subject!r} is not a PubAck: {data[:80]!r}") from None


def _all_headers(
    headers: HeaderInput | None, msg_id: str | None, expect: Expect | None, ttl: float | None
) -> HeaderInput | None:
    if msg_id is None and expect is None and ttl is None:
        return headers
    more: dict[str, str] = expect.headers() if expect else {}
    if msg_id is not None:
        more["Nats-Msg-Id"] = msg_id
    if ttl is not None:
        more["Nats-TTL"] = f"{round(ttl * 1000)}ms" if ttl != round(ttl) else f"{round(ttl)}s"
    merged: Mapping[str, object] = {**(headers or {}), **more}
    return merged  # type: ignore[return-value]


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
            future.set_result(_read(data, raw_headers, self.subject))
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

    def __init__(self, connection: NatsConnection, *, timeout: float, max_pending: int = 4000) -> None:
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
        headers: HeaderInput | None = None,
        msg_id: str | None = None,
        expect: Expect | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        retries: int = 2,
        retry_wait: float = 0.25,
    ) -> PubAck:
        """Store a message and wait for the server's word.

        Args:
            subject: the subject; an API prefix is not put in front of it (ADR-19).
            data: the payload.
            headers: headers; a value may be a list of values.
            msg_id: its identity: a second one with the same id, within the stream's window, is not stored.
            expect: conditions for storing it.
            ttl: seconds after which the server removes it, where the stream allows that.
            timeout: seconds for the server's word.
            retries: number of retries if there are no responders: a stream's leader may be changing.
            retry_wait: seconds between two such tries.

        Raises:
            NoRespondersError: no stream takes the subject.
            RequestTimeoutError: no word in time; the message may be stored. Publish it again with the same *msg_id*.
            WrongLastSequenceError: *expect* did not hold.
            StreamError: the stream refused it otherwise.
        """
        full = _all_headers(headers, msg_id, expect, ttl)
        limit = self._timeout if timeout is None else timeout
        while True:
            try:
                answer = await self._connection.ask_and_wait(subject, data, timeout=limit, headers=full)
                return _read(answer.data, answer.raw_headers, subject)
            except NoRespondersError:
                if retries <= 0:
                    raise
                retries -= 1
                await asyncio.sleep(retry_wait)

    async def publish_async(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeaderInput | None = None,
        msg_id: str | None = None,
        expect: Expect | None = None,
        ttl: float | None = None,
    ) -> asyncio.Future[PubAck]:
        """Store a message and get the server's word later.

        Waits only while too many are unconfirmed. Not promised: the returned future being done, or the message being
        stored. When the connection is lost, unconfirmed publishes fail with `ConnectionLostError`; they may be
        stored, and are safe to publish again if they have a *msg_id*.

        Returns:
            The future `PubAck`, or the error.
        """
        if self._pending >= self._max_pending:
            await self._wait_for_room()
        if msg_id is not None or expect is not None or ttl is not None:
            headers = _all_headers(headers, msg_id, expect, ttl)
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
