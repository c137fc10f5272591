"""Write lease of a MongoDB store: a document that one writer holds at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from turnout.errors import StoreUnavailableError
from turnout.subscriptions.deadline import remaining
from turnout.subscriptions.stores._mongo_clock import ServerClock
from turnout.subscriptions.stores._mongo_driver import errors

_LEASE_SECONDS = 30.0
"""Seconds of a silent writer's lease, by the server's clock."""

_WAIT_SECONDS = 45.0
"""Seconds that a writer waits for its turn: longer than a dead writer's lease."""

TOO_SLOW = "this writer was away for so long that another one took its turn; nothing was stored"


@dataclass(frozen=True, slots=True)
class Turn:
    """Current writer and its revision."""

    writer: str
    revision: int


class Turns:
    """Document that holds the lease of the writer whose turn it is.

    Args:
        states: the collection that it is in.
        clock: the server's, so that no writer's own clock makes a lease longer or shorter.
    """

    def __init__(self, states: Any, clock: ServerClock) -> None:
        self._states = states
        self._clock = clock

    def take(self, writer: str) -> None:
        """Wait for the writer's turn, and insert the document: of all operations the one no two can both do.

        Raises:
            StoreUnavailableError: others have had it for too long.
        """
        wait = remaining(_WAIT_SECONDS)
        deadline = time.monotonic() + wait
        pause = 0.002
        while True:
            try:
                self._states.insert_one({"_id": "turn", "writer": writer, "until": self._clock.now() + _LEASE_SECONDS})
            except errors.DuplicateKeyError:
                self._end_expired()
                if time.monotonic() > deadline:
                    raise StoreUnavailableError(f"other writers kept this one waiting for {wait:.3g} s") from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.1)
            else:
                return

    def _end_expired(self) -> None:
        """Remove a lease that is over, and one that reaches further than a lease can: its clock was wrong."""
        now = self._clock.now()
        over = [{"until": {"$lt": now}}, {"until": {"$gt": now + 2 * _LEASE_SECONDS}}]
        self._states.delete_one({"_id": "turn", "$or": over})

    def hold(self, turn: Turn) -> None:
        """Keep the turn for longer.

        Raises:
            StoreUnavailableError: another writer has it by now.
        """
        until = self._clock.now() + _LEASE_SECONDS
        renewal = self._states.update_one({"_id": "turn", "writer": turn.writer}, {"$set": {"until": until}})
        if not renewal.matched_count:
            raise StoreUnavailableError(TOO_SLOW)

    def end(self, writer: str) -> None:
        """Let the next writer have its turn."""
        self._states.delete_one({"_id": "turn", "writer": writer})
