"""Watching an object store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Self

from turnout.jetstream.errors import SubscriptionClosedError
from turnout.jetstream.object_info import ObjectInfo
from turnout.jetstream.ordered import OrderedSubscription

__all__ = ["ObjectWatcher"]


class ObjectWatcher:
    """Objects as they change: the ones that are there first, then `None` once, then updates."""

    def __init__(self, subscription: OrderedSubscription, *, ignore_deletes: bool, updates_only: bool) -> None:
        self._subscription = subscription
        self._ignore_deletes = ignore_deletes
        self._told = updates_only
        self._over = not subscription.initial_pending

    async def next(self, timeout: float | None = 5.0) -> ObjectInfo | None:
        """The next object; None, once, after the last that was there at the beginning.

        Raises:
            RequestTimeoutError: none came in *timeout* seconds.
            SubscriptionClosedError: it was stopped.
        """
        while True:
            if self._over and not self._told:
                self._told = True
                return None
            message = await self._subscription.next(timeout)
            self._over = self._over or message.metadata.num_pending == 0
            info = ObjectInfo.from_json(json.loads(message.data), message.timestamp)
            if not (info.deleted and self._ignore_deletes):
                return info

    def __aiter__(self) -> AsyncIterator[ObjectInfo | None]:
        return self

    async def __anext__(self) -> ObjectInfo | None:
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
