"""HTTP on a listening socket: uvicorn serves connections that are accepted, counted and watched here.

uvicorn has no limit of connections below an application, none by address, and no timeout of headers; asyncio's own
accept loop writes a traceback for every connection beyond the limit of open files. So connections are accepted here,
before TLS, and handed to uvicorn's protocol.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

import uvicorn

from turnout.server.config import LimitsPart
from turnout.server.connections import (
    Connections,
    LimitedProtocol,
    LimitedWebSocket,
    Notices,
    OnceAMinute,
    address_key,
    raise_file_limit,
)

_ACCEPT_RETRY_SECONDS = 1.0
_MAX_REFUSED_PER_SECOND = 500
"""Beyond it connections wait in the kernel's queue: refusing them should not take the processor from routes."""
_MAX_LINGERING = 256
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 1 << 20
"""Bytes of a refused connection that are read and dropped, so that its client gets to read the refusal."""
_LOGS = logging.getLogger("uvicorn.error")


class HttpServer:
    """Serves an application on a socket, within limits.

    Args:
        config: uvicorn's configuration; its protocol has to be `LimitedProtocol`.
        limits: limits of the number and the duration of connections.
    """

    def __init__(self, config: uvicorn.Config, limits: LimitsPart) -> None:
        self._server = uvicorn.Server(config)
        self._is_stopped = False
        self._config = config
        self._limits = limits
        self._connections = Connections(raise_file_limit(limits.connections), limits.connections_per_address)
        self._notices = Notices()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._lingering: set[asyncio.Task[None]] = set()

    def run(self, listening: socket.socket) -> None:
        """Serve until `stop`; after a failure it can be called again."""
        self._server = uvicorn.Server(self._config)
        self._server.should_exit = self._is_stopped
        quieter = OnceAMinute()
        _LOGS.addFilter(quieter)
        try:
            asyncio.run(self._serve(listening))
        finally:
            _LOGS.removeFilter(quieter)

    def stop(self) -> None:
        """End `run`, from any thread, after the responses that are under way."""
        self._is_stopped = True
        self._server.should_exit = True

    async def _serve(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        tasks = [asyncio.create_task(self._accept(listening)), asyncio.create_task(self._watch())]
        serving = asyncio.create_task(self._server.serve(sockets=[]))
        try:
            # A bug in one of the tasks must end the server visibly rather than leave it deaf.
            await asyncio.wait([serving, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._server.should_exit = True
            await serving
            for task in (*tasks, *self._lingering):
                task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while not self._server.started:
            await asyncio.sleep(0.01)
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as failure:
                # As a rule too many open files: others may close theirs.
                self._notices.add(f"not accepted: {failure.strerror}", "unknown", loop.time())
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            if self._server.should_exit:
                connection.close()
                return
            address = address_key(str(peer[0]))
            refusal = self._connections.refusal(address)
            if refusal is None:
                self._hand_over(connection, self._connections.opened(address))
                # sock_accept does not let others run where a connection waits already.
                await asyncio.sleep(0)
            else:
                self._notices.add(refusal[1], address, loop.time())
                self._refuse(connection, *refusal)
                await asyncio.sleep(1 / _MAX_REFUSED_PER_SECOND)

    def _hand_over(self, connection: socket.socket, closed: Callable[[], None]) -> None:
        task = asyncio.create_task(self._serve_connection(connection, closed))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _serve_connection(self, connection: socket.socket, closed: Callable[[], None]) -> None:
        """Start TLS if it is configured, and pass the connection to its protocol."""
        tls = self._config.ssl
        timeout = self._limits.header_timeout if tls else None
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: self._protocol(closed),
                connection,
                ssl=tls,
                ssl_handshake_timeout=timeout,
                ssl_shutdown_timeout=timeout,
            )
        except (OSError, ssl.SSLError):
            # The peer has disconnected, speaks no TLS, or takes too long for its handshake.
            connection.close()
            closed()
        except BaseException:
            connection.close()
            closed()
            raise

    def _protocol(self, closed: Callable[[], None]) -> LimitedProtocol:
        protocol = LimitedProtocol(config=self._config, server_state=self._server.server_state, app_state={})
        protocol.closed = closed
        return protocol

    def _refuse(self, connection: socket.socket, status: int, reason: str) -> None:
        """Send a refusal and close. With TLS only close: the handshake would be the work that is refused."""
        if self._config.ssl is not None or len(self._lingering) >= _MAX_LINGERING:
            connection.close()
            return
        try:
            connection.send(_refusal(status, reason))
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            connection.close()
            return
        lingering = asyncio.create_task(_linger(connection))
        self._lingering.add(lingering)
        lingering.add_done_callback(self._lingering.discard)

    async def _watch(self) -> None:
        """Close connections whose peers are too slow."""
        limits, loop = self._limits, asyncio.get_running_loop()
        pause = min(1.0, min(limits.header_timeout, limits.body_timeout, limits.send_timeout) / 4)
        while True:
            await asyncio.sleep(pause)
            now = loop.time()
            for connection in tuple(self._server.server_state.connections):
                if not isinstance(connection, LimitedProtocol | LimitedWebSocket):
                    continue
                reason = connection.close_if_late(limits, now)
                if reason is not None:
                    self._notices.add(reason, str((connection.client or ("unknown",))[0]), now)
            self._notices.report(now)


async def _linger(connection: socket.socket) -> None:
    """Read what a refused client still sends, and close; a close before is a reset, which drops the refusal."""
    left = _LINGER_BYTES
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while left > 0 and (part := await loop.sock_recv(connection, 65_536)):
                left -= len(part)
    except OSError:
        # The client has reset the connection, or is too slow (TimeoutError).
        return
    finally:
        connection.close()


def _refusal(status: int, reason: str) -> bytes:
    phrase = {429: "Too Many Requests", 503: "Service Unavailable"}[status]
    body = f"connection {reason}\n"
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Retry-After: 1\r\nConnection: close\r\n\r\n{body}".encode()
