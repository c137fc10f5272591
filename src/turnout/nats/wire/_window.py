"""The window of a publisher: messages sent without acknowledgement, chunk by chunk, and what refusals mean for them."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa

from turnout.base.startup import pc
from turnout.base.untrusted import JsonObject
from turnout.errors import StreamError
from turnout.loops.frames import mark_answers, read_answers
from turnout.nats.protocol.errors import NoMatchingStreamError, api_error
from turnout.nats.protocol.frames import read_object
from turnout.nats.protocol.headers import NO_RESPONDERS, read_status
from turnout.nats.protocol.options import ConnectionOptions
from turnout.nats.wire.connection import Connection
from turnout.nats.wire.packing import Numbers, PublishedMessages
from turnout.nats.wire.records import Frames
from turnout.nats.wire.streams import storing_problem, stream_info, streams_of
from turnout.subjects import matches
from turnout.subjects.pattern import MAX_BYTES, Rights

TOO_MANY: Final = 429
_MAX_TRIES = 4
# Too many requests; JetStream temporarily unavailable; insufficient resources; no leader yet.
_PASSING = frozenset({10008, 10009, 10023, 10167})
# JetStream is not enabled, or out of resources, for the server or the account.
_SERVER_WIDE = frozenset({10002, 10028, 10039, 10047, 10076})
_SUBJECT = re.compile(r"[^\s.*>\x00][^\s.\x00]*(?:\.[^\s.*>\x00][^\s.\x00]*)*")
_FORBIDDEN = re.compile(r'Permissions Violation for Publish to "([^"]*)"')
_NO_ANSWER: Final = 408
_MOVED_SECONDS = 2.0
"""Seconds without responders after which a subject, whose stream has a leader, is taken for moved."""

_LOOKUP_VALID_SECONDS = 1.0
"""Seconds for which a subject is assumed to have a stream."""
_GIVEN_UP_SECONDS = 60.0
"""Seconds after which a subject that was given up is tried again: a stream may take it by now."""

_MAX_SUBJECTS = 10_000
_SHOWN_CHARACTERS = 200


def answer_of(payload: bytes) -> JsonObject:
    """Parse a stream's reply; empty if it is not a JSON object."""
    try:
        return read_object(payload, request="PubAck")
    except StreamError:
        return {}


def concerns_all(reason: StreamError) -> bool:
    """Return True if a refusal concerns the server or the account, not one message or its stream."""
    return reason.err_code in _SERVER_WIDE


def forbidden_subject(reason: StreamError) -> str | None:
    """Return the subject of a publish permission violation from an ``-ERR``; None for other errors."""
    forbidden = _FORBIDDEN.search(str(reason))
    return forbidden[1] if forbidden else None


class Refusals:
    """Refusal state of one publisher, by subject.

    Args:
        options: for a connection to list the streams: the publisher's own is full of answers.
        allow: see `turnout.nats.wire.publisher.Publisher`.
    """

    def __init__(self, options: ConnectionOptions, allow: Sequence[str] | None = None) -> None:
        self._rights = Rights(allow, prefixes=(options.api_prefix, options.inbox_prefix))
        self._given_up: dict[str, tuple[StreamError, float]] = {}
        self._options = options
        self._published: set[str] = set()
        self._unheard: dict[int, int] = {}
        self._has_stream: dict[str, float] = {}
        self._unanswered: dict[str, tuple[float, float]] = {}
        """Subject of a stream → when it first had no responders, and when last."""
        self._passing: dict[str, str] = {}
        self._silent_streams: list[tuple[tuple[str, ...], str, float]] = []
        self._asking: Connection | None = None

    def give_up(self, subject: str, reason: StreamError) -> None:
        """Remember for a while that no message on a subject will be stored."""
        if len(self._given_up) >= _MAX_SUBJECTS:
            self._given_up.clear()
        self._given_up[subject] = reason, time.monotonic() + _GIVEN_UP_SECONDS
        self._published.discard(subject)

    def given_up(self, subject: str) -> StreamError | None:
        """Return the reason that a subject is given up; None if it is not, or if it has been for long enough."""
        reason, until = self._given_up.get(subject, (None, 0.0))
        if reason is not None and time.monotonic() > until:
            del self._given_up[subject]
            return None
        return reason

    def publishable(self, messages: PublishedMessages) -> PublishedMessages:
        """Return the publishable messages; malformed and given-up subjects are refused.

        Raises:
            StreamError: where refusals are not collected.
        """
        bad: dict[str, StreamError] = {}
        for subject in messages.distinct_subjects():
            if subject in self._published:
                continue
            given_up = self.given_up(subject) if self._given_up else None
            if given_up is not None and messages.refused is not None:
                bad[subject] = given_up
            elif problem := self._problem(subject):
                bad[subject] = StreamError(f"{subject[:_SHOWN_CHARACTERS]!r} {problem}", code=400)
            elif (reason := self._silent_reason(subject)) is not None:
                bad[subject] = reason
            elif given_up is None:
                if len(self._published) >= _MAX_SUBJECTS:
                    self._published.clear()
                self._published.add(subject)
        if not bad:
            return messages
        subjects = messages.subjects.to_pylist()
        for row, subject in enumerate(subjects):
            if subject in bad:
                messages.refuse(row, bad[subject])
        return messages.take(np.flatnonzero([subject not in bad for subject in subjects]))

    def _problem(self, subject: str) -> str | None:
        """Return the reason that nothing is sent on a subject, whatever the server would say; None if there is none.

        The server would take a request to JetStream's API from data, as from any client.
        """
        if not _SUBJECT.fullmatch(subject):
            return "is no subject to publish on"
        if len(subject) > MAX_BYTES // 4 and (size := len(subject.encode())) > MAX_BYTES:
            return f"has {size:,} bytes: a subject to publish on has at most {MAX_BYTES:,}"
        refusal = self._rights.refusal(subject)
        if refusal is None or not self._rights.protection(subject):
            return refusal
        first = subject.partition(".")[0]
        return f"{refusal}, and the sink's allow has no pattern that begins with {first!r}"

    def heard(self, number: int) -> None:
        """Reset the no-responders count of a message."""
        self._unheard.pop(number, None)

    def close(self) -> None:
        """Close the connection used for lookups; the next lookup opens a new one."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.close()

    def reason(self, subject: str, number: int, head: bytes, answer: JsonObject, *, ask: bool) -> StreamError | None:
        """Return the reason for a permanent refusal of a message; None if a retry may succeed.

        Args:
            subject: subject of the message.
            number: number of the message.
            head: the header block of the answer.
            answer: its JSON object.
            ask: whether to query the server if a stream accepts the subject and only has no leader now: then a
                message is given up at once where none does, and otherwise tried for as long as the connection allows.

        Raises:
            StreamError: the server does not say which streams there are.
            ConnectionLostError: it is away.
        """
        code, text = (read_status(head) if head else None) or (0, "")
        if code == NO_RESPONDERS:
            return self._nobody(subject, number, ask=ask)
        if code == TOO_MANY:
            self._passing[subject] = text
            return None
        if code:
            return StreamError(f"publishing on {subject!r} was refused: {text}", code=code)
        if "error" not in answer:
            return StreamError(f"what answers on {subject!r} is no stream: nothing was stored there")
        refusal = api_error(answer["error"], request=f"publishing on {subject!r} was refused")
        if refusal.err_code in _PASSING or refusal.code == TOO_MANY:
            self._passing[subject] = str(refusal)
            return None
        return refusal

    def for_too_long(self, subject: str, count: int, seconds: float) -> StreamError:
        """Return the error of messages, one of them on *subject*, that were refused for the moment again and again."""
        problem = self._passing.get(subject, "the stream that has the subject has no leader")
        text = f"{count:,} messages are refused for too long ({seconds:g} seconds), as on {subject!r}: {problem}"
        return StreamError(text, code=TOO_MANY)

    def silence(self, subject: str, seconds: float | None) -> StreamError | None:
        """Return the reason that messages on a subject are never acknowledged; None if they may be.

        Args:
            subject: subject of the messages.
            seconds: how long the server, which answers, has been waited for; None if it still is.

        Raises:
            ConnectionLostError: the server is away.
        """
        reason = self._silent_reason(subject)
        if reason is None:
            try:
                reason = self._reason_of_streams(subject)
                others = (
                    "the server answers, and a stream has the subject: a mapping of the account may move or drop it"
                )
            except StreamError as failure:
                others = f"the server answers, but not which streams there are: {failure}"
            if reason is None and seconds is not None:
                text = f"no acknowledgement for {subject!r} arrived in {seconds:.0f} seconds"
                reason = StreamError(f"{text}; {others}", code=_NO_ANSWER)
        if reason is not None:
            self.give_up(subject, reason)
        return reason

    def _reason_of_streams(self, subject: str) -> StreamError | None:
        names = streams_of(self._connection, subject)
        if not names:
            text = f"no stream listens on {subject!r}, where others take messages: nothing was stored there"
            return NoMatchingStreamError(text, code=NO_RESPONDERS)
        for name in names:
            config = stream_info(self._connection, name)["config"]
            problem = storing_problem(config)
            if problem is not None:
                until = time.monotonic() + _GIVEN_UP_SECONDS
                patterns = tuple(config.get("subjects") or ())
                self._silent_streams.append((patterns, f"the stream {name!r} {problem}", until))
                return self._silent_reason(subject)
        return None

    def _silent_reason(self, subject: str) -> StreamError | None:
        """Return the reason that the stream of a subject is known to acknowledge nothing."""
        if self._silent_streams and time.monotonic() > self._silent_streams[0][2]:
            del self._silent_streams[0]
        for patterns, problem, _ in self._silent_streams:
            if any(matches(pattern, subject) for pattern in patterns):
                return StreamError(f"publishing on {subject!r}: {problem}", code=_NO_ANSWER)
        return None

    def _nobody(self, subject: str, number: int, *, ask: bool) -> StreamError | None:
        if (given_up := self.given_up(subject)) is not None:
            return given_up
        text = f"no stream listens on {subject!r}: nothing was stored there"
        if ask:
            if self._is_taken(subject):
                if not self._is_moved(subject):
                    return None
                text = (
                    f"nothing listens on {subject!r}, though a stream with a leader has the subject: a mapping of the"
                    " account may move or drop it; nothing was stored there"
                )
        else:
            # A stream that is just starting, or changing its leader, does not listen for a moment.
            tries = self._unheard[number] = self._unheard.get(number, 0) + 1
            if tries < _MAX_TRIES:
                return None
        reason = NoMatchingStreamError(text, code=NO_RESPONDERS)
        self.give_up(subject, reason)
        return reason

    def _is_moved(self, subject: str) -> bool:
        """Return True if a subject has had no responders for a while though its stream answers, and so has a leader."""
        now = time.monotonic()
        since, last = self._unanswered.get(subject, (now, now))
        if now > last + _MOVED_SECONDS:
            since = now
        if len(self._unanswered) >= _MAX_SUBJECTS:
            self._unanswered.clear()
        self._unanswered[subject] = since, now
        if now < since + _MOVED_SECONDS:
            return False
        try:
            return all(stream_info(self._connection, name) for name in streams_of(self._connection, subject)[:1])
        except StreamError:
            # Without a leader there is no answer; it is requested again later.
            self._unanswered[subject] = now, now
            return False

    @property
    def _connection(self) -> Connection:
        if self._asking is None:
            self._asking = Connection.open(self._options)
        return self._asking

    def _is_taken(self, subject: str) -> bool:
        """Return True if a stream captures the subject, with or without a leader."""
        if time.monotonic() < self._has_stream.get(subject, 0.0):
            return True
        if not streams_of(self._connection, subject):
            return False
        self._has_stream[subject] = time.monotonic() + _LOOKUP_VALID_SECONDS
        return True


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
