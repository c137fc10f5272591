"""Socket to one server: the handshake, and reading of protocol lines."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator

from turnout._built import version as __version__
from turnout.base.untrusted import JsonObject
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.errors import BrokenFrameError, PermissionDeniedError, RequestTimeoutError
from turnout.nats.protocol.frames import MAX_LINE_BYTES, ErrorLine, largest_message, read_info
from turnout.nats.protocol.options import ConnectionOptions
from turnout.nats.protocol.security import Tls, begins_tls
from turnout.nats.protocol.servers import Server

_RECEIVE_BYTES = 1 << 18
# Time past its deadline in which a call takes bytes that have arrived.
_GRACE_SECONDS = 1.0


class Link:
    """The bytes of a connection, to one server after another."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self.info: JsonObject = {}
        self.server: Server | None = None
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        # PINGs without their PONG.
        self._pings = 0
        # Called before anything is sent; what it raises keeps it from being sent.
        self.guard: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        """True while the socket is open; a lost connection is detected by the next call."""
        return self._socket is not None

    @property
    def max_payload(self) -> int:
        """The most bytes, headers and payload together, that this server takes in one message."""
        return int(self.info.get("max_payload", 1 << 20))

    def close(self) -> None:
        """Close the socket; calling it again does nothing."""
        closing, self._socket = self._socket, None
        self._buffer.clear()
        self._pings = 0
        self.server = None
        if closing is not None:
            with contextlib.suppress(OSError):
                closing.close()

    def dial(self, server: Server) -> None:
        """Connect to *server*: read its greeting, start TLS if the rule requires it, send CONNECT."""
        options = self.options
        raw = socket.create_connection((server.host, server.port), timeout=options.connect_timeout)
        self._socket = raw
        self.server = server
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.tls is not None and options.tls.first:
            self._start_tls(server)
        self.info = self._greeting()
        if not isinstance(self._socket, ssl.SSLSocket) and begins_tls(
            self.info, requested=options.asks_for_tls, server=server
        ):
            self._start_tls(server)
        self.send(b"CONNECT " + json.dumps(self._introduction(server)).encode() + b"\r\nPING\r\n")
        deadline = time.monotonic() + options.connect_timeout
        while True:
            line = self.line(deadline)
            if line == b"PONG":
                return
            self.control(line)

    def _start_tls(self, server: Server) -> None:
        tls = self.options.tls or Tls()
        plain = self._plain()
        # Bytes received after the greeting were not encrypted, so they cannot be trusted.
        self._buffer.clear()
        try:
            self._socket = tls.context().wrap_socket(plain, server_hostname=tls.hostname or server.host)
        except ssl.SSLCertVerificationError as failure:
            raise StreamError(f"the certificate of {server} is not trusted: {failure.verify_message}") from None

    def _greeting(self) -> JsonObject:
        line = self.line(time.monotonic() + self.options.connect_timeout)
        if not line.startswith(b"INFO "):
            raise ConnectionLostError("what answers there is not a NATS server")
        with self.reading():
            return read_info(line[5:])

    def _introduction(self, server: Server) -> JsonObject:
        fields: JsonObject = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "python-turnout",
            "version": __version__,
            "name": self.options.name,
            **self.options.credentials.connect_fields(self.info.get("nonce")),
        }
        return {**fields, **server.connect_fields()}

    def _plain(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLostError("the connection is closed")
        return self._socket

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of *data*.

        Raises:
            ConnectionLostError: the connection is lost; the number of bytes that it received is unknown.
        """
        if self.guard is not None:
            self.guard()
        sock = self._plain()
        try:
            sock.settimeout(self.options.timeout * 6)
            sock.sendall(data)
        except OSError as failure:
            raise self._lost(failure) from failure

    def receive_into(self, view: memoryview, timeout: float) -> int:
        """Read available bytes, at least one, into *view*; return 0 if none arrive in *timeout* seconds.

        Raises:
            ConnectionLostError: the connection is lost.
        """
        if self._buffer:
            count = min(len(self._buffer), len(view))
            view[:count] = self._buffer[:count]
            del self._buffer[:count]
            return count
        sock = self._plain()
        try:
            sock.settimeout(timeout)
            count = sock.recv_into(view)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return 0
        except OSError as failure:
            raise self._lost(failure) from failure
        if count == 0:
            raise self._lost(None)
        return count

    def wait(self, timeout: float, other: socket.socket | None = None) -> bool:
        """Return True when bytes can be read; False when only *other* can be, or nothing in *timeout* seconds.

        Raises:
            ConnectionLostError: the connection is closed.
        """
        sock = self._plain()
        if self._buffer or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            return True
        # select() takes no descriptors above 1023.
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        if other is not None:
            poll.register(other, select.POLLIN)
        return any(descriptor == sock.fileno() for descriptor, _ in poll.poll(timeout * 1000))

    def give_back(self, data: memoryview) -> None:
        """Return bytes from `receive_into` to the buffer; the next read starts with them."""
        self._buffer[:0] = data

    def _lost(self, failure: OSError | None) -> ConnectionLostError:
        server = self.server
        self.close()
        return ConnectionLostError(
            f"the connection to {server} was lost" + (f": {reason_of(failure)}" if failure else "")
        )

    def _late(self) -> RequestTimeoutError:
        return RequestTimeoutError(f"{self.server} did not answer in time", code=408)

    def more(self, deadline: float) -> None:
        """Append at least one byte to the buffer."""
        sock = self._plain()
        try:
            # After the deadline, bytes that have arrived are still taken.
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(_RECEIVE_BYTES)
        except TimeoutError as failure:
            raise self._late() from failure
        except OSError as failure:
            raise self._lost(failure) from failure
        if not data:
            raise self._lost(None)
        self._buffer += data

    def line(self, deadline: float) -> bytes:
        """The next protocol line, without its end."""
        # A server that sends without end, but never the answer, must not block the caller for ever.
        if time.monotonic() > deadline + _GRACE_SECONDS:
            raise self._late()
        looked = 0
        while (end := self._buffer.find(b"\r\n", max(0, looked - 1))) < 0:
            looked = len(self._buffer)
            if looked > MAX_LINE_BYTES:
                with self.reading():
                    raise BrokenFrameError("line", f"{looked} bytes without an end", bytes(self._buffer[:60]))
            self.more(deadline)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def send_ping(self) -> None:
        """Send a PING; the PONG is read with other lines."""
        self._pings += 1
        self.send(b"PING\r\n")

    @property
    def awaits_pong(self) -> bool:
        """True while a PING has no answer."""
        return self._pings > 0

    def control(self, line: bytes) -> None:
        """Handle a line that is no message: answer PING, store INFO, raise the error of ``-ERR``.

        Raises:
            PermissionDeniedError: for a subject that this user may not publish or subscribe to.
            StreamError: for another ``-ERR``: the credentials, a payload over the limit.
            ConnectionLostError: for one that is about the connection only (a stale or slow one).
        """
        word, _, rest = line.partition(b" ")
        if word == b"PING":
            self.send(b"PONG\r\n")
        elif word == b"INFO":
            with self.reading():
                self.info = {**self.info, **read_info(rest)}
        elif word == b"-ERR":
            self._refuse(ErrorLine.parse(rest))
        elif word == b"PONG":
            self._pings = max(0, self._pings - 1)
        elif word != b"+OK":
            with self.reading():
                raise BrokenFrameError("control", "it is no NATS protocol", line)

    def _refuse(self, error: ErrorLine) -> None:
        server = self.server
        if error.closes:
            self.close()
        if error.passing:
            raise ConnectionLostError(f"{server} ended the connection: {error.text}")
        message = f"{server} refused: {error.text}"
        raise PermissionDeniedError.of(error.text, message) or StreamError(message, code=error.code)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Close the connection on a broken frame in the block, and add the server's address to the error."""
        try:
            yield
        except BrokenFrameError as broken:
            server = self.server
            self.close()
            raise broken.sent_by(server) from None

    @property
    def largest_message(self) -> int:
        """The most bytes, headers included, that a message from this server may have."""
        return largest_message(self.info)


def reason_of(failure: BaseException) -> str:
    """Return the cause of a failure in a few words."""
    if isinstance(failure, TimeoutError):
        return "no answer in time"
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    return str(failure)
