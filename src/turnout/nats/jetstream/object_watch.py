"""Watching an object store."""

from __future__ import annotations

import json

from turnout.nats.jetstream.object_info import ObjectInfo
from turnout.nats.jetstream.ordered import OrderedSubscription
from turnout.nats.jetstream.watching import Watching


class ObjectWatcher(Watching[ObjectInfo]):
    """Objects as they change."""

    def __init__(self, subscription: OrderedSubscription, *, ignore_deletes: bool, updates_only: bool) -> None:
        super().__init__(subscription)
        self._ignore_deletes = ignore_deletes
        self._initial_reported = updates_only
        self._over = not subscription.initial_pending

    async def next(self, timeout: float | None = 5.0) -> ObjectInfo | None:
        """See `Watching.next`."""
        while True:
            if self._over and not self._initial_reported:
                self._initial_reported = True
                return None
            message = await self._subscription.next(timeout)
            self._over = self._over or message.metadata.num_pending == 0
            info = ObjectInfo.from_json(json.loads(message.data), message.timestamp)
            if not (info.deleted and self._ignore_deletes):
                return info
