"""Request bodies: read up to a limit before the application sees the request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 4 << 20
"""Bytes of one body."""

_DIGITS = re.compile(r"[0-9]{1,19}")

Refuse = Callable[[int, str], Awaitable[None]]
"""Answers the request with a status and a reason."""


def declared_length(headers: Headers) -> int | None:
    """Return the declared length of a request's body, 0 without one; None if the declaration is invalid.

    >>> [declared_length(Headers({"content-length": text})) for text in ("17", "", "-1", "+1", "1_0", "²", "9" * 5_000)]
    [17, None, None, None, None, None, None]
    """
    written = set(headers.getlist("content-length"))
    if not written:
        return 0
    text = written.pop()
    return int(text) if not written and _DIGITS.fullmatch(text) else None


class Bodies:
    """Reads bodies for an application, so that one beyond a limit is answered and not cut off.

    Args:
        total: bytes of all bodies that are held at once.

    Attributes:
        total: the same.
    """

    def __init__(self, total: int = 64 << 20) -> None:
        self.total = total
        self._held_bytes = 0

    async def forward(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, refuse: Refuse, limit: int = MAX_BODY
    ) -> None:
        """Have *app* answer the request once its body of at most *limit* bytes is complete, or *refuse* it."""
        body = bytearray()
        try:
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                part = message.get("body", b"")
                more = message.get("more_body", False)
                self._held_bytes += len(part)
                body += part
                if len(body) > limit:
                    await refuse(413, f"a request has at most {limit:,} bytes")
                    return
                if self._held_bytes > self.total:
                    await refuse(503, "too many request bodies are held at once: try again later")
                    return
            await app(scope, _replay(bytes(body), receive), send)
        finally:
            self._held_bytes -= len(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Receive the body as one message, then what follows it."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replaying() -> Message:
        return rest.pop() if rest else await receive()

    return replaying
