"""Results of publishing, the same for every kind of sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from turnout.base.histogram import Histogram
from turnout.errors import StreamError

TOO_LARGE: Final = 413
"""Code of a `StreamError` for a message that is larger than its server takes."""

Refuse: TypeAlias = Callable[[int, StreamError], None]
"""Called with the index of a message that will never be stored, and the reason."""


@dataclass(frozen=True, slots=True)
class Published:
    """Results of the messages published since the last flush.

    Attributes:
        stored: messages that were new to the server, and stored.
        duplicates: messages that the server knew already. Of a message that was sent again, as another beside it was
            refused or the connection was lost, the first acknowledgement counts.
        delivery: how long each of both took, from the moment it was first handed to the connection, with others, until
            its acknowledgement was read. It is no part of what makes two of these equal.
    """

    stored: int = 0
    duplicates: int = 0
    delivery: Histogram = field(default=Histogram(), compare=False)

    def __add__(self, other: Published) -> Published:
        return Published(self.stored + other.stored, self.duplicates + other.duplicates, self.delivery + other.delivery)
