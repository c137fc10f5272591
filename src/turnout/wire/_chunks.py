"""Messages that were sent together, and which of them are acknowledged.

Messages with ids share one reply subject for the chunk, and their acknowledgements are counted: a server looks up
who listens to a subject once, and not for each message. What cannot be counted (a refusal, a connection that was
lost) is sent again under a new number, which an id makes harmless. Messages without ids have a number each, so
that none is sent again that was acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.wire.packing import numbered, pack

__all__ = ["Chunk", "Counted", "Messages", "Numbered"]

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Messages:
    """Subjects, payloads and header lines (None where there are none) as Arrow arrays of one length."""

    subjects: Any
    payloads: Any
    lines: Any

    def __len__(self) -> int:
        return len(self.subjects)

    def frames(self, replies: Any) -> tuple[Any, Numbers]:
        """The frames one behind the other, and where each begins."""
        return pack(self.subjects.cast(pa.binary()), self.payloads, self.lines, replies)


class Chunk(Protocol):
    """What the publisher asks of a chunk.

    Attributes:
        messages: what was sent.
        left: how many of them have no acknowledgement.
        size: how many bytes their frames are.
        duplicates: how many the stream knew already.
    """

    messages: Messages
    left: int
    size: int
    duplicates: int

    def holds(self, number: int) -> bool:
        """Whether an answer with this number is for this chunk, and waited for."""

    def acknowledge(self, numbers: Numbers, known: Flags) -> int:
        """Take those of the answers that are for this chunk; how many were waited for.

        Args:
            numbers: the last token of each answer's subject.
            known: whether each says that the stream knew the message.
        """

    def waiting(self) -> bytes | memoryview:
        """The frames without acknowledgement."""


class Counted:
    """A chunk whose messages share the reply subject *lead* + *number*."""

    def __init__(self, messages: Messages, lead: bytes, number: int) -> None:
        self.messages = messages
        self.number = number
        self.left = len(messages)
        self.duplicates = 0
        data, edges = messages.frames(lead + b"%d" % number)
        self._data = memoryview(data)[edges[0] : edges[-1]]
        self.size = len(self._data)

    def holds(self, number: int) -> bool:
        """Whether the number is this chunk's."""
        return number == self.number and self.left > 0

    def acknowledge(self, numbers: Numbers, known: Flags) -> int:
        """Count the answers with this chunk's number."""
        mine = numbers == self.number
        count = int(np.count_nonzero(mine))
        self.left -= count
        self.duplicates += int(np.count_nonzero(known & mine))
        return count

    def waiting(self) -> memoryview:
        """All frames: which of them are acknowledged is not known."""
        return self._data


class Numbered:
    """A chunk whose messages have reply subjects of their own: *lead* and a number, from *first* on."""

    def __init__(self, messages: Messages, lead: bytes, first: int) -> None:
        count = len(messages)
        self.messages = messages
        self.left = count
        self.duplicates = 0
        self._first = first
        self._done = np.zeros(count, dtype=np.bool_)
        data, self._edges = messages.frames(numbered(lead, first, count))
        self._data = memoryview(data)
        self.size = int(self._edges[-1] - self._edges[0])

    def holds(self, number: int) -> bool:
        """Whether the number is one of this chunk's that have no acknowledgement."""
        place = number - self._first
        return 0 <= place < len(self._done) and not self._done[place]

    def acknowledge(self, numbers: Numbers, known: Flags) -> int:
        """Mark the answered messages; an answer that comes twice counts once."""
        places = numbers - self._first
        mine = (places >= 0) & (places < len(self._done))
        places, first = np.unique(places[mine], return_index=True)
        fresh = ~self._done[places]
        self._done[places] = True
        count = int(np.count_nonzero(fresh))
        self.left -= count
        self.duplicates += int(np.count_nonzero(known[mine][first] & fresh))
        return count

    def subject(self, number: int) -> str:
        """The subject of one message."""
        subject: str = self.messages.subjects[number - self._first].as_py()
        return subject

    def frame(self, number: int) -> bytes:
        """The frame of one message."""
        place = number - self._first
        return bytes(self._data[self._edges[place] : self._edges[place + 1]])

    def waiting(self) -> bytes:
        """The frames without acknowledgement."""
        return b"".join(self.frame(int(place) + self._first) for place in np.flatnonzero(~self._done))
