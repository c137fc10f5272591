"""Task slots of Spark applications that open splits have taken: one is always left for other tasks."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SlotUse:
    """Use of an application's task slots.

    Attributes:
        total: how many there are.
        taken: the routes that have one for their open splits.
        waiting: the routes whose micro-batches have an end as long as none is free.
    """

    total: int
    taken: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class TaskSlots:
    """Slots of all applications of this process. Thread-safe.

    >>> slots = TaskSlots()
    >>> [slots.take("app", 3, route) for route in ("a", "b", "c")]
    [True, True, False]
    >>> slots.give_back("app", "a")
    >>> slots.take("app", 3, "c"), slots.use("app", 3)
    (True, SlotUse(total=3, taken=('b', 'c'), waiting=()))
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[str, list[str]] = {}
        self._waiting: dict[str, list[str]] = {}
        self._totals: dict[str, int] = {}

    def take(self, application: str, total: int, route: str) -> bool:
        """Take a slot for a route; without a free one it waits, until it takes or gives back.

        Args:
            application: Spark's id of it.
            total: how many slots it has.
            route: name of the route.
        """
        with self._lock:
            self._totals[application] = total
            routes = self._taken.setdefault(application, [])
            waiting = self._waiting.setdefault(application, [])
            free = len(routes) + 1 < total
            if free:
                routes.append(route)
            if free and route in waiting:
                waiting.remove(route)
            elif not free and route not in waiting:
                waiting.append(route)
            return free

    def give_back(self, application: str, route: str) -> None:
        """Return the slot of a route, or end its wait."""
        with self._lock:
            for routes in (self._taken, self._waiting):
                if route in routes.get(application, ()):
                    routes[application].remove(route)

    def use(self, application: str, total: int) -> SlotUse:
        """Return the use of an application's slots, *total* of them unless a route has seen another number."""
        with self._lock:
            running, waiting = (tuple(routes.get(application, ())) for routes in (self._taken, self._waiting))
            return SlotUse(self._totals.get(application, total), running, waiting)


SLOTS: Final = TaskSlots()
"""The slots that the runs of this process share."""
