"""Shared helpers for JetStream tests: running coroutines, collecting errors, and a proxy with faults."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from turnout.nats.jetstream import AckPolicy, ConsumerConfig, JetStream, StorageType, StreamConfig
from turnout.nats.jetstream.stream import Stream

CONF = Path(__file__).parent / "conf"
_numbers = itertools.count(1)
E = TypeVar("E", bound=Exception)


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test's coroutine to its end, with a limit of its own: a hang is a failure that names its test."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(180):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return run


def fresh(prefix: str = "S") -> str:
    """A name that no other test has."""
    return f"{prefix}{next(_numbers)}"


async def stream_of_messages(js: JetStream, count: int = 0, *, size: int = 8, **config: Any) -> tuple[Stream, str]:
    """A new stream with messages on ``<name>.a``, and its name in lower case, which its subjects begin with."""
    name = fresh()
    subject = name.lower()
    config.setdefault("storage", StorageType.MEMORY)
    stream = await js.create_stream(StreamConfig(name=name, subjects=[f"{subject}.>"], **config))
    for number in range(count):
        await js.publish_async(f"{subject}.a", b"%d".ljust(size) % number)
    await js.publish_async_complete(20)
    return stream, subject


def push(deliver: str, **config: Any) -> ConsumerConfig:
    """The configuration of a push consumer that a test makes by hand."""
    config.setdefault("ack_policy", AckPolicy.EXPLICIT)
    return ConsumerConfig(deliver_subject=deliver, **config)


class Errors(list[Exception]):
    """An error callback that keeps what it is told."""

    def __call__(self, failure: Exception) -> None:
        self.append(failure)

    def of(self, kind: type[E]) -> list[E]:
        return [failure for failure in self if isinstance(failure, kind)]

    async def expect(self, kind: type[E], timeout: float = 5.0) -> E:
        """The first error of a kind, awaited."""
        await eventually(lambda: bool(self.of(kind)), timeout)
        return self.of(kind)[0]


async def eventually(condition: Callable[[], bool | Awaitable[bool]], timeout: float = 60.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(timeout):
        while True:
            value = condition()
            if not isinstance(value, bool):
                value = await value
            if value:
                return
            await asyncio.sleep(0.01)


class Proxy:
    """A TCP proxy that reads NATS frames: it keeps what clients send, and can drop frames and cut connections."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self.sent: list[bytes] = []
        self.drop: Callable[[bytes], bool] = lambda frame: False
        self.drop_sent: Callable[[bytes], bool] = lambda frame: False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *failure: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End every connection, without a word."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def lines(self, verb: str) -> list[str]:
        """The first lines of what clients sent with a verb."""
        return [frame.split(b"\r\n", 1)[0].decode() for frame in self.sent if frame.split(b" ", 1)[0] == verb.encode()]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            # The server is away: the client sees what it would see without a proxy.
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        pumps = [
            asyncio.create_task(self._pump(reader, up_writer, self._from_client)),
            asyncio.create_task(self._pump(up_reader, writer, lambda frame: not self.drop(frame))),
        ]
        self._tasks |= set(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, up_writer):
            self._writers.discard(one)
            one.transport.abort()

    def _from_client(self, frame: bytes) -> bool:
        self.sent.append(frame)
        return not self.drop_sent(frame)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keep: Callable[[bytes], bool]
    ) -> None:
        try:
            while True:
                line = await reader.readuntil(b"\r\n")
                fields = line.split()
                frame = line
                if fields and fields[0] in (b"MSG", b"HMSG", b"PUB", b"HPUB"):
                    frame += await reader.readexactly(int(fields[-1]) + 2)
                if keep(frame):
                    writer.write(frame)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return


async def unbound(stream: Stream, name: str) -> bool:
    """Return whether a push consumer has no subscriber any more."""
    return not (await stream.consumer_info(name)).push_bound


def forge(js: object, subject: str, code: int, text: str, headers: dict[str, str], reply: bytes = b"") -> None:
    """Send a status as the server would: clients may send anything but a JSAck as reply."""
    block = b"NATS/1.0 %d %b\r\n" % (code, text.encode())
    block += b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items()) + b"\r\n"
    frame = b"HPUB %b %b %d %d\r\n%b\r\n" % (subject.encode(), reply, len(block), len(block), block)
    js.connection._enqueue(frame)  # type: ignore[attr-defined]
