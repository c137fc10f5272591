"""HTTP client of the dispatcher: requests over kept connections, with limits of time and size, and without redirects.

Our own, as a general client spends most of a delivery's time: `docs/decisions/0030-a-client-for-webhooks.md`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self, TypeVar, cast

from aiohappyeyeballs import AddrInfoType, start_connection
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from yarl import URL

from turnout.base.background import Tasks
from turnout.delivery.guard import (
    AddressGuard,
    ForbiddenAddressError,
    GuardedResolver,
    LookupLimits,
    LookupResolver,
    Network,
    Proxies,
    Proxy,
)

NO_PROXIES: Final = Proxies()

_RESOLVED_SECONDS: Final = 10.0
_REMEMBERED: Final = 10_000
_NEXT_ADDRESS_SECONDS: Final = 0.25

T = TypeVar("T")
_Origin = tuple[bool, str, int, ssl.SSLContext | None]


class Client:
    """Sends requests; used as an asynchronous context manager.

    Args:
        allowed: networks that are reached although they are not public.
        tls: context of encrypted connections; the system's authorities if not given.
        proxies: proxies of the connections; none if not given.
    """

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        tls: ssl.SSLContext | None = None,
        proxies: Proxies = NO_PROXIES,
    ) -> None:
        self._proxies = proxies
        self._guard = AddressGuard(allowed)
        self._resolvers: dict[bool, GuardedResolver] = {}
        self._tls = tls
        self._kept: dict[_Origin, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._resolved: dict[_Origin, tuple[float, asyncio.Task[list[AddrInfoType]]]] = {}
        self._tasks = Tasks("a request over HTTP")
        self._lookups = LookupLimits()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._resolvers = {
            encrypted: GuardedResolver(self._guard, encrypted=encrypted, resolver=LookupResolver())
            for encrypted in (True, False)
        }
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        await self._tasks.cancel()
        for connection in tuple(self._open):
            connection.close()
        for resolver in self._resolvers.values():
            await resolver.close()
        # Transports close with the next turns of the loop.
        await asyncio.sleep(0)

    async def post(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout: float,
        max_response: int,
        owner: str = "",
        wants_content: bool = False,
    ) -> Response:
        """Send a request and wait for its response; the arguments are those of `send`."""
        outcome: asyncio.Future[Response] = self._loop.create_future()

        def done(response: Response) -> None:
            if not outcome.done():
                outcome.set_result(response)

        self.send(
            target,
            headers,
            body,
            timeout=timeout,
            max_response=max_response,
            done=done,
            owner=owner,
            wants_content=wants_content,
        )
        return await outcome

    def send(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout: float,
        max_response: int,
        done: Callable[[Response], None],
        owner: str = "",
        wants_content: bool = False,
    ) -> bool:
        """Send a request; *done* gets its response, or a failure if there is none. Return False if none can be sent.

        Args:
            target: target of the request.
            headers: all of them but those of the connection.
            body: as it is sent.
            timeout: seconds for everything, from the connection to the last byte that is read.
            max_response: bytes that are read of the response's body; the connection is closed if there are more.
            done: called once, never before this returns; not called if the client is closed before.
            owner: tenant of the request, whose look-ups of names are limited together; "" for none.
            wants_content: whether the response has its headers and its whole body.
        """
        try:
            request = target.request(headers, body)
        except ValueError as problem:
            self._loop.call_soon(done, Response.failure(problem, is_sent=False))
            return False
        exchange = Exchange(
            target, request, timeout, self._loop.time() + timeout, max_response, done, owner, wants_content
        )
        kept = self._kept.get(target.origin)
        if kept:
            kept.pop().begin(exchange)
        else:
            self.send_anew(exchange)
        return True

    # -- for connections

    def keep(self, connection: Connection) -> None:
        """Take a connection that may have another request."""
        self._kept.setdefault(connection.target.origin, []).append(connection)

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is closed."""
        self._open.discard(connection)
        kept = self._kept.get(connection.target.origin)
        if kept and connection in kept:
            kept.remove(connection)
            if not kept:
                del self._kept[connection.target.origin]

    def send_anew(self, exchange: Exchange) -> None:
        """Send a request over a new connection."""
        if not self._is_closed:
            self._spawn(self._sent_anew(exchange))

    # -- new connections

    def _spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        return self._tasks.start(work)

    async def _sent_anew(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout_at(exchange.deadline):
                connection = await self._connected(exchange.target, exchange.owner)
        except TimeoutError:
            exchange.done(exchange.late)
        except Exception as failure:  # noqa: BLE001 - without an outcome the delivery would wait for ever
            exchange.done(Response.failure(f"{failure}" or type(failure).__name__))
        else:
            self._open.add(connection)
            connection.begin(exchange)

    async def _connected(self, target: Target, owner: str) -> Connection:
        """Connect to an address that was checked.

        Raises:
            ForbiddenAddressError: none of the host's may be reached.
            OSError: the name cannot be resolved, the connection is refused, or the certificate is not that of the host.
        """
        problem = self._guard.url_problem(target.url)
        if problem is not None:
            raise ForbiddenAddressError(problem)
        proxy = self._proxies.of(target.url.scheme, target.host)
        if proxy is not None:
            return await self._tunnelled(target, owner, proxy)
        addresses = await self._addresses(target, owner)
        connected = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS)
        secure: dict[str, Any] = {}
        if target.is_encrypted:
            secure = {"ssl": target.tls or self._tls, "server_hostname": target.host}
        try:
            _, connection = await self._loop.create_connection(
                lambda: Connection(target, self), sock=connected, **secure
            )
        except BaseException:
            connected.close()
            raise
        return connection

    async def _tunnelled(self, target: Target, owner: str, proxy: Proxy) -> Connection:
        """Connect through a proxy: to an address that was checked, unless the proxy looks names up.

        Raises:
            ForbiddenAddressError: none of the host's may be reached, or http:// by a name that is not checked here.
            OSError: the proxy cannot be reached, or opens no tunnel.
        """
        host = target.host
        if not self._proxies.resolves:
            host = str((await self._addresses(target, owner))[0][4][0])
        elif not target.is_encrypted:
            raise ForbiddenAddressError("http:// leads to allowed networks alone, and the proxy looks the name up")
        transport = await proxy.tunnel(host, target.port, self._tls)
        connection = Connection(target, self)
        try:
            transport.set_protocol(connection)
            if target.is_encrypted:
                context = target.tls or self._tls
                assert context is not None
                secure = await self._loop.start_tls(transport, connection, context, server_hostname=target.host)
                assert secure is not None
                transport = secure
            connection.connection_made(transport)
        except BaseException:
            transport.abort()
            raise
        return connection

    async def _addresses(self, target: Target, owner: str) -> list[AddrInfoType]:
        """Return the addresses of a host; concurrent callers share the answer."""
        now = self._loop.time()
        until, resolving = self._resolved.get(target.origin, (0.0, None))
        if resolving is None or until < now or (resolving.done() and (resolving.cancelled() or resolving.exception())):
            if len(self._resolved) >= _REMEMBERED:
                self._resolved.clear()
            resolving = self._spawn(self._resolve(target, owner))
            # The caller may have given up before it fails.
            resolving.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            self._resolved[target.origin] = now + _RESOLVED_SECONDS, resolving
        return list(await asyncio.shield(resolving))

    async def _resolve(self, target: Target, owner: str) -> list[AddrInfoType]:
        resolver = self._resolvers[target.is_encrypted]
        async with self._lookups.slot(owner, target.host):
            found = await resolver.resolve(target.host, target.port, socket.AF_UNSPEC)
        return [_address(one["family"], one["host"], one["port"]) for one in found]


def _address(family: int, host: str, port: int) -> AddrInfoType:
    where = (host, port, 0, 0) if family == socket.AF_INET6 else (host, port)
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", where


_IDLE_SECONDS: Final = 30.0
_BUFFER_BYTES: Final = 4_096
"""Bytes of one read: most responses are shorter."""

_CLOSED: Final = "the endpoint closed the connection before its response"


@dataclass(slots=True, eq=False)
class Exchange:
    """One request with the callback for its response.

    Attributes:
        target: target of the request.
        request: its bytes.
        timeout: seconds for everything, from the connection to the last byte that is read.
        deadline: when they are over, by the loop's clock.
        max_response: bytes that are read of the body.
        done: called once with the outcome, and never before the call that sent the request has returned.
        owner: tenant of the request; "" for none.
        wants_content: whether the response has its headers and its whole body.
    """

    target: Target
    request: bytes
    timeout: float
    deadline: float
    max_response: int
    done: Callable[[Response], None]
    owner: str = ""
    wants_content: bool = False

    @property
    def late(self) -> Response:
        """The outcome if the time is over."""
        return Response.failure(f"no response within {self.timeout:g} s")


class Pool(Protocol):
    """Keeper of connections."""

    def keep(self, connection: Connection) -> None:
        """Take a connection that may have another request."""

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is closed."""

    def send_anew(self, exchange: Exchange) -> None:
        """Send a request over a new connection, as its endpoint has closed a kept one before it had the request."""


class Connection(asyncio.BufferedProtocol):
    """HTTP/1.1 connection to one origin.

    It has its own small buffer: without one, asyncio allocates 256 KiB for each read, which takes longer than a
    request. One timer serves all its requests and the time without any: it is set anew only when it runs out, or for an
    earlier moment.

    Args:
        target: its origin.
        pool: keeps it between requests.
    """

    def __init__(self, target: Target, pool: Pool) -> None:
        self.target = target
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._reader = ResponseReader()
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._was_kept = False

    def begin(self, exchange: Exchange) -> None:
        """Send a request."""
        if self._transport is None:
            # Closed by its endpoint as soon as it was open, and before this was called.
            exchange.done(Response.failure(_CLOSED))
            return
        self._exchange = exchange
        self._reader.begin(exchange.max_response, wants_content=exchange.wants_content)
        self._set_deadline(exchange.deadline)
        self._transport.write(exchange.request)

    def close(self) -> None:
        """Close it at once; a request that is under way gets no outcome."""
        self._exchange = None
        self._drop()

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - a part of the protocol
        """Return the buffer of the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read the endpoint's bytes; without a request close, as the next response could be another's."""
        if self._exchange is None:
            self._drop()
            return
        response = self._reader.feed(self._buffer[:nbytes])
        if response is not None:
            self._finish(response, keep=self._reader.is_reusable)

    def connection_lost(self, failure: Exception | None) -> None:
        """End the request that is under way."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._pool.forget(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        response = self._reader.end()
        if response is not None:
            exchange.done(response)
        elif self._was_kept and self._reader.is_empty:
            self._pool.send_anew(exchange)
        else:
            exchange.done(Response.failure(failure or _CLOSED))

    def _finish(self, response: Response, *, keep: bool) -> None:
        exchange, self._exchange = self._exchange, None
        if keep:
            self._was_kept = True
            self._set_deadline(self._loop.time() + _IDLE_SECONDS)
            self._pool.keep(self)
        else:
            self._drop()
        if exchange is not None:
            exchange.done(response)

    def _drop(self) -> None:
        self._pool.forget(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            # Not closed in order, which would wait for an endpoint that takes nothing.
            self._transport.abort()

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._time_over)

    def _time_over(self) -> None:
        self._timer = None
        if self._loop.time() < self._deadline:
            self._set_deadline(self._deadline)
        elif self._exchange is not None:
            self._finish(self._exchange.late, keep=False)
        else:
            self._drop()


GONE: Final = 410
"""Status of an endpoint that is gone for good."""

_HEAD: Final = 16_384
"""Bytes of headers, and of whatever else is around a body."""

_KEPT_BYTES: Final = 200
"""Bytes of a failed response that an attempt keeps."""


@dataclass(frozen=True, slots=True)
class Response:
    """Outcome of one request.

    Attributes:
        status: status of the response; None without one.
        retry_after: value of Retry-After.
        error: the failure; the beginning of the body of a response that is no success.
        is_sent: False if no request could be made, which says nothing about the endpoint.
        headers: headers by their names in lower case; none unless they were asked for.
        body: body as far as it was read; empty unless it was asked for.
        is_disabled: True if no request was made, as the endpoint is disabled; the error says by what.
    """

    status: int | None
    retry_after: str = ""
    error: str = ""
    is_sent: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_disabled: bool = False

    @property
    def is_success(self) -> bool:
        """True if the endpoint has taken the message."""
        return self.status is not None and 200 <= self.status < 300

    @classmethod
    def failure(cls, why: object, *, is_sent: bool = True) -> Response:
        """Return the outcome of a request without a response."""
        return cls(None, error=f"{why}"[:_KEPT_BYTES], is_sent=is_sent)


class ResponseReader:
    """Reads the responses of one connection, one after the other.

    Unless the content is asked for, nothing is kept of headers but Retry-After, and nothing of bodies but the
    beginning: an endpoint cannot make it use memory.
    """

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self.begin(0)

    def begin(self, max_body: int, *, wants_content: bool = False) -> None:
        """Expect the next response.

        Args:
            max_body: bytes of its body that are read.
            wants_content: whether its headers and its body are kept.
        """
        self._headers: dict[str, str] | None = {} if wants_content else None
        self._kept = max(max_body, _KEPT_BYTES) if wants_content else _KEPT_BYTES
        self._max_body = max_body
        self._left = max_body + _HEAD
        self._status = 0
        self._retry_after = b""
        self._body = b""
        self._length = 0
        self._has_end = False
        self._is_whole = False
        self.is_empty = True
        self.is_reusable = False

    def feed(self, data: bytes | memoryview) -> Response | None:
        """Read received bytes; return the response once enough of it has arrived.

        Afterwards, `is_reusable` says whether the connection may have another request.
        """
        self.is_empty = False
        self._left -= len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            return Response.failure("the endpoint switches to another protocol")
        except HttpParserError as problem:
            return self._response() if self._is_whole else Response.failure(f"no HTTP response: {problem}")
        if self._is_whole:
            return self._response()
        if self._length > self._max_body or (self._left < 0 and self._status):
            return self._response()
        return Response.failure(f"a response with over {_HEAD:,} bytes of headers") if self._left < 0 else None

    def end(self) -> Response | None:
        """Return the response whose end is that of the connection; None if it is not whole."""
        return self._response() if self._status and not self._has_end else None

    def _response(self) -> Response:
        if self._status < 300 and self._headers is None:
            return Response(self._status)
        text = "" if self._status < 300 else self._body[:_KEPT_BYTES].decode("utf-8", "replace")
        retry_after = self._retry_after[:100].decode("latin-1")
        if self._headers is None:
            return Response(self._status, retry_after, text)
        return Response(self._status, retry_after, text, headers=self._headers, body=self._body)

    # -- called by the parser

    def on_message_begin(self) -> None:
        """Check for excess bytes: they could be taken for the answer to the next request."""
        if self._is_whole:
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer."""
        if self._is_whole:
            return
        lowered = name.lower()
        if lowered in (b"content-length", b"transfer-encoding"):
            self._has_end = True
        elif lowered == b"retry-after":
            self._retry_after = value
        if self._headers is not None:
            self._headers.setdefault(lowered.decode("latin-1"), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        """Take the status of a final response; others, as 103, precede it."""
        if self._is_whole:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
        else:
            self._has_end, self._retry_after = False, b""
            if self._headers is not None:
                self._headers = {}

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self._is_whole:
            return
        self._length += len(body)
        if len(self._body) < self._kept:
            self._body += body[: self._kept - len(self._body)]

    def on_message_complete(self) -> None:
        """Note that the response is whole."""
        if self._status and not self._is_whole:
            self._is_whole = True
            self.is_reusable = self._parser.should_keep_alive()


@dataclass(frozen=True, slots=True)
class Target:
    """URL of an endpoint, and what each request to it begins with.

    Attributes:
        url: as it was given.
        host: name or address, without brackets.
        port: the port.
        head: request line and Host.
        tls: context of its connections, with a client's certificate; None for that of all others.
    """

    url: URL
    host: str
    port: int
    head: str
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: URL, *, method: str = "POST", tls: ssl.SSLContext | None = None) -> Self:
        """Take a URL apart.

        Args:
            url: URL of the requests.
            method: method of the requests.
            tls: context of its connections, with a client's certificate; None for that of all others.

        Raises:
            ValueError: it has no host, or a character that would end the request line.
        """
        host, port = url.raw_host, url.port
        if not host or port is None or url.scheme not in ("http", "https"):
            raise ValueError("expected http:// or https:// and a host")
        path = url.raw_path_qs if url.raw_path_qs.startswith("/") else f"/{url.raw_path_qs}"
        head = f"{method} {path} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        if not head.isascii() or head.count(" ") != 3 or _breaks(head) != 2:
            raise ValueError("expected visible ASCII characters, and others percent-encoded")
        return cls(url, host.rstrip("."), port, head, tls)

    @property
    def is_encrypted(self) -> bool:
        """True for TLS."""
        return self.url.scheme == "https"

    @property
    def origin(self) -> _Origin:
        """Key of the connections that may be used for it: those with another certificate are others."""
        return self.is_encrypted, self.host, self.port, self.tls

    def request(self, headers: Mapping[str, str], body: bytes) -> bytes:
        r"""Return the bytes of a request.

        Args:
            headers: all but Host and Content-Length.
            body: its body.

        Raises:
            ValueError: a header has a line break.

        >>> Target.of(URL("https://hooks.example/in?x=1")).request({"Content-Type": "text/plain"}, b"hi")
        b'POST /in?x=1 HTTP/1.1\r\nHost: hooks.example\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi'
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if _breaks(lines) != len(headers):
            raise ValueError("a header with a line break is not sent")
        return b"%bContent-Length: %d\r\n\r\n%b" % ((self.head + lines).encode(), len(body), body)


def _breaks(text: str) -> int:
    """Return the number of line breaks, or -1 for a control character that is none of them."""
    count = text.count("\r\n")
    return count if text.count("\r") == text.count("\n") == count and "\0" not in text else -1
