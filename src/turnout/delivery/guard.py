"""Lookups of host names for deliveries, the addresses that are refused, and proxies."""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from turnout.base.background import run_once
from turnout.base.http_exchange import is_loopback
from turnout.subscriptions.credentials import basic_authentication

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_REMEMBERED = 10_000
_UNKNOWN = ""

_SPECIAL_V4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private use
            "100.64.0.0/10",  # shared address space
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local
            "172.16.0.0/12",  # private use
            "192.0.0.0/24",  # IETF protocol assignments: DS-Lite, NAT64 discovery, dummy and anycast addresses
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # automatic multicast tunnelling
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private use
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and the limited broadcast
        ),
    )
)
"""IANA IPv4 Special-Purpose Address Registry, and multicast. Also those that are globally reachable: no endpoint is
an anycast service of the network. Our own table: that of `ipaddress` differs between versions of Python."""

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""The only network from which IANA has assigned global unicast addresses: loopback, unique local, link-local and
site-local (fec0::/10) addresses, multicast and all that is reserved are outside."""

_SPECIAL_V6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # IETF protocol assignments: Teredo, benchmarks, ORCHID, drone identifiers
            "2001:db8::/32",  # documentation
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
"""IANA IPv6 Special-Purpose Address Registry, inside of global unicast; 6to4 is judged by its embedded address."""

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")


class ForbiddenAddressError(OSError):
    """Raised when a request would go to an address that is not allowed."""


class AddressGuard:
    """Decides which addresses may be reached: public ones, and those of the allowed networks.

    Args:
        allowed: networks that are reached although they are not public.

    >>> guard = AddressGuard([IPv4Network("10.1.0.0/16")])
    >>> guard.problem("10.1.2.3"), guard.problem("127.0.0.1")
    (None, '127.0.0.1 is no public address')
    >>> guard.problem("::ffff:169.254.169.254")
    '::ffff:169.254.169.254 is no public address'
    """

    def __init__(self, allowed: Sequence[Network] = ()) -> None:
        self._allowed = tuple(allowed)
        self._known: dict[tuple[str, bool], str | None] = {}

    def problem(self, text: str, *, encrypted: bool = True) -> str | None:
        """Return the reason that an address is not reached; None if it is.

        Args:
            text: the address.
            encrypted: False for a request without TLS, which leads to allowed networks alone.
        """
        known = self._known.get((text, encrypted), _UNKNOWN)
        if known != _UNKNOWN:
            return known
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[text, encrypted] = problem = self._checked(text, encrypted)
        return problem

    def _checked(self, text: str, encrypted: bool) -> str | None:
        try:
            address = ip_address(text.partition("%")[0])
        except ValueError:
            return f"{text} is no address in its usual form"
        inner = _embedded(address)
        if any(one in network for network in self._allowed for one in (address, inner) if one is not None):
            return None
        if not _is_public(address) or (inner is not None and not _is_public(inner)):
            return f"{text} is no public address"
        return None if encrypted else f"{text} is in no allowed network, and is reached by https:// alone"

    def url_problem(self, url: URL) -> str | None:
        """Return the reason that a URL with an address as its host is not requested; None for names, too."""
        host = url.host or ""
        return self.problem(host, encrypted=url.scheme == "https") if _is_address(host) else None


def _is_address(host: str) -> bool:
    # As wide as the client's own test, so that every text that it accepts as an address is checked.
    return ":" in host or host.replace(".", "").isdigit()


def _embedded(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to, by mapping, 6to4 or NAT64."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64 or address in _MAPPED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return IPv4Address(int(address) >> 80 & 0xFFFFFFFF) if address in _SIX_TO_FOUR else None


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    if address in _NAT64 or address in _MAPPED:
        # Its embedded address says it.
        return True
    return address in _GLOBAL_UNICAST and not any(address in network for network in _SPECIAL_V6)


class GuardedResolver(AbstractResolver):
    """Resolves names to permitted addresses: the client connects to the checked ones.

    Args:
        guard: decides.
        encrypted: whether requests are made with TLS.
        resolver: resolves names to any addresses.
    """

    def __init__(self, guard: AddressGuard, *, encrypted: bool, resolver: AbstractResolver) -> None:
        self._guard = guard
        self._encrypted = encrypted
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a host.

        Raises:
            ForbiddenAddressError: it has none.
            OSError: the name cannot be resolved.
        """
        found = await self._resolver.resolve(host, port, family)
        problems = [self._guard.problem(one["host"], encrypted=self._encrypted) for one in found]
        allowed = [one for one, problem in zip(found, problems, strict=True) if problem is None]
        if not allowed:
            raise ForbiddenAddressError(f"{host}: {next(filter(None, problems), 'no address')}")
        return allowed

    async def close(self) -> None:
        """Close the resolver behind it."""
        await self._resolver.close()


_MAX_LOOKUPS: Final = 512
"""Look-ups at one time. A waiting thread needs some 20 KiB."""

_MAX_OWNER_LOOKUPS: Final = 16
"""Look-ups at one time of one tenant, or of one domain where there are no tenants."""


class LookupLimits:
    """Limits of concurrent look-ups: of all, and of each owner.

    Name servers of one owner that do not answer take its own share: others do not wait for them.
    """

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(_MAX_LOOKUPS)
        self._of: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def slot(self, owner: str, host: str) -> AsyncIterator[None]:
        """Wait for permission to look up a host, and hold it for the length of the block.

        Args:
            owner: tenant of the request; "" for none.
            host: name of the host.
        """
        key = f"@{owner}" if owner else ".".join(host.lower().rstrip(".").rsplit(".", 2)[-2:])
        limit, users = self._of.get(key) or (asyncio.Semaphore(_MAX_OWNER_LOOKUPS), 0)
        self._of[key] = limit, users + 1
        try:
            async with limit, self._all:
                yield
        finally:
            limit, users = self._of[key]
            if users == 1:
                del self._of[key]
            else:
                self._of[key] = limit, users - 1


class LookupResolver(AbstractResolver):
    """Resolver of the system, without a pool of threads that slow name servers could fill."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        Raises:
            OSError: the name cannot be resolved.
        """
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[ResolveResult]] = loop.create_future()

        def put(result: list[ResolveResult] | BaseException) -> None:
            if found.done():
                return
            if isinstance(result, BaseException):
                found.set_exception(result)
            else:
                found.set_result(result)

        def look_up() -> None:
            try:
                result: list[ResolveResult] | Exception = _addresses(host, port, family)
            except Exception as failure:  # noqa: BLE001 - the waiting coroutine raises it
                result = failure
            # A loop that has ended waits for nothing.
            if not loop.is_closed():
                loop.call_soon_threadsafe(put, result)

        run_once("look-up of a host", look_up)
        return await found

    async def close(self) -> None:
        """Do nothing: a thread ends with its look-up."""


def _addresses(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found: list[ResolveResult] = []
    for kind, _, protocol, _, address in socket.getaddrinfo(
        host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    ):
        text = str(address[0])
        if kind == socket.AF_INET6 and len(address) > 3 and address[3]:
            text = socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
        found.append(
            ResolveResult(
                hostname=host,
                host=text,
                port=int(address[1]),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
        )
    return found


_HEAD_BYTES: Final = 16_384


class ProxyError(OSError):
    """Raised when a proxy opens no tunnel; without its login."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Proxy that opens tunnels by CONNECT.

    Attributes:
        host: name or address.
        port: its port.
        is_encrypted: whether the connection to the proxy itself has TLS.
        login: value of Proxy-Authorization; "" for none.
    """

    host: str
    port: int
    is_encrypted: bool
    login: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str) -> Self:
        """Read the URL of a proxy, which may have a login.

        Raises:
            ValueError: it is no URL of a proxy; without the login.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError("expected http://HOST:PORT or https://HOST:PORT of a proxy")
        is_encrypted = parts.scheme == "https"
        login = ""
        if parts.username is not None:
            login = basic_authentication(unquote(parts.username), unquote(parts.password or ""))
        return cls(parts.hostname, parts.port or (443 if is_encrypted else 80), is_encrypted, login)

    async def tunnel(self, host: str, port: int, context: ssl.SSLContext | None) -> asyncio.Transport:
        """Return the transport of a tunnel to a host, without TLS to the host itself; its protocol is to be set.

        Args:
            host: name or address, without brackets.
            port: the port.
            context: of the connection to the proxy, if that has TLS.

        Raises:
            ProxyError: the proxy refuses it, or does not speak HTTP.
            OSError: the proxy cannot be reached.
        """
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        login = f"Proxy-Authorization: {self.login}\r\n" if self.login else ""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        secure: dict[str, Any] = {"ssl": context, "server_hostname": self.host} if self.is_encrypted else {}
        transport, _ = await loop.create_connection(lambda: _Handshake(answer), self.host, self.port, **secure)
        try:
            transport.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{login}\r\n".encode())
            problem = _problem(await answer)
        except BaseException:
            transport.abort()
            raise
        if problem:
            transport.abort()
            raise ProxyError(f"the proxy {self.host} opens no tunnel to {where}: {problem}")
        return transport


class _Handshake(asyncio.Protocol):
    """Reads the answer of a proxy to CONNECT.

    Args:
        answer: gets its head, or the part that arrived before the proxy closed the connection.
    """

    def __init__(self, answer: asyncio.Future[bytes]) -> None:
        self._answer = answer
        self._head = b""

    def data_received(self, data: bytes) -> None:
        """Take bytes; nothing follows the head until the tunnel is used."""
        self._head += data
        if b"\r\n\r\n" in self._head or len(self._head) > _HEAD_BYTES:
            self._end()

    def connection_lost(self, _failure: Exception | None) -> None:
        """End with what is there."""
        self._end()

    def _end(self) -> None:
        if not self._answer.done():
            self._answer.set_result(self._head)


def _problem(head: bytes) -> str:
    """Return why the answer to CONNECT opens no tunnel; "" if it does."""
    if not head.startswith(b"HTTP/1.") or b"\r\n\r\n" not in head:
        return "it sends no HTTP response"
    status = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")[2]
    if not status.startswith("2"):
        return f"{status!a:.80}"
    return "" if head.endswith(b"\r\n\r\n") else "bytes follow its response"


class Proxies:
    """Choice of the proxy for an endpoint.

    Args:
        setting: ``environment``, ``none`` or the URL of a proxy. Hosts of NO_PROXY are reached directly in each case,
            and this machine's loopback with the environment's.
        resolves: whether the proxy looks names up, and so decides which addresses are reached.
    """

    def __init__(self, setting: str = "none", *, resolves: bool = False) -> None:
        self._from_environment = setting == "environment"
        self._fixed = None if setting in ("environment", "none") else Proxy.of(setting)
        self.resolves = resolves

    def of(self, scheme: str, host: str) -> Proxy | None:
        """Return the proxy for a host; None to connect directly.

        Raises:
            ValueError: the environment has a proxy that is none.
        """
        if self._fixed is None and not self._from_environment:
            return None
        if urllib.request.proxy_bypass(host) or (self._fixed is None and is_loopback(host)):
            return None
        if self._fixed is not None:
            return self._fixed
        url = urllib.request.getproxies().get(scheme)
        return Proxy.of(url) if url else None
