"""Boundary to nats-py: its exceptions become errors of turnout's tree, and its client's faults are corrected.

This module and `turnout.nats.jetstream.connection` reach into the client; the names used there are checked by a test.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import ParseResult

import nats.errors
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client
from nats.aio.transport import TcpTransport

from turnout.errors import ConnectionLostError, StreamError, TurnoutError
from turnout.nats.jetstream._time_limits import stop, within
from turnout.nats.jetstream.errors import (
    NoRespondersError,
    NotJetStreamMessageError,
    PermissionDeniedError,
    RequestTimeoutError,
    SubscriptionClosedError,
)
from turnout.nats.protocol.servers import Server


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


_log = logging.getLogger(__name__)

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
        self._attempt: asyncio.Task[Any] | None = None
        self.tls_context: Callable[[], ssl.SSLContext] | None = None

    async def _connect_to_server(self, server: Any) -> None:
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
