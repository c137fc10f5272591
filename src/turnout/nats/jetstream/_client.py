"""nats-py's client with corrections for the faults that affect turnout.

This module and `turnout.nats.jetstream.connection` reach into the client; the names used there are checked by a test.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, cast
from urllib.parse import ParseResult

import nats.errors
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client
from nats.aio.transport import TcpTransport

from turnout.nats.jetstream._deadline import stop, within
from turnout.nats.protocol.servers import Server

_log = logging.getLogger(__name__)

# How long closing may take; what is not sent by then is dropped.
_CLOSE_SECONDS = 2.0


class _Tcp(TcpTransport):  # type: ignore[misc, unused-ignore]
    """Transport of nats-py that keeps hold of its socket from the beginning, so that a cancellation closes it."""

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: float) -> None:
        async with asyncio.timeout(connect_timeout):
            streams = await asyncio.open_connection(uri.hostname, uri.port, limit=buffer_size)
        self._bare_io_reader, self._bare_io_writer = self._io_reader, self._io_writer = streams


class BoundedClient(Client):  # type: ignore[misc, unused-ignore]
    """Client of nats-py that ends within a limit, and takes no answer for one that it is not."""

    def __init__(self) -> None:
        super().__init__()
        self._attempt: asyncio.Task[Any] | None = None

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
        scheme, _, place = str(server).partition("://")
        login = "" if server.user is None else f"{server.user}@"
        if server.password is not None:
            login = f"{server.user}:{server.password}@"
        return ParseResult(scheme, login + place, "", "", "", "")

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
