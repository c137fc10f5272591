"""Queue of received messages not handed over yet, in order, with flow control requests at their positions."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from turnout.errors import TurnoutError
from turnout.nats.jetstream.errors import RequestTimeoutError, StreamError, SubscriptionClosedError
from turnout.nats.jetstream.message import Message
from turnout.nats.protocol.headers import Status

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
