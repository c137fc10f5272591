"""Batches of messages that are published together: atomic ones, and fast ones (ADR-50)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, Unpack

from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, Mistake, TurnoutError
from turnout.nats.jetstream._client import Frame
from turnout.nats.jetstream.connection import Interest, NatsConnection
from turnout.nats.jetstream.errors import (
    BatchIncompleteError,
    BatchPublishError,
    NoRespondersError,
    RequestTimeoutError,
    api_error,
)
from turnout.nats.jetstream.publish import PubAck, PublishOptions, all_headers, read_ack
from turnout.nats.protocol.headers import NO_RESPONDERS, HeaderInput, Status


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
