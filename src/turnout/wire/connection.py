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
from turnout.protocol.answers import read_object
from turnout.protocol.errors import BrokenFrameError, NoRespondersError, RequestTimeoutError, api_error
from turnout.protocol.frames import LONGEST_LINE, MessageLine, ServerError, largest_message, read_info
from turnout.protocol.headers import encode
from turnout.protocol.options import ConnectionOptions
from turnout.protocol.servers import Server
from turnout.protocol.status import NO_RESPONDERS, read_status
from turnout.protocol.tls import Tls, begins_tls

__all__ = ["Connection", "Message"]

_RECEIVE = 1 << 18
# How long past its deadline a call takes what has come already.
_GRACE = 1.0


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
        return read_status(self.headers) if self.headers and not self.payload else None


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
        with self.reading():
            return read_info(line[5:])

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

    def _late(self) -> RequestTimeoutError:
        return RequestTimeoutError(f"{self.server} did not answer in time", code=408)

    def _more(self, deadline: float) -> None:
        """Append at least one byte to the buffer."""
        sock = self._plain()
        try:
            # A deadline that is over still takes what has come already.
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(_RECEIVE)
        except TimeoutError as failure:
            raise self._late() from failure
        except OSError as failure:
            raise self._lost(failure) from failure
        if not data:
            raise self._lost(None)
        self._buffer += data

    def _line(self, deadline: float) -> bytes:
        # A server that never stops talking, but does not answer, must not hold anybody for ever.
        if time.monotonic() > deadline + _GRACE:
            raise self._late()
        looked = 0
        while (end := self._buffer.find(b"\r\n", max(0, looked - 1))) < 0:
            looked = len(self._buffer)
            if looked > LONGEST_LINE:
                with self.reading():
                    raise BrokenFrameError("line", f"{looked} bytes without an end", bytes(self._buffer[:60]))
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
            with self.reading():
                self.info = {**self.info, **read_info(rest)}
        elif word == b"-ERR":
            self._refuse(ServerError.parse(rest))
        elif word not in (b"PONG", b"+OK"):
            with self.reading():
                raise BrokenFrameError("control", "it is no NATS protocol", line)

    def _refuse(self, error: ServerError) -> None:
        server = self.server
        if error.closes:
            self.close()
        if error.passing:
            raise ConnectionLostError(f"{server} ended the connection: {error.text}")
        raise StreamError(f"{server} refused: {error.text}", code=error.code)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Close the connection where the block finds a frame broken, and say which server sent it."""
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

    def messages(self, deadline: float) -> Iterator[Message]:
        """The messages as they come, until *deadline*.

        Raises:
            RequestTimeoutError: at the deadline.
            ConnectionLostError: when the server is gone, or sends what is no message.
        """
        while True:
            line = self._line(deadline)
            if not line.startswith((b"MSG ", b"HMSG ")):
                self.control(line)
                continue
            yield self._message(line, deadline)

    def _message(self, line: bytes, deadline: float) -> Message:
        """The message whose *line* came."""
        with self.reading():
            parsed = MessageLine.parse(line, self.largest_message)
        end = parsed.total
        while len(self._buffer) < end + 2:
            self._more(deadline)
        with self.reading():
            if self._buffer[end : end + 2] != b"\r\n":
                raise BrokenFrameError("message", f"it does not end after its {end} bytes", line)
        body = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return Message(parsed.subject, parsed.reply, body[: parsed.head], body[parsed.head :])

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
        self.send(frame(subject, payload, reply, encode(headers)))

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
                    self._message(line, deadline)
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
            NoRespondersError: nobody listens.
            RequestTimeoutError: a server that is alive does not answer (ADR-19: either means a wrong prefix or a
                missing import).
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
                    raise RequestTimeoutError(f"nobody answered on {subject!r} in time{hint}", code=408) from None
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
                if (status := message.status) is not None and status[0] == NO_RESPONDERS:
                    raise NoRespondersError(subject)
                return message
        raise AssertionError("messages() ends by raising only")

    def api(self, subject: str, body: Mapping[str, Any] | None = None, timeout: float | None = None) -> dict[str, Any]:
        """Ask the JetStream API: *subject* is what stands behind the prefix (``STREAM.INFO.ORDERS``).

        Raises:
            StreamError: when it answers with an error; ``code`` and ``err_code`` are the server's.
        """
        full = f"{self.options.api_prefix}.{subject}"
        answer = self.request(full, json.dumps(body).encode() if body else b"", timeout=timeout)
        response = read_object(answer.payload or b"{}", asked=subject)
        if "error" in response:
            raise api_error(response["error"], asked=subject)
        return response


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
