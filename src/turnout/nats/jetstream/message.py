"""Messages of JetStream, their acknowledgements, and the mailbox that they wait in."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from turnout.errors import TurnoutError
from turnout.nats.jetstream._client import Frame
from turnout.nats.jetstream.connection import NatsConnection
from turnout.nats.jetstream.errors import RequestTimeoutError, StreamError, SubscriptionClosedError
from turnout.nats.protocol.headers import Headers, Status, parse_table
from turnout.nats.protocol.positions import JSAck, is_redelivery, sequences

_ACK = b"+ACK"
_NAK = b"-NAK"
_TERM = b"+TERM"
_PROGRESS = b"+WPI"
ACK_PREFIX = b"$JS.ACK."
"""Prefix of the reply subject of every message from a stream."""


# Not tracked by the collector of cycles, which would visit every buffered message again and again. A cycle through a
# connection exists only while the connection has buffered messages; closing it drops them.
class Message(msgspec.Struct, eq=False, gc=False):
    """Delivered message with its acknowledgements; `turnout.nats.wire.Message` is the raw form.

    One terminal acknowledgement counts: after it, every other is ignored in silence, and all are where the consumer
    requires none (ADR-15). A message counts as acknowledged only when the frame has been given to the connection.

    Attributes:
        data: the payload.
    """

    # A struct is made in a third of the time of a class with slots. What is not always asked for is parsed when it is.
    _connection: NatsConnection
    _subject: bytes
    _reply: bytes
    _raw_headers: bytes
    data: bytes
    _acked: bool = False
    _headers: Headers | None = None
    _metadata: JSAck | None = None
    # 0 until the reply is parsed.
    _sequence: int = 0

    def __repr__(self) -> str:
        return f"<Message {self.subject!r} {len(self.data)} bytes, reply {self.reply!r}>"

    @property
    def subject(self) -> str:
        """The subject under which it is stored, without any API prefix."""
        return self._subject.decode("utf-8", "replace")

    @property
    def reply(self) -> str:
        """The JSAck, verbatim."""
        return self._reply.decode("utf-8", "replace")

    @property
    def headers(self) -> Headers:
        """All headers with their values in order; empty if the message has no headers."""
        if self._headers is None:
            self._headers = parse_table(self._raw_headers) if self._raw_headers else {}
        return self._headers

    def header(self, name: str) -> str:
        """Return the first value of a header, empty if the header is missing."""
        return self.headers.get(name, [""])[0]

    @property
    def metadata(self) -> JSAck:
        """Position of the message in its stream and consumer.

        Raises:
            NotJetStreamMessageError: the reply is no JSAck.
        """
        if self._metadata is None:
            self._metadata = JSAck.parse(self.reply)
        return self._metadata

    @property
    def sequence(self) -> int:
        """Its sequence in the stream.

        Raises:
            NotJetStreamMessageError: the reply is no JSAck.
        """
        self._check()
        return self._sequence

    @property
    def is_redelivered(self) -> bool:
        """True if the consumer has delivered it before.

        Raises:
            NotJetStreamMessageError: the reply is no JSAck.
        """
        self._check()
        return is_redelivery(self._reply)

    @property
    def timestamp(self) -> datetime:
        """Time at which the message was stored."""
        return self.metadata.timestamp

    @property
    def is_acked(self) -> bool:
        """True if a terminal acknowledgement was sent, or none is expected."""
        return self._acked

    async def ack(self) -> None:
        """Acknowledge the message as processed (+ACK)."""
        self.ack_now()
        connection = self._connection
        if connection.congested:
            await connection.relieve(5.0)

    def ack_now(self) -> None:
        """Acknowledge like `ack`, without waiting for a connection that is congested.

        Raises:
            ConnectionLostError: the connection is closed, or away with its buffer full.
        """
        if self._acked:
            return
        reply = self._reply
        if self._sequence or (reply.count(b".") == 8 and reply.startswith(ACK_PREFIX)):
            self._connection.acknowledge(reply)
            self._acked = True
        else:
            self._answer_now(_ACK, terminal=True)

    async def double_ack(self, timeout: float = 5.0) -> None:
        """Acknowledge the message as processed and wait for the server's confirmation.

        Raises:
            RequestTimeoutError: no confirmation in time; the message does not count as acknowledged.
            NoRespondersError: the ack subject of this consumer has no subscribers.
        """
        self._check()
        if not self._acked:
            await self._connection.ask_and_wait(self.reply, _ACK, timeout=timeout)
            self._acked = True

    async def nak(self, delay: float | None = None) -> None:
        """Reject the message for redelivery, immediately or after *delay* seconds (-NAK)."""
        payload = _NAK if not delay else b'%b {"delay": %d}' % (_NAK, round(delay * 1_000_000_000))
        await self._answer(payload, terminal=True)

    async def term(self, reason: str = "") -> None:
        """Prevent redelivery of the message (+TERM); the reason appears in the server's advisory."""
        await self._answer(f"+TERM {reason}".encode() if reason else _TERM, terminal=True)

    async def in_progress(self) -> None:
        """Report work in progress, which restarts the message's acknowledgement timeout (+WPI)."""
        await self._answer(_PROGRESS, terminal=False)

    async def _answer(self, payload: bytes, *, terminal: bool) -> None:
        if self._answer_now(payload, terminal=terminal) and self._connection.congested:
            await self._connection.relieve(5.0)

    def _answer_now(self, payload: bytes, *, terminal: bool) -> bool:
        """Answer unless that is done; return True if something was sent."""
        if self._acked:
            return False
        self._check()
        self._connection.send_to(self._reply, payload)
        self._acked = terminal
        return True

    def nak_now(self) -> None:
        """Give the message back without waiting: for clean-up while being cancelled."""
        if not self._acked and self._reply.startswith(ACK_PREFIX):
            self._acked = True
            self._connection.send_to(self._reply, _NAK)

    def _check(self) -> None:
        """Refuse to answer other messages than JetStream's.

        Raises:
            NotJetStreamMessageError: the reply is no JSAck.
        """
        if not self._sequence:
            self._sequence = sequences(self._reply)[0]


def make_messages(connection: NatsConnection, frames: Sequence[Frame], acks_nothing: bool) -> list[Message]:
    """Return a message for each frame."""
    return [
        Message(connection, subject, reply, headers, data, acks_nothing) for subject, reply, headers, data in frames
    ]


Callback = Callable[[Message], "Awaitable[None] | None"]

# More than one read brings of small messages: the buffer would grow while others are read.
_MESSAGES_PER_TURN = 1024


class Mailbox:
    """Buffer of messages between the read loop and the user.

    An item is a message, the subject of a flow control request (bytes), or a status for the user. A request is
    answered as soon as the message before it has been handed over (ADR-15, "Flow Control").

    Args:
        max_messages: items it holds; more are refused.
        max_bytes: payload bytes it holds.
        answer: callback for the subject of a flow control request.
        on_status: callback for each status in its order, if the user handles statuses.

    Attributes:
        items: the items inside, in order.
    """

    def __init__(
        self,
        *,
        max_messages: int,
        max_bytes: int,
        answer: Callable[[bytes], None],
        on_status: Callable[[Status], Awaitable[None] | None] | None = None,
    ) -> None:
        self.items: deque[Message | bytes | Status] = deque()
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._answer = answer
        self._on_status = on_status
        # Items that are no messages; without them a message is handed over without looking at the next item.
        self._others = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._emptied: list[asyncio.Future[None]] = []
        self._turns = 0
        self._busy = False
        self._ended: TurnoutError | None = None
        self._closing = False

    # -- the read loop's side

    def put(self, message: Message) -> bool:
        """Add a message; return False if the buffer is full and the message was not added."""
        if len(self.items) >= self._max_messages or self._bytes + len(message.data) > self._max_bytes:
            return False
        self.items.append(message)
        self._bytes += len(message.data)
        if self._waiters:
            self._wake_one()
        return True

    def put_all(self, messages: list[Message]) -> bool:
        """Add messages if there is room for all of them; otherwise return False and add none."""
        size = self._bytes + sum([len(message.data) for message in messages])
        if len(self.items) + len(messages) > self._max_messages or size > self._max_bytes:
            return False
        self.items.extend(messages)
        self._bytes = size
        if self._waiters:
            self._wake_one()
        return True

    def put_request(self, subject: bytes) -> None:
        """Add a flow control request; answer it immediately if the buffer is empty."""
        if self.items:
            self.items.append(subject)
            self._others += 1
        else:
            self._answer(subject)

    def put_status(self, status: Status) -> None:
        """Add a status for the user."""
        self.items.append(status)
        self._others += 1
        self._wake_one()

    def close(self, reason: TurnoutError | None = None) -> None:
        """Accept no more; buffered messages can still be taken. Then *reason* is raised, or the iteration ends."""
        self._closing = True
        if self._ended is None:
            self._ended = reason
        self._wake_all()
        if not self.items and not self._busy:
            self._tell_empty()

    def clear(self) -> None:
        """Drop the buffered messages."""
        self.items.clear()
        self._bytes = self._others = 0
        self._wake_all()
        self._tell_empty()

    def rest(self) -> list[Message]:
        """The messages inside, in order."""
        return [item for item in self.items if isinstance(item, Message)]

    @property
    def closing(self) -> bool:
        """True once nothing more is accepted."""
        return self._closing

    def __len__(self) -> int:
        return len(self.items)

    # -- the user's side

    def _take(self) -> Message | Status | None:
        """The next item for the user; flow control requests that follow it are answered."""
        items = self.items
        while items:
            item = items.popleft()
            if type(item) is bytes:
                self._others -= 1
                self._answer(item)
                continue
            if type(item) is Message:
                self._bytes -= len(item.data)
            else:
                self._others -= 1
            while self._others and items and type(items[0]) is bytes:
                self._others -= 1
                self._answer(items.popleft())  # type: ignore[arg-type]
            if not items and self._emptied:
                self._tell_empty()
            return item  # type: ignore[return-value]
        if self._emptied:
            self._tell_empty()
        return None

    async def next(self, timeout: float | None = None) -> Message:
        """The next message.

        Raises:
            RequestTimeoutError: none arrived in *timeout* seconds.
            SubscriptionClosedError: closed, and the buffer is empty.
            StreamError: the subscription ended by an error, which is raised each time.
        """
        item = self._take()
        if type(item) is Message:
            self._turns += 1
            if self._turns % _MESSAGES_PER_TURN == 0:
                # A full buffer must not starve the loop's other tasks.
                await asyncio.sleep(0)
            return item
        try:
            async with asyncio.timeout(timeout):
                while True:
                    if isinstance(item, Status):
                        await self._hand_status(item)
                    elif isinstance(item, Message):
                        return item
                    elif self._closing:
                        raise self._ended or SubscriptionClosedError("the subscription has ended")
                    else:
                        await self._wait()
                    item = self._take()
        except TimeoutError as late:
            if isinstance(late, StreamError):
                raise
            raise RequestTimeoutError(f"no message in {timeout:g} s", code=408) from None

    async def messages(self, taken: Callable[[], None] | None = None) -> AsyncIterator[Message]:
        """Give every message until closed; *taken* is called before each is given.

        Raises:
            StreamError: the subscription ended by an error.
        """
        items, turns = self.items, 0
        while True:
            turns += 1
            if items and not self._others and turns % _MESSAGES_PER_TURN:
                # Nothing but messages: each is handed over with as few steps as can be.
                message: Message = items.popleft()  # type: ignore[assignment]
                self._bytes -= len(message.data)
                if not items and self._emptied:
                    self._tell_empty()
            else:
                try:
                    message = await self.next()
                except SubscriptionClosedError:
                    return
            if taken is not None:
                taken()
            yield message

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if not waiter.done() or waiter.cancelled():
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            elif self.items:
                # Woken for an item that another reader, or a cancellation, leaves behind: pass the call on.
                self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._waiters:
            self._wake_one()

    async def _hand_status(self, status: Status) -> None:
        if self._on_status is not None:
            waits = self._on_status(status)
            if inspect.isawaitable(waits):
                await waits

    async def run(self, callback: Callback, report: Callable[[BaseException], None]) -> None:
        """Hand every message to *callback*, one at a time, until closed and empty; its errors are reported."""
        items = self.items
        while True:
            # Busy before it is taken: a drain must not see an empty mailbox while the last message is in hand.
            self._busy = True
            item = self._take()
            if item is None:
                self._busy = False
                self._tell_empty()
                if self._closing:
                    return
                await self._wait()
                continue
            try:
                if type(item) is Message:
                    waits = callback(item)
                    if waits is not None:
                        await waits
                    await self._run_through(callback)
                else:
                    await self._hand_status(item)  # type: ignore[arg-type]
            except Exception as failure:  # noqa: BLE001 - the user's code: whatever it raises is reported
                report(failure)
            finally:
                self._busy = False
                if not items and self._emptied:
                    self._tell_empty()
            self._turns += 1
            if self._turns % _MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _run_through(self, callback: Callback) -> None:
        """Hand messages to *callback* while nothing else waits between them."""
        items = self.items
        for _ in range(_MESSAGES_PER_TURN):
            if not items or self._others:
                return
            message: Message = items.popleft()  # type: ignore[assignment]
            self._bytes -= len(message.data)
            waits = callback(message)
            if waits is not None:
                await waits
        await asyncio.sleep(0)

    async def emptied(self) -> None:
        """Wait until everything has been handed over, and no callback runs."""
        if self.items or self._busy:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._emptied.append(waiter)
            await waiter

    def _tell_empty(self) -> None:
        if self._busy or self.items:
            return
        waiters, self._emptied = self._emptied, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
