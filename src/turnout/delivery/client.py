"""HTTP client of the dispatcher: one POST, with limits of time and size, and without redirects."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from turnout.delivery.guard import AddressGuard, ForbiddenAddressError, GuardedResolver, Network

_KEPT = 200
"""Characters of a failed response that an attempt keeps."""


@dataclass(frozen=True, slots=True)
class Response:
    """Outcome of one request.

    Attributes:
        status: of the response; None without one.
        retry_after: value of Retry-After.
        error: what went wrong; the beginning of the body of a response that is no success.
    """

    status: int | None
    retry_after: str = ""
    error: str = ""

    @property
    def is_success(self) -> bool:
        """True if the endpoint has taken the message."""
        return self.status is not None and 200 <= self.status < 300


class Client:
    """Sends requests over kept connections; used as an asynchronous context manager.

    Args:
        allowed: networks that are reached although they are not public.
        tls: context of encrypted connections; the system's authorities if not given.
    """

    def __init__(self, allowed: Sequence[Network] = (), tls: ssl.SSLContext | None = None) -> None:
        self._guard = AddressGuard(allowed)
        self._tls = tls
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        for scheme in ("https", "http"):
            resolver = GuardedResolver(self._guard, encrypted=scheme == "https")
            connector = aiohttp.TCPConnector(
                resolver=resolver, limit=0, ssl=self._tls or True, keepalive_timeout=30.0, ttl_dns_cache=10
            )
            self._sessions[scheme] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._sessions.values():
            await session.close()

    async def post(
        self, url: URL, headers: Mapping[str, str], body: bytes, *, timeout: float, max_response: int
    ) -> Response:
        """Send a request and read its response, which is a failure where none comes.

        Args:
            url: where to.
            headers: all of them but those of the connection.
            body: as it is sent.
            timeout: seconds for everything, from the connection to the last byte that is read.
            max_response: bytes that are read; the connection is closed if there are more.
        """
        problem = self._guard.url_problem(url)
        if problem is not None:
            return Response(None, error=problem)
        try:
            async with asyncio.timeout(timeout):
                return await self._post(url, headers, body, max_response)
        except TimeoutError:
            return Response(None, error=f"no response within {timeout:g} s")
        except aiohttp.ClientError as failure:
            return Response(None, error=_reason(failure))
        except (OSError, ValueError) as failure:
            return Response(None, error=f"{failure}"[:_KEPT])

    async def _post(self, url: URL, headers: Mapping[str, str], body: bytes, max_response: int) -> Response:
        session = self._sessions[url.scheme]
        async with session.post(url, headers=headers, data=body, allow_redirects=False) as answer:
            content = await _read(answer, max_response)
            if answer.status < 300:
                return Response(answer.status)
            text = content[:_KEPT].decode("utf-8", "replace")
            return Response(answer.status, answer.headers.get("Retry-After", ""), text)


async def _read(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return up to *limit* bytes of the body; a connection with more is closed."""
    if answer.content.at_eof():
        return b""
    pieces, left = [], limit
    async for piece in answer.content.iter_any():
        pieces.append(piece[:left])
        left -= len(piece)
        if left < 0:
            answer.close()
            break
    return b"".join(pieces)


def _reason(failure: aiohttp.ClientError) -> str:
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, ForbiddenAddressError):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return f"{type(failure).__name__}: {failure}"[:_KEPT]
