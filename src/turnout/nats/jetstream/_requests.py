"""Requests that wait for an answer, and the answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol, TypeVar

from turnout.errors import TurnoutError


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply to a request."""

    raw_headers: bytes
    data: bytes


class Waiter(Protocol):
    """Receiver of a reply in the read loop: a future, or a counting asynchronous publish.

    Attributes:
        subject: subject of the request.
    """

    subject: str

    def settle(self, raw_headers: bytes, data: bytes) -> None:
        """Accept the answer."""

    def fail(self, failure: TurnoutError) -> None:
        """Accept the failure: no answer will arrive."""


WaiterT = TypeVar("WaiterT", bound=Waiter)


@dataclass(slots=True)
class PendingRequest:
    """Request whose answer a coroutine waits for."""

    subject: str
    future: asyncio.Future[Reply]

    def settle(self, raw_headers: bytes, data: bytes) -> None:
        if not self.future.done():
            self.future.set_result(Reply(raw_headers, data))

    def fail(self, failure: TurnoutError) -> None:
        if not self.future.done():
            self.future.set_exception(failure)
