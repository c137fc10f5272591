"""Connections of HTTP clients, within limits of number and time, and the socket that accepts them."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import h11
import uvicorn
from uvicorn.config import create_ssl_context
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from turnout.base.files import FileChanges
from turnout.server.config import LimitsPart

_log = logging.getLogger("turnout.server")
_REPORT_SECONDS = 60.0
_LINGER_SECONDS = 2.0
"""Time in which the rest of a body is discarded whose request has been answered: a reset could overtake the answer."""
_RESERVED_FILES = 256
"""Descriptors that connections leave to routes, stores and Spark."""
_MAX_FILES = 65_536
_TIMED_OUT = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain\r\nContent-Length: 29\r\nConnection: close\r\n\r\n"
    b"the request was sent too slowly.\n"
)


class Notices:
    """Log of refused and closed connections: the first at once, then one line a minute with the counts."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._last_address = ""
        self._next = 0.0

    def add(self, reason: str, address: str, now: float) -> None:
        """Count one connection; *now* is a monotonic time in seconds."""
        self._counts[reason] += 1
        self._last_address = address
        self.report(now)

    def report(self, now: float) -> None:
        """Write the counts, if the last line is a minute old."""
        if self._counts and now >= self._next:
            counts = ", ".join(f"{count} {reason}" for reason, count in sorted(self._counts.items()))
            _log.warning("HTTP connections: %s; the last one from %s", counts, self._last_address)
            self._counts.clear()
            self._next = now + _REPORT_SECONDS


class OnceAMinute(logging.Filter):
    """Filter that passes each warning template of a logger once a minute: clients cause them at will."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a warning that was passed within the last minute."""
        if record.levelno != logging.WARNING:
            return True
        template = str(record.msg)
        if record.created < self._next.get(template, 0.0):
            return False
        self._next[template] = record.created + _REPORT_SECONDS
        return True


def address_key(host: str) -> str:
    """Return the key by which connections are counted: an IPv4 address, or the /64 network of an IPv6 address.

    >>> address_key("10.0.0.7"), address_key("::ffff:10.0.0.7"), address_key("2001:db8::17")
    ('10.0.0.7', '10.0.0.7', '2001:db8::/64')
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


class Connections:
    """Numbers of open connections, in all and by address.

    Args:
        total: the limit of all.
        per_address: the limit of one address.
    """

    def __init__(self, total: int, per_address: int) -> None:
        self._total = total
        self._per_address = per_address
        self._open: Counter[str] = Counter()

    def refusal(self, address: str) -> tuple[int, str] | None:
        """Return status and reason if one more connection of *address* is too many."""
        if self._open[address] >= self._per_address:
            return 429, f"refused: more than {self._per_address} of one address (limits.connectionsPerAddress)"
        if self._open.total() >= self._total:
            return 503, f"refused: more than {self._total} at once (limits.connections)"
        return None

    def opened(self, address: str) -> Callable[[], None]:
        """Count a connection; the returned function, which may be called twice, ends it."""
        self._open[address] += 1
        open_ = True

        def closed() -> None:
            nonlocal open_
            if open_:
                open_ = False
                self._open[address] -= 1
                self._open += Counter()  # drops addresses without connections

        return closed


def _nothing() -> None:
    """Do nothing."""


class _Limited(asyncio.Protocol):
    """Connection that is closed if its peer does not read.

    Attributes:
        closed: called after the end of the connection.
    """

    transport: asyncio.Transport
    closed: Callable[[], None] = staticmethod(_nothing)
    _unsent = 0
    _unsent_since = 0.0

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.closed()
        super().connection_lost(exc)

    def _stops_reading(self, limits: LimitsPart, now: float) -> bool:
        """Return True if the peer has read nothing of the buffered bytes for too long."""
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent or not unsent:
            self._unsent, self._unsent_since = unsent, now
        return now - self._unsent_since > limits.send_timeout


class LimitedProtocol(_Limited, H11Protocol):
    """HTTP/1.1 connection that can be closed if its peer is too slow."""

    _phase: object = None
    _phase_since = 0.0

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Continue as a WebSocket, which counts as one connection like this one."""
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        assert isinstance(protocol, LimitedWebSocket)
        protocol.closed = self.closed

    def close_if_late(self, limits: LimitsPart, now: float) -> str | None:
        """Close the connection if its peer exceeds the time limits, and return the reason; else None."""
        if self._stops_reading(limits, now):
            self.transport.abort()
            return f"closed: nothing of the response read within {limits.send_timeout:g} s (limits.sendTimeout)"
        if self.transport.is_closing():
            return None
        late = self._sends_late(limits, now)
        if late is not None:
            if not self._is_answering():
                self.transport.write(_TIMED_OUT)
            self.transport.close()
        return late

    def _is_answering(self) -> bool:
        return self.conn.their_state is not h11.IDLE and self.cycle is not None and self.cycle.response_started

    def _sends_late(self, limits: LimitsPart, now: float) -> str | None:
        """Return the reason if the headers or the body of a request are overdue."""
        state, answered = self.conn.their_state, self.conn.our_state is h11.DONE
        partial = state is h11.IDLE and (self.cycle is None or bool(self.conn.trailing_data[0]))
        phase = (state, answered, partial, self.cycle)
        if phase != self._phase:
            self._phase, self._phase_since = phase, now
        waited = now - self._phase_since
        if partial and waited > limits.header_timeout:
            return f"closed: no complete headers within {limits.header_timeout:g} s (limits.headerTimeout)"
        body_timeout = min(limits.body_timeout, _LINGER_SECONDS) if answered else limits.body_timeout
        if state is h11.SEND_BODY and waited > body_timeout:
            return f"closed: no complete body within {body_timeout:g} s (limits.bodyTimeout)"
        return None


class LimitedWebSocket(_Limited, WSProtocol):
    """WebSocket that can be closed if its peer reads too slowly."""

    def close_if_late(self, limits: LimitsPart, now: float) -> str | None:
        """Close the connection if its peer reads nothing for too long, and return the reason; else None."""
        if not self._stops_reading(limits, now):
            return None
        self.transport.abort()
        return f"closed: nothing of a WebSocket read within {limits.send_timeout:g} s (limits.sendTimeout)"


def raise_file_limit(connections: int) -> int:
    """Raise the limit of open files as far as it may be, and return how many connections it has room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
        soft = highest
    room = connections if soft == resource.RLIM_INFINITY else max(1, soft - min(_RESERVED_FILES, soft // 2))
    if room < connections:
        _log.warning("limits.connections is %d, but %d open files leave room for %d", connections, soft, room)
    return min(connections, room)


_ACCEPT_RETRY_SECONDS = 1.0
_MAX_REFUSED_PER_SECOND = 500
"""Beyond it connections wait in the kernel's queue: refusing them should not take the processor from routes."""
_MAX_LINGERING = 256
_DRAIN_SECONDS = 1.0
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
        files = (config.ssl_certfile, config.ssl_keyfile, config.ssl_ca_certs)
        self._tls_changes = FileChanges(Path(file) for file in files if file)

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
        tls = self._tls()
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

    def _tls(self) -> ssl.SSLContext | None:
        """Return the context of handshakes, made anew after a change of the certificates' files."""
        config = self._config
        if config.ssl is not None and self._tls_changes.found():
            try:
                assert config.ssl_certfile is not None
                config.ssl = create_ssl_context(
                    certfile=config.ssl_certfile,
                    keyfile=config.ssl_keyfile,
                    password=config.ssl_keyfile_password,
                    ssl_version=config.ssl_version,
                    cert_reqs=config.ssl_cert_reqs,
                    ca_certs=config.ssl_ca_certs,
                    ciphers=config.ssl_ciphers,
                )
            except (OSError, ssl.SSLError) as failure:
                _LOGS.error("the renewed certificate cannot be used, and the former one holds: %s", failure)
            else:
                _LOGS.info("the certificate was renewed from %s", config.ssl_certfile)
        return config.ssl

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
        async with asyncio.timeout(_DRAIN_SECONDS):
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
