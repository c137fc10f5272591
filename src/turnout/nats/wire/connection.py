"""Blocking connection to NATS: handshake, requests, and received bytes.

It belongs to one thread. There is no reader in the background: nothing is read but while a call waits, and
a PING of the server is answered by the next call that reads.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from turnout._built import version as __version__
from turnout.base.background import spread
from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.errors import (
    BrokenFrameError,
    NoRespondersError,
    PermissionDeniedError,
    RequestTimeoutError,
    api_error,
)
from turnout.nats.protocol.frames import (
    MAX_LINE_BYTES,
    ErrorLine,
    MessageLine,
    frame,
    largest_message,
    read_info,
    read_object,
)
from turnout.nats.protocol.headers import NO_RESPONDERS, StatusLine, encode, read_status
from turnout.nats.protocol.options import ConnectionOptions, Server, Tls, begins_tls

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


_PROMPT_SECONDS = 1.0
"""A server that is not frozen answers a PING within this time."""

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0


class RetryWindow:
    """Time in which a lost connection is retried: from the first failure since the last progress.

    Args:
        seconds: its length.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

    @property
    def until(self) -> float:
        """End of the window by the monotonic clock; it opens now if it is not open."""
        if self._until is None:
            self._until = time.monotonic() + self._seconds
        return self._until

    @property
    def is_over(self) -> bool:
        """True if there is no time for another attempt; opens the window if it is not open."""
        return time.monotonic() >= self.until

    def progress(self) -> None:
        """Close the window; the next failure opens another one."""
        self._until = None


@dataclass(frozen=True, slots=True)
class Message:
    """Received message; *headers* is the raw block, empty if the message has none.

    `turnout.nats.jetstream.Message` is the async client's message, with its acknowledgements.
    """

    subject: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def status(self) -> StatusLine | None:
        """Code and text of a status message; None for data."""
        return read_status(self.headers) if self.headers and not self.payload else None


class Connection(Link):
    """A connection that is open, or opens itself again, until it is closed.

    `request` and `api` reconnect when the connection is lost, to any of the servers, for as long as
    ``reconnect_timeout`` says. The caller of `receive_into` reads raw bytes and reconnects itself, because only it
    knows what it has consumed.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        super().__init__(options)
        self._inbox = ""
        self._subscriptions = 0
        self._requests = 0

    @classmethod
    def open(cls, servers: str | Sequence[str] | ConnectionOptions, **options: object) -> Self:
        """Connect to the first of *servers* that answers; *options* are the arguments of `ConnectionOptions.of`.

        Raises:
            ConnectionLostError: when none does.
            StreamError: when a server refuses the credentials.
        """
        connection_options = (
            servers if isinstance(servers, ConnectionOptions) else ConnectionOptions.of(servers, **options)
        )
        connection = cls(connection_options)
        connection.connect()
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection {self.server or 'closed'}>"

    # -- opening and closing

    def connect(self) -> None:
        """Connect to the first server that answers, in one round over them all."""
        self.close()
        failures = []
        for server in self.options.servers:
            try:
                self.dial(server)
            except (OSError, ConnectionLostError) as failure:
                self.close()
                failures.append(f"{server}: {reason_of(failure)}")
            except BaseException:
                self.close()
                raise
            else:
                return
        raise ConnectionLostError("no NATS server can be reached: " + "; ".join(failures))

    def reconnect(self, deadline: float | None = None) -> None:
        """Connect again, with growing pauses, until ``time.monotonic()`` passes *deadline*.

        Raises:
            ConnectionLostError: the last one, when the time is over.
        """
        until = deadline or self.retry_window().until
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                self.connect()
            except ConnectionLostError:
                if time.monotonic() + pause >= until:
                    raise
                time.sleep(spread(pause, 0.5))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            else:
                return

    def retry_window(self) -> RetryWindow:
        """Return a window of ``reconnect_timeout`` for a caller that retries by itself."""
        return RetryWindow(self.options.reconnect_timeout)

    def close(self) -> None:
        """Close the socket; calling it again does nothing."""
        super().close()
        self._inbox = ""

    # -- messages

    def messages(self, deadline: float) -> Iterator[Message]:
        """Yield messages as they arrive, until *deadline*.

        Raises:
            RequestTimeoutError: at the deadline.
            ConnectionLostError: the connection is lost, or the server violates the protocol.
        """
        while True:
            line = self.line(deadline)
            if not line.startswith((b"MSG ", b"HMSG ")):
                self.control(line)
                continue
            yield self._message(line, deadline)

    def _message(self, line: bytes, deadline: float) -> Message:
        """Read the message announced by *line*."""
        with self.reading():
            parsed = MessageLine.parse(line, self.largest_message)
        end = parsed.total
        while len(self._buffer) < end + 2:
            self.more(deadline)
        with self.reading():
            if self._buffer[end : end + 2] != b"\r\n":
                raise BrokenFrameError("message", f"it does not end after its {end} bytes", line)
        body = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return Message(parsed.subject, parsed.reply, body[: parsed.head], body[parsed.head :])

    # -- subjects and requests

    def new_inbox(self) -> str:
        """Return a new unique inbox subject."""
        return f"{self.options.inbox_prefix}.{secrets.token_hex(11)}"

    def subscribe(self, subject: str) -> int:
        """Subscribe this connection, and give the subscription's number."""
        self._subscriptions += 1
        self.send(b"SUB %b %d\r\n" % (subject.encode(), self._subscriptions))
        return self._subscriptions

    def unsubscribe(self, number: int) -> None:
        """End a subscription; messages in flight still arrive."""
        self.send(b"UNSUB %d\r\n" % number)

    def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: Sequence[tuple[str, bytes | str]] = ()
    ) -> None:
        """Send one message and wait for nothing."""
        self.send(frame(subject, payload, reply, encode(headers)))

    def api_subject(self, request: str) -> str:
        """Return the subject of an API request: ``STREAM.INFO.ORDERS`` under the prefix."""
        return f"{self.options.api_prefix}.{request}"

    def publish_api(self, request: str, payload: bytes, reply: str) -> None:
        """Send an API request whose answers arrive on the subscription to *reply*."""
        self.publish(self.api_subject(request), payload, reply)

    def ping(self, timeout: float | None = None) -> bool:
        """Return True if the server answers in time. Messages received meanwhile are discarded."""
        deadline = time.monotonic() + (timeout or self.options.timeout)
        try:
            self._pings += 1
            self.send(b"PING\r\n")
            while self._pings:
                line = self.line(deadline)
                if line.startswith((b"MSG ", b"HMSG ")):
                    self._message(line, deadline)
                else:
                    self.control(line)
        except (TimeoutError, ConnectionLostError):
            return False
        return True

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, bytes | str] | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a request and wait for one answer.

        Lost connections are opened again and the request is sent again, so a request may reach the server twice.

        Raises:
            NoRespondersError: the subject has no subscribers.
            RequestTimeoutError: a server that is alive does not answer (ADR-19: either means a wrong prefix or a
                missing import).
            ConnectionLostError: when the server is away, or frozen, longer than ``reconnect_timeout``.
        """
        retries = self.retry_window()
        until = retries.until
        while True:
            try:
                if self._socket is None:
                    self.reconnect(until)
                return self._ask(subject, payload, headers or {}, timeout or self.options.timeout)
            except TimeoutError:
                if self._was_alive():
                    hint = "" if self.options.api_prefix == "$JS.API" else f" (prefix {self.options.api_prefix!r}?)"
                    raise RequestTimeoutError(f"no answer on {subject!r} in time{hint}", code=408) from None
                server = self.server
                self.close()
                if retries.is_over:
                    raise ConnectionLostError(f"{server} answered nothing in time, not even a PING") from None
            except ConnectionLostError:
                if retries.is_over:
                    raise

    def _was_alive(self) -> bool:
        """Return True if the server worked while `_ask` waited for it, and does now.

        One that was frozen, as by a paused machine or a stalled disk, may answer a PING as soon as it continues; it has
        lost nothing, so the same request has an answer then.
        """
        return self._pings == 0 and self.ping(min(_PROMPT_SECONDS, self.options.timeout))

    def _ask(self, subject: str, payload: bytes, headers: Mapping[str, bytes | str], timeout: float) -> Message:
        if not self._inbox:
            self._inbox = self.new_inbox()
            self.subscribe(f"{self._inbox}.*")
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        # The PONG distinguishes a server that does not answer from one that does not run.
        self._pings += 1
        self.send(frame(subject, payload, reply, encode(tuple(headers.items()))) + b"PING\r\n")
        for message in self.messages(time.monotonic() + timeout):
            if message.subject == reply:
                if (status := message.status) is not None and status.code == NO_RESPONDERS:
                    raise NoRespondersError(subject)
                return message
        raise AssertionError("messages() ends by raising only")

    def api(self, subject: str, body: JsonMapping | None = None, timeout: float | None = None) -> JsonObject:
        """Send a JetStream API request; *subject* is the part after the prefix (``STREAM.INFO.ORDERS``).

        Raises:
            StreamError: when it answers with an error; ``code`` and ``err_code`` are the server's.
        """
        answer = self.request(self.api_subject(subject), json.dumps(body).encode() if body else b"", timeout=timeout)
        response = read_object(answer.payload or b"{}", request=subject)
        if "error" in response:
            raise api_error(response["error"], request=subject)
        return response
