"""Base of all watchers: an iterator over an ordered subscription until it is stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Generic, Self, TypeVar

from turnout.nats.jetstream.errors import SubscriptionClosedError
from turnout.nats.jetstream.ordered import OrderedSubscription

T = TypeVar("T")


class Watching(ABC, Generic[T]):
    """Iterator over the existing entries, then `None` once, then updates.

    Take them with ``async for`` or `next`. It begins again by itself after faults; see `OrderedSubscription`.
    As an asynchronous context manager it stops at the end of the block.
    """

    def __init__(self, subscription: OrderedSubscription) -> None:
        self._subscription = subscription

    @property
    def subscription(self) -> OrderedSubscription:
        """Subscription that the watcher reads."""
        return self._subscription

    @abstractmethod
    async def next(self, timeout: float | None = 5.0) -> T | None:
        """The next one; None, once, after the last that was there at the beginning.

        Raises:
            RequestTimeoutError: none came in *timeout* seconds.
            SubscriptionClosedError: it was stopped.
        """

    def __aiter__(self) -> AsyncIterator[T | None]:
        return self

    async def __anext__(self) -> T | None:
        try:
            return await self.next(None)
        except SubscriptionClosedError:
            raise StopAsyncIteration from None

    async def stop(self) -> None:
        """Watch no longer."""
        await self._subscription.unsubscribe()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.stop()
