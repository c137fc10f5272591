"""All subscriptions at one revision: the input of a matcher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from turnout.subscriptions.model import Subscription


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Content of a store at *revision*. A snapshot made by hand has revision 0.

    >>> from turnout.conditions import parse
    >>> snapshot = Snapshot((Subscription(["d"], parse("a:1"), id="one"),))
    >>> [item.id for item in snapshot], snapshot.revision
    (['one'], 0)
    """

    subscriptions: tuple[Subscription, ...]
    revision: int = 0

    def __len__(self) -> int:
        return len(self.subscriptions)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self.subscriptions)
