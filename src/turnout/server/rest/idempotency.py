"""Idempotency keys: a POST that is sent again with its key gets the first answer, and nothing is done a second time."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.server.errors import problem
from turnout.server.security import INPUTS, Principal, replay

KEY_HEADER: Final = "Idempotency-Key"
REPLAYED_HEADER: Final = "Idempotency-Replayed"
MAX_KEY: Final = 255
"""Characters of a key."""

_KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY}}}")
_SECONDS: Final = 86_400.0
_MOST_CALLERS: Final = 100
_MOST_KEYS: Final = 1_000
_MOST_BYTES: Final = 1 << 20
"""Callers that are known, and what is kept for each; the newest answer is kept in any case."""


@dataclass(slots=True, eq=False)
class _First:
    """First request with a key: what it was, and its answer once it has succeeded."""

    digest: bytes
    since: float = field(default_factory=time.monotonic)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    answer: list[Message] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of the answer."""
        return sum(len(message.get("body", b"")) for message in self.answer)


class IdempotentPosts:
    """ASGI middleware that answers a repeated POST as the first one with the same key of the same caller.

    A request that is under way is waited for. Successes alone are kept: after an error the key is free. Answers are in
    memory, for a day at most.

    Args:
        app: the application behind the gate, which has named the caller.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._callers: OrderedDict[Principal, OrderedDict[str, _First]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered, unless its answer is known."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        # An input takes the key for the id of its message.
        key = Headers(scope=scope).get(KEY_HEADER) if is_post and not scope["path"].startswith(INPUTS) else None
        principal: Principal | None = scope.get("state", {}).get("principal")
        if key is None or principal is None:
            await self._app(scope, receive, send)
            return
        if not _KEY.fullmatch(key):
            detail = f"{KEY_HEADER}: expected 1 to {MAX_KEY} visible ASCII characters, found {key!r:.80}"
            await problem(400, detail)(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        digest = _digest(scope, body)
        keys = self._keys_of(principal)
        while (first := keys.get(key)) is not None:
            if first.digest != digest:
                detail = f"{KEY_HEADER}: {key!r} was sent with another request; take a new key for a new request"
                await problem(422, detail)(scope, receive, send)
                return
            await first.ended.wait()
            if first.answer:
                for message in first.answer:
                    await send(message)
                return
        keys[key] = first = _First(digest)
        try:
            first.answer = await self._answered(scope, replay(body, receive), send)
        finally:
            first.ended.set()
            if not first.answer:
                keys.pop(key, None)
            _forget(keys)

    def _keys_of(self, principal: Principal) -> OrderedDict[str, _First]:
        keys = self._callers.setdefault(principal, OrderedDict())
        self._callers.move_to_end(principal)
        if len(self._callers) > _MOST_CALLERS:
            self._callers.popitem(last=False)
        return keys

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> list[Message]:
        """Have the first request answered, and return its answer for others if it is a success."""
        answer: list[Message] = []

        async def keeping(message: Message) -> None:
            answer.append(message)
            await send(message)

        await self._app(scope, receive, keeping)
        if not answer or not 200 <= answer[0]["status"] < 300:
            return []
        replayed = (REPLAYED_HEADER.lower().encode(), b"true")
        return [{**answer[0], "headers": [*answer[0]["headers"], replayed]}, *answer[1:]]


def _digest(scope: Scope, body: bytes) -> bytes:
    kind = Headers(scope=scope).get("content-type", "")
    parts = (scope["path"].encode(), scope["query_string"], kind.encode("latin-1"), body)
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _forget(keys: OrderedDict[str, _First]) -> None:
    """Forget what is older than a day, and the oldest ones beyond the bounds."""
    oldest_time, size = time.monotonic() - _SECONDS, sum(first.size for first in keys.values())
    for key, first in list(keys.items())[:-1]:
        if len(keys) <= _MOST_KEYS and size <= _MOST_BYTES and first.since > oldest_time:
            return
        if first.ended.is_set():
            size -= first.size
            del keys[key]
