"""The window of a publisher: the messages that are sent and have no acknowledgement, chunk by chunk."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa

from turnout.base.deferred import pc
from turnout.errors import StreamError
from turnout.loops.frames import mark_answers, read_answers
from turnout.nats.wire.packing import Numbers, PublishedMessages
from turnout.nats.wire.records import Frames

_NAMES: Final = np.frombuffer(b'"seq":"error""duplicate":', np.uint8)


@dataclass
class Answers:
    """Answers that say that messages are stored.

    Attributes:
        numbers: the last token of each answer's subject.
        known: 1 for each that says that the stream knew the message, else 0.
    """

    numbers: Numbers
    known: Numbers

    @classmethod
    def read(cls, memory: bytearray, frames: Frames) -> Self | None:
        """Read the frames of a buffer; None where one of them is of another form."""
        numbers, known = np.empty(len(frames), np.int64), np.empty(len(frames), np.int64)
        data = np.frombuffer(memory, np.uint8)
        if not read_answers(data, frames.table, len(frames), _NAMES, numbers, known):
            return None
        return cls(numbers, known)

    @cached_property
    def counts(self) -> tuple[dict[int, int], dict[int, int]]:
        """Number of answers by their number, and of those from streams that knew the message."""
        numbers = self.numbers.tolist()
        return Counter(numbers), Counter(compress(numbers, self.known.tolist()))


class Chunk(Protocol):
    """Interface of a chunk of published messages, as the publisher uses it.

    Attributes:
        messages: the messages sent.
        left: how many of them have no acknowledgement.
        size: how many bytes their frames are.
        duplicates: how many the stream knew already when this chunk was sent.
        stored_before: how many of these it had stored as new when they were sent as another chunk.
        refused: how many will never be stored.
        waits: seconds until acknowledgements arrived, each with their number.
    """

    messages: PublishedMessages
    left: int
    size: int
    duplicates: int
    stored_before: int
    refused: int
    waits: list[tuple[float, int]]

    def holds(self, number: int) -> bool:
        """Return True if an acknowledgement with this number belongs to this chunk and is awaited."""

    def acknowledge(self, answers: Answers) -> int:
        """Process the answers for this chunk and return the number of awaited answers."""

    def waiting(self) -> bytes | memoryview:
        """The frames without acknowledgement."""


class CountedChunk:
    """Chunk with one reply subject for all messages, *lead* + *number*."""

    def __init__(self, messages: PublishedMessages, lead: bytes, number: int) -> None:
        self.messages = messages
        self.number = number
        self.left = len(messages)
        self.duplicates = 0
        self.stored_before = 0
        self.refused = 0
        self.waits: list[tuple[float, int]] = []
        data, edges = messages.frames(lead + b"%d" % number)
        self._data = data[int(edges[0]) : int(edges[-1])]
        self.size = len(self._data)

    def holds(self, number: int) -> bool:
        """Return True if the number is in this chunk's range."""
        return number == self.number and self.left > 0

    def acknowledge(self, answers: Answers) -> int:
        """Count the answers with this chunk's number."""
        counts, duplicates = answers.counts
        count = counts.get(self.number, 0)
        self.left -= count
        self.duplicates += duplicates.get(self.number, 0)
        return count

    def waiting(self) -> memoryview:
        """All frames: which of them are acknowledged is not known."""
        return self._data


class TrackedChunk:
    """Chunk with a separate reply subject for each message: *lead* and a number, starting at *first*."""

    def __init__(self, messages: PublishedMessages, lead: bytes, first: int) -> None:
        count = len(messages)
        self.messages = messages
        self.left = count
        self.duplicates = 0
        self.stored_before = 0
        self.refused = 0
        self.waits: list[tuple[float, int]] = []
        self._first = first
        self._acknowledged = np.zeros(count, np.uint8)
        self._data, self._edges = messages.frames(lead, first)
        self.size = int(self._edges[-1] - self._edges[0])

    def holds(self, number: int) -> bool:
        """Return True if the number belongs to this chunk and is not acknowledged yet."""
        row = number - self._first
        return 0 <= row < len(self._acknowledged) and not self._acknowledged[row]

    def acknowledge(self, answers: Answers) -> int:
        """Mark the answered messages and return their number; duplicate answers count once."""
        numbers = answers.numbers
        count, duplicates = mark_answers(numbers, answers.known, len(numbers), self._first, self._acknowledged)
        self.left -= count
        self.duplicates += duplicates
        return count

    def refuse(self, number: int, reason: StreamError) -> None:
        """Report a pending message that will never be stored, and stop waiting for it.

        Raises:
            StreamError: where refusals are not collected.
        """
        row = number - self._first
        self.messages.refuse(row, reason)
        self._acknowledged[row] = 1
        self.left -= 1
        self.refused += 1

    def waiting_on(self, subject: str) -> list[int]:
        """The numbers of the messages on a subject that wait for an answer."""
        same = pc.equal(self.messages.subjects, subject).to_numpy(zero_copy_only=False)
        return (np.flatnonzero(same & (self._acknowledged == 0)) + self._first).tolist()

    def waiting_subjects(self) -> list[str]:
        """Return the subjects of the messages that wait for an answer."""
        waiting = pa.array(np.flatnonzero(self._acknowledged == 0))
        subjects: list[str] = pc.unique(self.messages.subjects.take(waiting)).to_pylist()
        return subjects

    def subject(self, number: int) -> str:
        """The subject of one message."""
        subject: str = self.messages.subjects[number - self._first].as_py()
        return subject

    def frame(self, number: int) -> bytes:
        """The frame of one message."""
        row = number - self._first
        return bytes(self._data[self._edges[row] : self._edges[row + 1]])

    def waiting(self) -> bytes:
        """The frames without acknowledgement."""
        return b"".join(self.frame(int(row) + self._first) for row in np.flatnonzero(self._acknowledged == 0))


class Window:
    """Chunks in the order in which they were sent. It sends nothing itself: its methods return the bytes to send.

    Args:
        lead: prefix of the reply subject of each message; a number follows.
    """

    def __init__(self, lead: bytes) -> None:
        self._lead = lead
        self._chunks: list[Chunk] = []
        self._numbers = 0
        self._successors: dict[int, Chunk] = {}
        """Number of a chunk that was sent again → the chunk that it was sent as; answers to it may still arrive."""

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
        chunk = self._counted(messages) if messages.have_ids() else self._numbered(messages)
        self._chunks.append(chunk)
        return chunk.waiting()

    def renew(self) -> list[bytes | memoryview]:
        """The frames without acknowledgement, for a new connection.

        Answers to the lost connection may still arrive: messages get a new number.
        """
        for index, chunk in enumerate(self._chunks):
            if isinstance(chunk, CountedChunk):
                self._replace(index, chunk, self._counted(chunk.messages))
        return [chunk.waiting() for chunk in self._chunks]

    def holder(self, number: int) -> Chunk | None:
        """The chunk that waits for an answer with this number."""
        return next((chunk for chunk in self._chunks if chunk.holds(number)), None)

    def acknowledge(self, answers: Answers) -> int:
        """Process answers like `Chunk.acknowledge` and return the number of awaited answers.

        An unexpected one is for a message that was sent twice.
        """
        for number, chunk in self._successors.items():
            counts, duplicates = answers.counts
            chunk.stored_before += counts.get(number, 0) - duplicates.get(number, 0)
        return sum(self.answered(chunk, answers) for chunk in self._chunks)

    def answered(self, chunk: Chunk, answers: Answers) -> int:
        """Process answers for one chunk, and record the delivery time of its messages."""
        count = chunk.acknowledge(answers)
        if count:
            # One that is renewed counts all of its messages again, so that each is counted once in the end.
            chunk.waits.append((time.monotonic() - chunk.messages.since, count))
        return count

    def track(self, chunk: Chunk) -> bytes:
        """Assign a number to each message of a chunk, to identify its answer; return the frames.

        Their ids make it harmless to resend them.
        """
        numbered = self._numbered(chunk.messages)
        self._replace(self._chunks.index(chunk), chunk, numbered)
        return numbered.waiting()

    def track_all(self) -> list[bytes | memoryview]:
        """Assign numbers to the messages of all chunks that are counted; return their frames."""
        return [self.track(chunk) for chunk in list(self._chunks) if isinstance(chunk, CountedChunk)]

    def waiting_subjects(self) -> list[str]:
        """Return the subjects of messages without an answer; all chunks have numbers."""
        subjects: dict[str, None] = {}
        for chunk in self._chunks:
            if isinstance(chunk, TrackedChunk):
                subjects.update(dict.fromkeys(chunk.waiting_subjects()))
        return list(subjects)

    def repeatable(self) -> list[bytes | memoryview]:
        """Return the frames without an answer that may be sent again, as their ids are known."""
        return [chunk.waiting() for chunk in self._chunks if chunk.messages.have_ids()]

    def late(self, number: int, *, known: bool) -> None:
        """Process an answer to a message of a chunk that was sent again."""
        chunk = self._successors.get(number)
        if chunk is not None and not known:
            chunk.stored_before += 1

    def _replace(self, index: int, chunk: Chunk, successor: Chunk) -> None:
        """Let another chunk, with the same messages, stand for one that was sent."""
        assert isinstance(chunk, CountedChunk)
        answered = len(chunk.messages) - chunk.left
        # A message that this attempt has stored is a duplicate for the stream when it is sent again.
        successor.stored_before = chunk.stored_before + answered - chunk.duplicates
        replaced = {number: successor for number, other in self._successors.items() if other is chunk}
        self._successors |= {**replaced, chunk.number: successor}
        self._chunks[index] = successor

    def forbid(self, subject: str, reason: StreamError) -> tuple[int, list[bytes]]:
        """Refuse the messages on a subject that wait for an answer.

        Returns:
            Their number, and the frames of those that were counted with them.
        """
        refused = 0
        frames = []
        for index, chunk in enumerate(self._chunks):
            if not pc.any(pc.equal(chunk.messages.subjects, subject)).as_py():
                continue
            # Which messages of a chunk have been answered, only numbers of their own tell.
            tracked = chunk if isinstance(chunk, TrackedChunk) else self._numbered(chunk.messages)
            for number in tracked.waiting_on(subject):
                tracked.refuse(number, reason)
                refused += 1
            if tracked is not chunk:
                self._replace(index, chunk, tracked)
                frames.append(tracked.waiting())
        return refused, frames

    def let_go(self) -> list[Chunk]:
        """Remove the chunks without pending messages from the window and return them."""
        settled = [chunk for chunk in self._chunks if not chunk.left]
        if settled:
            self._chunks = [chunk for chunk in self._chunks if chunk.left]
            self._successors = {number: chunk for number, chunk in self._successors.items() if chunk.left}
        return settled

    def _counted(self, messages: PublishedMessages) -> CountedChunk:
        self._numbers += 1
        return CountedChunk(messages, self._lead, self._numbers)

    def _numbered(self, messages: PublishedMessages) -> TrackedChunk:
        first = self._numbers + 1
        self._numbers += len(messages)
        return TrackedChunk(messages, self._lead, first)
