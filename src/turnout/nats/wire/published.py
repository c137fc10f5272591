"""Result counts of a publisher."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnout.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Published:
    """Results of the messages published since the last flush.

    Attributes:
        stored: messages that were new to the stream, and stored.
        duplicates: those that the stream knew already.
        delivery: how long each of both took, from the moment it was first handed to the connection, with others, until
            its acknowledgement was read. It is no part of what makes two of these equal.
    """

    stored: int = 0
    duplicates: int = 0
    delivery: Histogram = field(default=Histogram(), compare=False)

    def __add__(self, other: Published) -> Published:
        return Published(self.stored + other.stored, self.duplicates + other.duplicates, self.delivery + other.delivery)
