"""Boundary to nats-py: its exceptions become errors of turnout's tree, and its client's faults are corrected.

Before Python 3.12 `asyncio.wait_for`, which nats-py uses throughout, drops a cancellation that arrives together with
the result it waits for; nats-py itself drops some, too. A single cancellation, as `asyncio.timeout` sends it,
is then no limit.

nats-py's parser costs two regular expressions, a coroutine and a dataclass per message, which bounds a Python
client at some 40,000 messages a second. `FrameParser` calls a plain function once for consecutive frames of a
subscription. It replaces nats-py's own parser (``Client._ps``), which still parses all other lines of the protocol.

This module and `turnout.nats.jetstream.connection` reach into the client; the names used there are checked by a test.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, NoReturn, TypeAlias, TypeVar, cast
from urllib.parse import ParseResult

import nats.errors
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client, Srv
from nats.aio.transport import TcpTransport
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from turnout.errors import ConnectionLostError, StreamError, TurnoutError
from turnout.nats.jetstream.errors import (
    NoRespondersError,
    NotJetStreamMessageError,
    PermissionDeniedError,
    RequestTimeoutError,
    SubscriptionClosedError,
)
from turnout.nats.protocol.frames import largest_message
from turnout.nats.protocol.options import Server

T = TypeVar("T")

# Long enough for a task to end after a cancellation that it has noticed.
_CANCELLATION_SECONDS = 0.02


async def within(work: Coroutine[object, object, T], seconds: float) -> T:
    """Run *work* as a task and return its result, or raise its exception.

    Raises:
        TimeoutError: when it is not done in *seconds*; it was stopped.
    """
    task = asyncio.create_task(work)
    late = True
    try:
        await asyncio.wait([task], timeout=seconds)
        late = not task.done()
    finally:
        await stop(task)
    if late:
        raise TimeoutError
    return task.result()


async def stop(*tasks: asyncio.Task[object] | None) -> None:
    """Cancel tasks until they are done, and wait for them; the caller's own task is left out.

    A cancellation of the caller is raised once they are.
    """
    caller = asyncio.current_task()
    running = [task for task in tasks if task is not None and task is not caller]
    cancelled: asyncio.CancelledError | None = None
    while running := [task for task in running if not task.done()]:
        for task in running:
            task.cancel()
        try:
            await asyncio.wait(running, timeout=_CANCELLATION_SECONDS)
        except asyncio.CancelledError as failure:
            cancelled = failure
    for ended in tasks:
        # The loop logs exceptions that are never retrieved.
        if ended is not None and ended.done() and not ended.cancelled():
            ended.exception()
    if cancelled is not None:
        raise cancelled


class Watchdog:
    """Calls *alarm* with the seconds of silence, once per period of silence, until it is stopped.

    Args:
        limit: seconds of silence that are too many.
        alarm: callback; the watch continues afterwards.
    """

    __slots__ = ("_alarm", "_limit", "_reported", "_timer", "last_seen")

    def __init__(self, limit: float, alarm: Callable[[float], None]) -> None:
        self._limit = limit
        self._alarm = alarm
        self._timer: asyncio.TimerHandle | None = None
        self.last_seen = monotonic()
        self._reported = self.last_seen

    def start(self) -> None:
        """Begin to watch; silence counts from now."""
        self.stop()
        self.last_seen = self._reported = monotonic()
        self._timer = asyncio.get_running_loop().call_later(self._limit, self._check)

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        # A program that blocked the loop wakes with timers due and frames unread: let the socket speak first.
        self._timer = asyncio.get_running_loop().call_later(0.01, self._judge)

    def _judge(self) -> None:
        now = monotonic()
        since = max(self.last_seen, self._reported)
        rest = self._limit - (now - since)
        if rest > 0:
            self._timer = asyncio.get_running_loop().call_later(rest, self._check)
            return
        self._reported = now
        self._timer = asyncio.get_running_loop().call_later(self._limit, self._check)
        self._alarm(now - self.last_seen)


_log = logging.getLogger(__name__)

Frame: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, header block and payload of a message."""

Handler: TypeAlias = Callable[[Sequence[Frame]], None]
"""Called in the read loop with consecutive frames of a subscription: it must be quick and must not wait.

If it ends its subscription at one of them, it has to ignore the rest.
"""

_MAX_LINE_BYTES = 65536
# Of fewer frames, checking them together takes longer than one by one.
_FEW_FRAMES = 16


class FrameParser(Parser):  # type: ignore[misc, unused-ignore]
    """A parser that hands frames of registered subscriptions to their handlers.

    Args:
        client: the nats-py client that owns it.
        handlers: the handler for each subscription id, as the wire writes it.

    Attributes:
        error_line: the last ``-ERR`` as the server wrote it; nats-py passes it on in lower case.
    """

    def __init__(self, client: object, handlers: dict[bytes, Handler]) -> None:
        self._handlers = handlers
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._needed = 0
        self._generation = 0
        self._sid = b""
        self._frames: list[Frame] = []
        self.error_line = ""
        super().__init__(client)

    def reset(self) -> None:
        """Forget a half-read frame: a new connection begins."""
        super().reset()
        self._partial.clear()
        self._partial_size = 0
        self._needed = 0
        self._generation += 1

    async def parse(self, data: bytes = b"") -> None:
        """Parse data from the socket and pass on every complete frame."""
        if self._partial:
            self._partial.append(data)
            self._partial_size += len(data)
            is_open = not self._needed and b"\n" not in data and self._partial_size <= _MAX_LINE_BYTES
            if is_open or self._partial_size < self._needed:
                return
            data = b"".join(self._partial)
            self._partial.clear()
        generation = self._generation
        try:
            position, needed = await self._parse_all(data)
        except (ValueError, IndexError, TypeError) as malformed:
            raise ProtocolError("nats: malformed MSG") from malformed
        finally:
            await self._hand_over()
        if generation == self._generation and position < len(data):
            self._partial.append(data[position:])
            self._partial_size = len(data) - position
            self._needed = needed

    async def _parse_all(self, data: bytes) -> tuple[int, int]:
        """Pass on complete frames; return the offset of the rest and the size that its frame needs."""
        # One function, though it is long: a call per frame would make up a tenth of its time.
        position, received_bytes = 0, 0
        current, frames = self._sid, self._frames
        line_end = data.find(b"\r\n")
        while line_end >= 0:
            line = data[position:line_end]
            begin = line_end + 2
            if not line.startswith((b"MSG ", b"HMSG ")):
                await self._hand_over(current)
                frames = self._frames
                if await self._reconnected_by(line + b"\r\n"):
                    return len(data), 0
                position = begin
                line_end = data.find(b"\r\n", position)
                continue
            fields = line.split()
            header_size = int(fields.pop(-2)) if fields[0] == b"HMSG" else 0
            split, stop = begin + header_size, begin + int(fields[-1])
            if not begin <= split <= stop:
                # Of a negative size the next frame would be this one again.
                _refuse("malformed MSG")
            if stop + 2 > len(data):
                if stop - begin > largest_message({"max_payload": self.nc.max_payload}):
                    _refuse("a message larger than the server's limit")
                self.nc.stats["in_bytes"] += received_bytes
                return position, stop + 2 - position
            if not data.startswith(b"\r\n", stop):
                _refuse("malformed MSG")
            if fields[2] != current:
                current = fields[2]
                await self._hand_over(current)
                frames = self._frames
            reply = b"" if len(fields) == 4 else fields[3]
            frames.append((fields[1], reply, data[begin:split] if header_size else b"", data[split:stop]))
            received_bytes += stop - begin
            position = stop + 2
            line_end = data.find(b"\r\n", position)
        self.nc.stats["in_bytes"] += received_bytes
        if len(data) - position > _MAX_LINE_BYTES:
            _refuse("a protocol line without an end")
        return position, 0

    async def _hand_over(self, sid: bytes = b"") -> None:
        """Pass the collected frames to their handler; collect those of *sid* from now on."""
        frames, before = self._frames, self._sid
        self._frames, self._sid = [], sid
        if not frames:
            return
        self.nc.stats["in_msgs"] += len(frames)
        handler = self._handlers.get(before)
        if handler is None:
            for subject, reply, headers, data in frames:
                await self.nc._process_msg(int(before), subject, reply, data, headers or None)  # noqa: SLF001
            return
        try:
            handler(frames)
        except Exception:  # noqa: BLE001 - see below
            # Whatever a handler does, the connection's read loop must live: nats-py would end it in silence.
            _log.exception("frames of %r could not be handled", frames[0][0])

    async def _reconnected_by(self, line: bytes) -> bool:
        """Pass another kind of line to nats-py's parser; return True if it started a new connection."""
        generation = self._generation
        if line.startswith(b"-ERR"):
            self.error_line = line.decode("utf-8", "replace")
        await super().parse(line)
        return generation != self._generation


def replies_of_messages(frames: Sequence[Frame]) -> tuple[bytes, ...] | None:
    """Return the replies of frames that are handled together; None if they have to be handled one by one.

    These are few frames, as that takes less time, and those among which a status may be: it has headers, no payload.
    """
    if len(frames) < _FEW_FRAMES:
        return None
    _, replies, blocks, payloads = zip(*frames, strict=True)
    return replies if all(payloads) or not any(blocks) else None


def _refuse(what: str) -> NoReturn:
    raise ProtocolError(f"nats: {what}")


def _lost(failure: BaseException) -> TurnoutError:
    return ConnectionLostError(_words(failure))


def _timed_out(failure: BaseException) -> TurnoutError:
    return RequestTimeoutError(_words(failure), code=408)


def _refused(failure: BaseException) -> TurnoutError:
    return StreamError(_words(failure))


def _closed(failure: BaseException) -> TurnoutError:
    return SubscriptionClosedError(_words(failure))


def _unanswered(failure: BaseException) -> TurnoutError:  # noqa: ARG001 - one signature for the table
    return NoRespondersError("the requested subject")


def _not_jetstream(failure: BaseException) -> TurnoutError:
    return NotJetStreamMessageError("", _words(failure))


def _server_error(failure: BaseException) -> TurnoutError:
    """nats-py raises its base class with the text of the server's ``-ERR`` line."""
    return PermissionDeniedError.of(str(failure)) or ConnectionLostError(_words(failure))


def _words(failure: BaseException) -> str:
    return str(failure).removeprefix("nats: ") or type(failure).__name__


_TABLE: Mapping[type[BaseException], Callable[[BaseException], TurnoutError]] = {
    nats.errors.AuthorizationError: _lost,
    nats.errors.BadHeaderError: _refused,
    nats.errors.BadSubjectError: _refused,
    nats.errors.BadSubscriptionError: _closed,
    nats.errors.BadTimeoutError: _refused,
    nats.errors.ConnectionClosedError: _lost,
    nats.errors.ConnectionDrainingError: _lost,
    nats.errors.ConnectionReconnectingError: _lost,
    nats.errors.InvalidCallbackTypeError: _refused,
    nats.errors.InvalidUserCredentialsError: _lost,
    nats.errors.JsonParseError: _lost,
    nats.errors.MaxPayloadError: _refused,
    nats.errors.MsgAlreadyAckdError: _refused,
    nats.errors.NoRespondersError: _unanswered,
    nats.errors.NoServersError: _lost,
    nats.errors.NotJSMessageError: _not_jetstream,
    nats.errors.OutboundBufferLimitError: _lost,
    nats.errors.ProtocolError: _lost,
    nats.errors.SecureConnFailedError: _lost,
    nats.errors.SecureConnRequiredError: _lost,
    nats.errors.SecureConnWantedError: _lost,
    nats.errors.ServerNotInPoolError: _lost,
    nats.errors.SlowConsumerError: _refused,
    nats.errors.StaleConnectionError: _lost,
    nats.errors.TimeoutError: _timed_out,
    nats.errors.Error: _server_error,
    asyncio.TimeoutError: _timed_out,
    OSError: _lost,
}


def translate(failure: BaseException) -> TurnoutError | None:
    """Turnout's error for one that the connection raised; None if it is not the connection's (a cancellation)."""
    if isinstance(failure, TurnoutError):
        return failure
    for kind in type(failure).__mro__:
        make = _TABLE.get(kind)
        if make is not None:
            return make(failure)
    return None


@contextmanager
def translated() -> Iterator[None]:
    """The border: what nats-py raises inside the block leaves it as an error of turnout's tree."""
    try:
        yield
    except Exception as failure:
        known = translate(failure)
        if known is None or known is failure:
            raise
        raise known from failure


# Time limit of closing; unsent data is dropped then.
_CLOSE_SECONDS = 2.0

# Of nats-py's 32 KiB, the socket is paused and resumed several times for what one call reads from it.
_READ_BYTES = 1 << 16


class _Tcp(TcpTransport):  # type: ignore[misc, unused-ignore]
    """Transport of nats-py that keeps hold of its socket from the beginning, so that a cancellation closes it."""

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: float) -> None:
        async with asyncio.timeout(connect_timeout):
            streams = await asyncio.open_connection(uri.hostname, uri.port, limit=max(buffer_size, _READ_BYTES))
        self._bare_io_reader, self._bare_io_writer = self._io_reader, self._io_writer = streams

    async def read(self, buffer_size: int) -> bytes:
        return cast("bytes", await super().read(max(buffer_size, _READ_BYTES)))


class BoundedClient(Client):  # type: ignore[misc, unused-ignore]
    """Client of nats-py that ends within a limit, and takes no answer for one that it is not.

    Attributes:
        tls_context: makes the context of each connection; None for that of the options.
    """

    def __init__(self) -> None:
        super().__init__()
        self._attempt: asyncio.Task[object] | None = None
        self.tls_context: Callable[[], ssl.SSLContext] | None = None

    async def _connect_to_server(self, server: Srv) -> None:
        """Connect like nats-py, but close the socket of an attempt that failed or was stopped."""
        if self._transport:
            cast("Any", self._transport).close()
        if server.uri.scheme in ("ws", "wss"):
            await super()._connect_to_server(server)
            return
        server.last_attempt = time.monotonic()
        transport = cast("Any", _Tcp)()
        self._transport = transport
        await transport.connect(server.uri, DEFAULT_BUFFER_SIZE, self.options["connect_timeout"])

    @staticmethod
    def _parse_server_uri(connect_url: str) -> ParseResult:
        """Parse like nats-py, but percent-decode user and password, as every other client does."""
        if connect_url.startswith(("ws://", "wss://")):
            return Client._parse_server_uri(connect_url)  # noqa: SLF001 - what this stands for
        server = Server.parse(connect_url)
        scheme, _, host_and_port = str(server).partition("://")
        login = "" if server.user is None else f"{server.user}@"
        if server.password is not None:
            login = f"{server.user}:{server.password}@"
        return ParseResult(scheme, login + host_and_port, "", "", "", "")

    async def _process_connect_init(self) -> None:
        """Greet like nats-py, but take a server that closes instead of answering for a failed attempt."""
        await super()._process_connect_init()
        if self._status != Client.CONNECTED:
            await stop(self._reading_task, self._ping_interval_task, self._flusher_task)
            raise nats.errors.UnexpectedEOF

    async def _attempt_reconnect(self) -> None:
        """Reconnect like nats-py, but one attempt at a time: two would open two sockets and settle one future twice."""
        before, self._attempt = self._attempt, asyncio.current_task()
        await stop(before)
        await super()._attempt_reconnect()

    async def _select_next_server(self) -> None:
        """Connect like nats-py, with the certificates that files have now."""
        if self.tls_context is not None:
            self.options["tls"] = self.tls_context()
        await super()._select_next_server()

    async def _process_pong(self) -> None:
        """Process PONG like nats-py, but accept a PONG whose caller has given up."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def shut(self) -> None:
        """Close within a time limit and stop all tasks; unsent bytes are dropped after the limit."""
        try:
            await within(self.close(), _CLOSE_SECONDS)
        except TimeoutError:
            _log.debug("the server took no more bytes for %s s: the rest is dropped", _CLOSE_SECONDS)
        except Exception as failure:  # noqa: BLE001 - nothing is left to do on a connection that is given up
            _log.debug("while closing: %s", failure)
        # nats-py cancels each of them once, and not all of them hear it.
        attempts = (self._attempt, self._reconnection_task)
        await stop(*attempts, self._reading_task, self._ping_interval_task, self._flusher_task)
        # Nothing closed the socket where a time limit was over, or fell into nats-py's closing between two attempts.
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
            await asyncio.sleep(0)
