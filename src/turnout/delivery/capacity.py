"""Space for deliveries in memory: how many each lane may have, and waiting for it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from turnout.delivery.lane import Lane
from turnout.delivery.settings import Lanes

_MAX_HELD_DELIVERIES: Final = 8_192
"""Deliveries in memory over all lanes, as far as lanes without an order are concerned."""

_STALLED_SECONDS: Final = 0.1
"""A full lane that had no response for so long does not hold up the others."""


class Capacity:
    """Space that lanes share.

    Args:
        lanes: lanes of the dispatcher.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._freed = asyncio.Event()

    def has_space(self, lane: Lane) -> bool:
        """Return True if a lane may have one more delivery without an order in memory."""
        share = min(1_024, _MAX_HELD_DELIVERIES // (len(self._lanes) + 1))
        return lane.held < max(2 * lane.settings.concurrency, share)

    def freed(self) -> None:
        """Wake up the callers of `wait`."""
        self._freed.set()

    async def wait(self, lane: Lane) -> bool:
        """Wait for space in a lane that makes progress; return False for a full one that makes none."""
        while not self.has_space(lane):
            if lane.is_stalled or lane.breaker.is_open or lane.awaits_quota(asyncio.get_running_loop().time()):
                return False
            progressed = lane.progressed
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STALLED_SECONDS):
                    await self._freed.wait()
            # Time alone says nothing: this process may have been busy with other things.
            lane.is_stalled = lane.progressed == progressed
        return True
