"""Look-ups of host names, each on a thread of its own: a slow name server holds up its own hosts alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from turnout.background import run_once

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
