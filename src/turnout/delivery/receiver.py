"""Local endpoint that verifies signatures and fails on purpose: for the demo and for measurements."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from turnout.delivery.requests import Signer


@dataclass(slots=True)
class Receiver:
    """Endpoint on a loopback address, which takes a message of each id once.

    Attributes:
        signer: has the secret that requests are signed with.
        fails_each: every so many requests fail with 503; 0 for none.
        url: its URL, while it is `serving`.
        ids: ids of the messages that it has taken.
        requests: how many it had.
        refused: how many of them it has failed on purpose.
        unverified: how many of them had a wrong signature.
        repeated: how many of them had the id of a message that it had taken.
    """

    signer: Signer
    fails_each: int = 0
    url: str = ""
    ids: set[str] = field(default_factory=set)
    requests: int = 0
    refused: int = 0
    unverified: int = 0
    repeated: int = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve on a free port for as long as the block lasts."""
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        self.requests += 1
        if not self._is_signed(request, body):
            self.unverified += 1
            return web.Response(status=401)
        if self.fails_each and self.requests % self.fails_each == 0:
            self.refused += 1
            return web.Response(status=503)
        identity = request.headers["webhook-id"]
        self.repeated += identity in self.ids
        self.ids.add(identity)
        return web.Response(status=204)

    def _is_signed(self, request: web.BaseRequest, body: bytes) -> bool:
        identity, seconds, signature = (request.headers.get(f"webhook-{name}", "") for name in _SIGNED)
        if not identity or not seconds.isdecimal():
            return False
        return hmac.compare_digest(self.signer.signature(identity, int(seconds), body).encode(), signature.encode())


_SIGNED = ("id", "timestamp", "signature")
