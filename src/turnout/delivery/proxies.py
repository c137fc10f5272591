"""HTTP proxies between the dispatcher and endpoints: which one is used, and the tunnel through it."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from turnout.base.loopback import is_loopback
from turnout.subscriptions.credentials import basic_authentication

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

    async def tunnel(self, host: str, port: int, context: ssl.SSLContext | None) -> Any:
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
