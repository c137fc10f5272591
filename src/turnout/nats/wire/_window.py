"""The window of a publisher: the messages that are sent and have no acknowledgement, chunk by chunk."""

from __future__ import annotations

import time

import pyarrow.compute as pc

from turnout.errors import StreamError
from turnout.histogram import Histogram
from turnout.nats.wire._chunks import Chunk, CountedChunk, Flags, Numbers, PublishedMessages, TrackedChunk
from turnout.nats.wire.packing import have_ids


class Window:
    """Chunks in the order in which they were sent. It sends nothing itself: its methods return the bytes to send.

    Args:
        lead: what the reply subject of each message begins with; a number follows.
    """

    def __init__(self, lead: bytes) -> None:
        self._lead = lead
        self._chunks: list[Chunk] = []
        self._numbers = 0

    @property
    def unacknowledged(self) -> int:
        """Number of messages not acknowledged yet."""
        return sum(chunk.left for chunk in self._chunks)

    @property
    def size(self) -> int:
        """Bytes of the frames of all pending chunks."""
        return sum(chunk.size for chunk in self._chunks)

    def add(self, messages: PublishedMessages) -> bytes | memoryview:
        """Add messages as a chunk and return its frames."""
        chunk = self._counted(messages) if have_ids(messages.lines) else self._numbered(messages)
        self._chunks.append(chunk)
        return chunk.waiting()

    def renew(self) -> list[bytes | memoryview]:
        """The frames without acknowledgement, for a new connection.

        Answers to the lost connection may still come: messages are counted again under a new number.
        """
        self._chunks = [
            self._counted(chunk.messages) if isinstance(chunk, CountedChunk) else chunk for chunk in self._chunks
        ]
        return [chunk.waiting() for chunk in self._chunks]

    def holder(self, number: int) -> Chunk | None:
        """The chunk that waits for an answer with this number."""
        return next((chunk for chunk in self._chunks if chunk.holds(number)), None)

    def acknowledge(self, numbers: Numbers, known: Flags) -> int:
        """Process answers like `Chunk.acknowledge` and return the number of awaited answers.

        One that nothing waited for came for a message that was sent twice.
        """
        return sum(self.answered(chunk, numbers, known) for chunk in self._chunks)

    def answered(self, chunk: Chunk, numbers: Numbers, known: Flags) -> int:
        """Process answers for one chunk, and record the delivery time of its messages."""
        count = chunk.acknowledge(numbers, known)
        if count:
            # One that is renewed counts all of its messages again, so that each is counted once in the end.
            chunk.delivery += Histogram.of(time.monotonic() - chunk.messages.since, count)
        return count

    def apart(self, chunk: Chunk) -> bytes:
        """Assign a number to each message of a chunk, to identify its answer; return the frames.

        Their ids make it harmless to send them once more.
        """
        numbered = self._numbered(chunk.messages)
        self._chunks[self._chunks.index(chunk)] = numbered
        return numbered.waiting()

    def forbid(self, subject: str, reason: StreamError) -> tuple[int, list[bytes]]:
        """Refuse the messages on a subject that wait for an answer.

        Returns:
            How many there were, and the frames of those that were counted together with them.
        """
        refused = 0
        frames = []
        for place, chunk in enumerate(self._chunks):
            if not pc.any(pc.equal(chunk.messages.subjects, subject)).as_py():
                continue
            # Which messages of a chunk have been answered, only numbers of their own tell.
            apart = chunk if isinstance(chunk, TrackedChunk) else self._numbered(chunk.messages)
            for number in apart.waiting_on(subject):
                apart.refuse(number, reason)
                refused += 1
            if apart is not chunk:
                self._chunks[place] = apart
                frames.append(apart.waiting())
        return refused, frames

    def let_go(self) -> list[Chunk]:
        """Remove the chunks without pending messages from the window and return them."""
        settled = [chunk for chunk in self._chunks if not chunk.left]
        self._chunks = [chunk for chunk in self._chunks if chunk.left]
        return settled

    def _counted(self, messages: PublishedMessages) -> CountedChunk:
        self._numbers += 1
        return CountedChunk(messages, self._lead, self._numbers)

    def _numbered(self, messages: PublishedMessages) -> TrackedChunk:
        first = self._numbers + 1
        self._numbers += len(messages)
        return TrackedChunk(messages, self._lead, first)
