"""One HTTP exchange within limits: a total time, from the look-up of the host to the last byte, and a size.

The timeouts of Python's clients are those of one read: a server that sends a byte now and then holds its caller for
ever, and one that never ends its answer takes all memory.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import time
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from turnout.base.background import run_once

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_Address: TypeAlias = tuple[int, int, int, str, tuple[object, ...]]
"""Address of a host as the system's resolver gives it."""


def is_loopback(host: str) -> bool:
    """Return True if *host* is this machine's loopback. Of names, ``localhost`` alone is trusted.

    >>> [is_loopback(host) for host in ("127.0.0.1", "[::1]", "localhost", "0.0.0.0", "[::]", "127.0.0.1.example")]
    [True, True, True, False, False, False]
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_of(address: str) -> str:
    """Return the host of ``host:port``.

    >>> host_of("[::1]:8080"), host_of("db.example:8080")
    ('::1', 'db.example')
    """
    return urlsplit(f"//{address}").hostname or ""


_HEAD_BYTES: Final = 256 << 10
"""Bytes of headers, and of whatever else is around a body."""

_REDIRECTS: Final = (301, 302, 303, 307, 308)


class AnswerTooLargeError(OSError):
    """Raised when an answer has more bytes than are read."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Answer of a server.

    Attributes:
        status: its status.
        reason: its reason phrase.
        headers: all headers in order.
        body: its whole body.
    """

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def exchange(
    url: str,
    *,
    seconds: float,
    max_bytes: int,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    proxies: bool = True,
    redirects: int = 0,
) -> HttpAnswer:
    """Send a request and return the whole answer, whatever its status.

    Args:
        url: ``http://`` or ``https://``.
        seconds: for everything, redirects included.
        max_bytes: bytes of a body that are read.
        method: method of the request.
        headers: headers of the request, without those of the connection.
        body: body of the request.
        tls: context of encrypted connections; the system's authorities if not given.
        proxies: whether the environment's proxies are used.
        redirects: redirects that are followed; never from https:// to http://.

    Raises:
        TimeoutError: the answer is not there in time.
        AnswerTooLargeError: it has more bytes than are read.
        OSError: the server cannot be reached, or does not speak HTTP.
    """
    deadline = _Deadline(seconds)
    try:
        while True:
            answer = _exchange(_Request(url, method, headers or {}, body, tls, proxies), deadline, max_bytes)
            location = next((value for name, value in answer.headers if name.lower() == "location"), None)
            if answer.status not in _REDIRECTS or not redirects or location is None:
                return answer
            following = urljoin(url, location)
            if url.startswith("https:") and not following.startswith("https:"):
                raise ConnectionError(f"the server redirects to {following!r:.200}, which is not https://")
            url, redirects = following, redirects - 1
    except (HTTPException, ValueError) as failure:
        raise ConnectionError(f"no HTTP answer: {type(failure).__name__}: {failure}") from failure


@dataclass(frozen=True, slots=True)
class _Request:
    url: str
    method: str
    headers: Mapping[str, str]
    body: bytes | None
    tls: ssl.SSLContext | None
    proxies: bool


class _Deadline:
    """End of the time of an exchange."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left.

        Raises:
            TimeoutError: none are.
        """
        left = self._at - time.monotonic()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> TimeoutError:
        """Return the error of an exchange that takes longer."""
        return TimeoutError(f"no whole answer within {self._seconds:g} s")


def _exchange(request: _Request, deadline: _Deadline, max_bytes: int) -> HttpAnswer:
    parts = urlsplit(request.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConnectionError(f"expected http:// or https:// and a host, found {request.url!r:.200}")
    with contextlib.ExitStack() as resources:
        connection = _Connection(parts, request, deadline, max_bytes + _HEAD_BYTES, resources)
        try:
            connection.request(request.method, connection.target, request.body, connection.headers_of(request.headers))
            response = connection.getresponse()
            content = response.read(max_bytes + 1)
            if len(content) > max_bytes:
                raise AnswerTooLargeError(f"the answer has more than {max_bytes:,} bytes")
            encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
            if encoding not in ("", "identity"):
                raise ConnectionError(f"the answer is encoded as {encoding!r:.40}, which was not asked for")
            return HttpAnswer(response.status, response.reason, tuple(response.getheaders()), content)
        except TimeoutError:
            raise deadline.error() from None


class _Connection(HTTPConnection):
    """Connection whose reads end with the time, and with the size, of one exchange."""

    def __init__(
        self,
        parts: SplitResult,
        request: _Request,
        deadline: _Deadline,
        max_bytes: int,
        resources: contextlib.ExitStack,
    ) -> None:
        self._deadline = deadline
        self._resources = resources
        self._max_bytes = max_bytes
        self._tls = (request.tls or ssl.create_default_context()) if parts.scheme == "https" else None
        host, port = str(parts.hostname), parts.port or (443 if self._tls else 80)
        self._name = host
        path = parts.path or "/"
        self.target = f"{path}?{parts.query}" if parts.query else path
        self._host_header = parts.netloc.rpartition("@")[2]
        self._proxy_headers: dict[str, str] = {}
        proxy = _proxy_of(parts) if request.proxies else None
        if proxy is None:
            super().__init__(host, port)
            return
        if proxy.username is not None:
            login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
            self._proxy_headers["Proxy-Authorization"] = f"Basic {b64encode(login).decode()}"
        super().__init__(str(proxy.hostname), proxy.port or 80)
        if self._tls is not None:
            self.set_tunnel(host, port, self._proxy_headers)
            self._proxy_headers = {}
        else:
            self.target = f"http://{self._host_header}{self.target}"

    def headers_of(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of the request: an answer in an encoding could be any size."""
        own = {"Host": self._host_header, "Accept-Encoding": "identity", "Connection": "close", **self._proxy_headers}
        taken = {name.lower() for name in own} | {"content-length", "transfer-encoding"}
        return {**own, **{name: value for name, value in headers.items() if name.lower() not in taken}}

    def connect(self) -> None:
        """Connect, over the proxy's tunnel if there is one, and do the handshake of TLS."""
        plain = self._resources.enter_context(_connected(self.host, self.port, self._deadline))
        sock: Any = _LimitedSocket(plain, self._deadline, self._max_bytes)
        self.sock = sock
        if getattr(self, "_tunnel_host", None):
            self._tunnel()  # type: ignore[attr-defined]  # as HTTPSConnection does it
        if self._tls is not None:
            plain.settimeout(self._deadline.left())
            secure = self._resources.enter_context(self._tls.wrap_socket(plain, server_hostname=self._name))
            sock = _LimitedSocket(secure, self._deadline, self._max_bytes)
            self.sock = sock


class _LimitedSocket:
    """Socket as `http.client` uses it."""

    def __init__(self, sock: socket.socket, deadline: _Deadline, max_bytes: int) -> None:
        self._sock = sock
        self._deadline = deadline
        self._max_bytes = max_bytes

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left())
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_LimitedReader(self._sock, self._deadline, self._max_bytes))

    def close(self) -> None:
        """Do nothing: `http.client` closes it before the body is read, and the exchange when it is over."""


class _LimitedReader(io.RawIOBase):
    """Bytes of a socket, until the time is over or there are too many."""

    def __init__(self, sock: socket.socket, deadline: _Deadline, max_bytes: int) -> None:
        self._sock = sock
        self._deadline = deadline
        self._left = max_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._sock.settimeout(self._deadline.left())
        count = self._sock.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise AnswerTooLargeError("the answer has more bytes than are read")
        return count


def _connected(host: str, port: int, deadline: _Deadline) -> socket.socket:
    """Connect to the first address of a host that answers, each with its share of the time."""
    addresses = _addresses(host, port, deadline)
    failure: OSError | None = None
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.left() / (len(addresses) - number))
            sock.connect(address)
        except OSError as problem:
            sock.close()
            failure = problem
        except BaseException:
            sock.close()
            raise
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise failure or ConnectionError(f"{host} has no address")


def _addresses(host: str, port: int, deadline: _Deadline) -> list[_Address]:
    """Look a host up on a thread: the system's resolver knows no limit of time."""
    found: list[list[_Address]] = []
    problems: list[Exception] = []

    def look_up() -> None:
        try:
            found.append(list(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)))
        except (OSError, ValueError) as problem:
            problems.append(problem)

    run_once("look-up of a host", look_up).join(deadline.left())
    if problems:
        raise problems[0]
    if not found:
        raise deadline.error()
    return found[0]


def _proxy_of(parts: SplitResult) -> SplitResult | None:
    """Return the environment's proxy for a URL; None for none."""
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(str(parts.hostname)):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")
