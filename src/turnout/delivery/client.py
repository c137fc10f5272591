"""HTTP client of the dispatcher: POST over kept connections, with limits of time and size, and without redirects.

Our own, as a general client spends most of a delivery's time: `docs/decisions/0030-a-client-for-webhooks.md`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from aiohappyeyeballs import AddrInfoType, start_connection

from turnout.background import Tasks
from turnout.delivery.connection import Connection, Exchange
from turnout.delivery.guard import AddressGuard, ForbiddenAddressError, GuardedResolver, Network
from turnout.delivery.lookups import LookupLimits, LookupResolver
from turnout.delivery.response import Response
from turnout.delivery.target import Target

_RESOLVED_SECONDS: Final = 10.0
_REMEMBERED: Final = 10_000
_NEXT_ADDRESS_SECONDS: Final = 0.25

T = TypeVar("T")
_Origin = tuple[bool, str, int]


class Client:
    """Sends requests; used as an asynchronous context manager.

    Args:
        allowed: networks that are reached although they are not public.
        tls: context of encrypted connections; the system's authorities if not given.
    """

    def __init__(self, allowed: Sequence[Network] = (), tls: ssl.SSLContext | None = None) -> None:
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        await self._tasks.cancel()
        for connection in tuple(self._open):
            connection.close()
        for resolver in self._resolvers.values():
            await resolver.close()
        # Transports close with the next turns of the loop.
        await asyncio.sleep(0)

    async def post(
        self, target: Target, headers: Mapping[str, str], body: bytes, *, timeout: float, max_response: int
    ) -> Response:
        """Send a request and wait for its response; the arguments are those of `send`."""
        outcome: asyncio.Future[Response] = self._loop.create_future()

        def done(response: Response) -> None:
            if not outcome.done():
                outcome.set_result(response)

        self.send(target, headers, body, timeout=timeout, max_response=max_response, done=done)
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
    ) -> None:
        """Send a request; *done* gets its response, or a failure if there is none.

        Args:
            target: target of the request.
            headers: all of them but those of the connection.
            body: as it is sent.
            timeout: seconds for everything, from the connection to the last byte that is read.
            max_response: bytes that are read of the response's body; the connection is closed if there are more.
            done: called once, never before this returns; not called if the client is closed before.
            owner: tenant of the request, whose look-ups of names are limited together; "" for none.
        """
        try:
            request = target.request(headers, body)
        except ValueError as problem:
            self._loop.call_soon(done, Response.failure(problem))
            return
        exchange = Exchange(target, request, timeout, self._loop.time() + timeout, max_response, done, owner)
        kept = self._kept.get(target.origin)
        if kept:
            kept.pop().begin(exchange)
        else:
            self.send_anew(exchange)

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

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
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
        addresses = await self._addresses(target, owner)
        connected = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS)
        secure: dict[str, Any] = {"ssl": self._tls, "server_hostname": target.host} if target.is_encrypted else {}
        try:
            _, connection = await self._loop.create_connection(
                lambda: Connection(target, self), sock=connected, **secure
            )
        except BaseException:
            connected.close()
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
    where: tuple[Any, ...] = (host, port, 0, 0) if family == socket.AF_INET6 else (host, port)
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", where
