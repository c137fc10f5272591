"""One blocking connection to NATS: the handshake, requests, and the bytes as they come.

It belongs to one thread. There is no reader in the background: nothing is read but while a call waits, and
what the server asks meanwhile (PING) is answered by the next call that reads.
"""

from __future__ import annotations

import contextlib
import json
import random
import secrets
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from turnout._version import __version__
from turnout.errors import ConnectionLostError, StreamError
from turnout.protocol.options import ConnectionOptions
from turnout.protocol.servers import Server
from turnout.protocol.tls import Tls, begins_tls
from turnout.wire import headers as _headers

__all__ = ["Connection", "Message"]

_RECEIVE = 1 << 18


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it came; *headers* is the raw block, empty where there was none."""

    subject: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def status(self) -> tuple[int, str] | None:
        """The code and text where the server says something instead of delivering."""
        return _headers.status(self.headers) if self.headers and not self.payload else None


class Connection:
    """A connection that is open, or opens itself again, until it is closed.

    `request` and `api` reconnect when the connection is lost, to any of the servers, for as long as
    ``reconnect_timeout`` says. Whoever reads the raw bytes (`receive_into`) reconnects itself, because only it
    knows what it had seen.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self.info: dict[str, Any] = {}
        self.server: Server | None = None
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        self._inbox = ""
        self._subscriptions = 0
        self._requests = 0

    @classmethod
    def open(cls, servers: str | Sequence[str] | ConnectionOptions, **options: Any) -> Self:
        """Connect to the first of *servers* that answers; *options* are those of `ConnectionOptions.of`.

        Raises:
            ConnectionLostError: when none does.
            StreamError: when a server refuses the credentials.
        """
        made = servers if isinstance(servers, ConnectionOptions) else ConnectionOptions.of(servers, **options)
        connection = cls(made)
        connection.connect()
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection {self.server or 'closed'}>"

    # -- opening and closing

    @property
    def is_open(self) -> bool:
        """Whether there is a socket; a server that went away unnoticed is found by the next call."""
        return self._socket is not None

    @property
    def max_payload(self) -> int:
        """The most bytes, headers and payload together, that this server takes in one message."""
        return int(self.info.get("max_payload", 1 << 20))

    def connect(self) -> None:
        """Connect to the first server that answers, in one round over them all."""
        self.close()
        failures = []
        for server in self.options.servers:
            try:
                self._dial(server)
            except (OSError, ConnectionLostError) as failure:
                self.close()
                failures.append(f"{server}: {_reason(failure)}")
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
        until = deadline or time.monotonic() + self.options.reconnect_timeout
        pause = 0.02
        while True:
            try:
                self.connect()
            except ConnectionLostError:
                if time.monotonic() + pause >= until:
                    raise
                time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads reconnecting tasks, no secret
                pause = min(pause * 2, 1.0)
            else:
                return

    def close(self) -> None:
        """Close the socket; calling it again does nothing."""
        closing, self._socket = self._socket, None
        self._buffer.clear()
        self._inbox = ""
        self.server = None
        if closing is not None:
            with contextlib.suppress(OSError):
                closing.close()

    def _dial(self, server: Server) -> None:
        options = self.options
        raw = socket.create_connection((server.host, server.port), timeout=options.connect_timeout)
        self._socket = raw
        self.server = server
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.tls is not None and options.tls.first:
            self._start_tls(server)
        self.info = self._greeting()
        if not isinstance(self._socket, ssl.SSLSocket) and begins_tls(
            self.info, asked=options.asks_for_tls, server=server
        ):
            self._start_tls(server)
        self.send(b"CONNECT " + json.dumps(self._introduction(server)).encode() + b"\r\nPING\r\n")
        deadline = time.monotonic() + options.connect_timeout
        while True:
            line = self._line(deadline)
            if line == b"PONG":
                return
            self.control(line)

    def _start_tls(self, server: Server) -> None:
        tls = self.options.tls or Tls()
        plain = self._plain()
        # What came behind the greeting came in the clear: it is nobody's word.
        self._buffer.clear()
        try:
            self._socket = tls.context().wrap_socket(plain, server_hostname=tls.hostname or server.host)
        except ssl.SSLCertVerificationError as failure:
            raise StreamError(f"the certificate of {server} is not trusted: {failure.verify_message}") from None

    def _greeting(self) -> dict[str, Any]:
        line = self._line(time.monotonic() + self.options.connect_timeout)
        if not line.startswith(b"INFO "):
            raise ConnectionLostError("what answers there is not a NATS server")
        greeting: dict[str, Any] = json.loads(line[5:])
        return greeting

    def _introduction(self, server: Server) -> dict[str, Any]:
        fields: dict[str, Any] = {
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

    # -- bytes

    def _plain(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLostError("the connection is closed")
        return self._socket

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of *data*.

        Raises:
            ConnectionLostError: when the server is gone; how much it has got is not known.
        """
        sock = self._plain()
        try:
            sock.settimeout(self.options.timeout * 6)
            sock.sendall(data)
        except OSError as failure:
            raise self._lost(failure) from failure

    def receive_into(self, view: memoryview, timeout: float) -> int:
        """Read what is there, at least one byte, into *view*; 0 when *timeout* seconds bring nothing.

        Raises:
            ConnectionLostError: when the server is gone.
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

    def _lost(self, failure: OSError | None) -> ConnectionLostError:
        server = self.server
        self.close()
        return ConnectionLostError(
            f"the connection to {server} was lost" + (f": {_reason(failure)}" if failure else "")
        )

    def _more(self, deadline: float) -> None:
        """Append at least one byte to the buffer."""
        sock = self._plain()
        try:
            # A deadline that is over still takes what has come already.
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(_RECEIVE)
        except TimeoutError as failure:
            raise TimeoutError(f"{self.server} did not answer in time") from failure
        except OSError as failure:
            raise self._lost(failure) from failure
        if not data:
            raise self._lost(None)
        self._buffer += data

    def _line(self, deadline: float) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            self._more(deadline)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def control(self, line: bytes) -> None:
        """Act on a protocol line that is no message: answer PING, note INFO, raise what ``-ERR`` says.

        Raises:
            StreamError: for ``-ERR``: a permission, the credentials, a payload over the limit.
            ConnectionLostError: for one that is about the connection only (a stale or slow one).
        """
        word, _, rest = line.partition(b" ")
        if word == b"PING":
            self.send(b"PONG\r\n")
        elif word == b"INFO":
            self.info = {**self.info, **json.loads(rest)}
        elif word == b"-ERR":
            text = rest.strip(b"' ").decode("utf-8", "replace")
            server = self.server
            if text.startswith(("Stale Connection", "Slow Consumer", "Secure Connection")):
                self.close()
                raise ConnectionLostError(f"{server} ended the connection: {text}")
            if not text.startswith("Permissions Violation"):
                self.close()
            raise StreamError(f"{server} refused: {text}", code=403 if "iolation" in text else 400)
        elif word not in (b"PONG", b"+OK"):
            self.close()
            raise ConnectionLostError(f"a line that is no NATS protocol came: {line[:40]!r}")

    def messages(self, deadline: float) -> Iterator[Message]:
        """The messages as they come, until *deadline*.

        Raises:
            TimeoutError: at the deadline.
            ConnectionLostError: when the server is gone.
        """
        while True:
            line = self._line(deadline)
            if not line.startswith((b"MSG ", b"HMSG ")):
                self.control(line)
                continue
            parts = line.split()
            total = int(parts[-1])
            head = int(parts[-2]) if parts[0] == b"HMSG" else 0
            while len(self._buffer) < total + 2:
                self._more(deadline)
            body = bytes(self._buffer[:total])
            del self._buffer[: total + 2]
            reply = parts[3] if len(parts) == (6 if head else 5) else b""
            yield Message(parts[1].decode(), reply.decode(), body[:head], body[head:])

    # -- subjects and requests

    def new_inbox(self) -> str:
        """A subject that nobody else listens to."""
        return f"{self.options.inbox_prefix}.{secrets.token_hex(11)}"

    def subscribe(self, subject: str) -> int:
        """Subscribe this connection, and give the subscription's number."""
        self._subscriptions += 1
        self.send(b"SUB %b %d\r\n" % (subject.encode(), self._subscriptions))
        return self._subscriptions

    def unsubscribe(self, number: int) -> None:
        """End a subscription; messages that are on their way still come."""
        self.send(b"UNSUB %d\r\n" % number)

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: Sequence[tuple[str, bytes | str]] = (),
    ) -> None:
        """Send one message and wait for nothing."""
        self.send(frame(subject, payload, reply, _headers.encode(headers)))

    def ping(self, timeout: float | None = None) -> bool:
        """Whether the server answers in time. Messages that come meanwhile are thrown away."""
        deadline = time.monotonic() + (timeout or self.options.timeout)
        try:
            self.send(b"PING\r\n")
            while True:
                line = self._line(deadline)
                if line == b"PONG":
                    return True
                if line.startswith((b"MSG ", b"HMSG ")):
                    size = int(line.split()[-1]) + 2
                    while len(self._buffer) < size:
                        self._more(deadline)
                    del self._buffer[:size]
                else:
                    self.control(line)
        except (TimeoutError, ConnectionLostError):
            return False

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, bytes | str] | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Ask, and wait for one answer.

        Lost connections are opened again and the request is sent again, so a request may reach the server twice.

        Raises:
            StreamError: with code 503 when nobody listens, with code 408 when a server that is alive does not
                answer (ADR-19: either means a wrong prefix or a missing import).
            ConnectionLostError: when the server is away longer than ``reconnect_timeout``.
        """
        until = time.monotonic() + self.options.reconnect_timeout
        while True:
            try:
                if self._socket is None:
                    self.reconnect(until)
                return self._ask(subject, payload, headers or {}, timeout or self.options.timeout)
            except TimeoutError:
                if self.ping():
                    hint = "" if self.options.api_prefix == "$JS.API" else f" (prefix {self.options.api_prefix!r}?)"
                    raise StreamError(f"nobody answered on {subject!r} in time{hint}", code=408) from None
                self.close()
            except ConnectionLostError:
                if time.monotonic() >= until:
                    raise

    def _ask(self, subject: str, payload: bytes, headers: Mapping[str, bytes | str], timeout: float) -> Message:
        if not self._inbox:
            self._inbox = self.new_inbox()
            self.subscribe(f"{self._inbox}.*")
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        self.publish(subject, payload, reply, tuple(headers.items()))
        for message in self.messages(time.monotonic() + timeout):
            if message.subject == reply:
                if (status := message.status) is not None and status[0] == 503:
                    raise StreamError(f"nobody listens on {subject!r}", code=503)
                return message
        raise AssertionError("messages() ends by raising only")

    def api(self, subject: str, body: Mapping[str, Any] | None = None, timeout: float | None = None) -> dict[str, Any]:
        """Ask the JetStream API: *subject* is what stands behind the prefix (``STREAM.INFO.ORDERS``).

        Raises:
            StreamError: when it answers with an error; ``code`` and ``err_code`` are the server's.
        """
        full = f"{self.options.api_prefix}.{subject}"
        answer = self.request(full, json.dumps(body).encode() if body else b"", timeout=timeout)
        told: dict[str, Any] = json.loads(answer.payload or b"{}")
        if (wrong := told.get("error")) is not None:
            text = f"{subject}: {wrong.get('description', 'refused')}"
            raise StreamError(text, code=wrong.get("code", 0), err_code=wrong.get("err_code", 0))
        return told


def frame(subject: str, payload: bytes, reply: str = "", head: bytes = b"") -> bytes:
    """A PUB or, with a header block *head*, an HPUB frame."""
    answer = f" {reply}" if reply else ""
    if head:
        line = f"HPUB {subject}{answer} {len(head)} {len(head) + len(payload)}\r\n"
    else:
        line = f"PUB {subject}{answer} {len(payload)}\r\n"
    return b"".join([line.encode(), head, payload, b"\r\n"])


def _reason(failure: BaseException) -> str:
    if isinstance(failure, TimeoutError):
        return "no answer in time"
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    return str(failure)
