"""Publishing into streams with many messages in flight; `Publisher.flush` waits for every acknowledgement.

A message is kept until its PubAck has arrived. When the connection is lost, or the server is too busy for some,
they are sent again; a message id makes that harmless within the stream's duplicate window.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from turnout.base.histogram import Histogram
from turnout.base.startup import pc
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, decimal
from turnout.errors import ConnectionLostError, StreamError
from turnout.loops.frames import BODY, END, PAYLOAD, SUBJECT, SUBJECT_END
from turnout.nats.protocol import headers as _headers
from turnout.nats.protocol.options import DEFAULT_WINDOW
from turnout.nats.wire._window import (
    Answers,
    Refusals,
    TrackedChunk,
    Window,
    answer_of,
    concerns_all,
    forbidden_subject,
)
from turnout.nats.wire.connection import Connection
from turnout.nats.wire.packing import PublishedColumns, PublishedLists, PublishedMessages, small_enough
from turnout.nats.wire.records import Frames, locate, shift, with_room
from turnout.records.published import Published, Refuse
from turnout.records.types import Binaries, Strings

_CHUNK_MESSAGES = 1000
_CHUNK_BYTES = 1 << 18
_WINDOW_BYTES = 32 << 20
# After this long without an answer, not even to a PING, the connection is taken for dead.
_SILENCE_SECONDS = 10.0
# After this part of it without an acknowledgement the server is asked whether it is there, and has streams.
_DOUBT = 0.2
_PAUSE_SECONDS = 0.25


class Publisher:
    """Publishes over a connection that it has for itself.

    Args:
        connection: it is opened again when it is lost.
        window: the most messages without acknowledgement. Several publishers to one server should stay below
            10,000 together: beyond that it drops messages (and this class sends them again).
        expected_stream: the stream that must store them (``Nats-Expected-Stream``).
        allow: patterns of the subjects that may be published on; None allows all but those of `Rights.protection`:
            the server's own, inboxes, and the connection's API prefix. Only a pattern that names the first token of
            one of these opens it.

    Not promised: the order, when the server refuses one for the moment and takes the next.
    """

    def __init__(
        self,
        connection: Connection,
        window: int = DEFAULT_WINDOW,
        expected_stream: str | None = None,
        allow: Sequence[str] | None = None,
    ) -> None:
        self._connection = connection
        self._limit = max(1, window)
        self._step = max(1, min(_CHUNK_MESSAGES, self._limit // 2))
        self._inbox = connection.new_inbox()
        self._window = Window(f"{self._inbox}.".encode())
        self._expected = b"Nats-Expected-Stream: %b\r\n" % expected_stream.encode() if expected_stream else b""
        self._rows: list[tuple[str, bytes, bytes]] = []
        self._rows_bytes = 0
        self._refusals = Refusals(connection.options, allow)
        self._memory = bytearray(1 << 20)
        self._filled = 0
        self._published = Published()
        self._retries = connection.retry_window()
        self._heard = 0.0
        self._pinged: float | None = None
        self._sent_again = 0.0
        self._subscribe()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    @property
    def unacknowledged(self) -> int:
        """Number of messages that were sent and have no acknowledgement."""
        return self._window.unacknowledged

    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: Sequence[tuple[str, bytes | str]] = (),
        message_id: str | None = None,
    ) -> None:
        """Take one message; it is sent with others, at the latest by `flush`.

        Raises:
            ConfigError: when a header cannot be.
            StreamError: when the subject or the size cannot be, or an earlier message was refused for good.
        """
        lines = _headers.lines([(_headers.MESSAGE_ID, message_id), *headers] if message_id is not None else headers)
        self._rows.append((subject, payload, lines))
        self._rows_bytes += len(payload)
        if len(self._rows) >= self._step or self._rows_bytes >= _CHUNK_BYTES:
            self._publish_rows()

    def publish_columns(
        self, subjects: Strings, payloads: Binaries, lines: Binaries | None = None, refused: Refuse | None = None
    ) -> None:
        """Take many messages as Arrow arrays, and wait while the window is full.

        Args:
            subjects: strings without nulls.
            payloads: binary without nulls.
            lines: ids and headers as packed by `turnout.nats.wire.packing`; None without any.
            refused: called with the row of each message that will never be stored, because of its subject, its size
                or its stream, at the latest by `flush`. The others are stored. Without it, that is an error.

        Raises:
            StreamError: as `publish`; with *refused* only for what concerns all of them (JetStream is off).
        """
        self._publish_rows()
        if refused is None:
            # A subject that is an error anyway is one before any message is sent.
            self._refusals.publishable(PublishedColumns(subjects, payloads, lines))
        ends = np.cumsum(pc.binary_length(payloads).to_numpy(zero_copy_only=False), dtype=np.int64)
        start = 0
        while start < len(subjects):
            before = int(ends[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends, before + _CHUNK_BYTES, side="right"))
            stop = max(start + 1, min(start + self._step, fitting))
            size = stop - start
            some = lines.slice(start, size) if lines is not None else None
            rows = np.arange(start, stop) if refused is not None else None
            self._send(PublishedColumns(subjects.slice(start, size), payloads.slice(start, size), some, refused, rows))
            start = stop

    def publish_lists(
        self,
        subjects: Sequence[str],
        payloads: Sequence[bytes],
        lines: Sequence[bytes] | None = None,
        refused: Refuse | None = None,
    ) -> None:
        """Take a few messages as lists, and send them: as `publish_columns`, which takes longer for so few.

        Raises:
            StreamError: as `publish_columns`.
        """
        if len(subjects) > self._step or sum(map(len, payloads)) > _CHUNK_BYTES:
            heads = None if lines is None else pa.array(lines, pa.binary())
            self.publish_columns(pa.array(subjects, pa.string()), pa.array(payloads, pa.binary()), heads, refused)
            return
        self._publish_rows()
        if self._expected:
            lines = [line + self._expected for line in lines or [b""] * len(subjects)]
        if subjects:
            self._send_chunk(PublishedLists(subjects, payloads, lines, refused))

    def flush(self) -> Published:
        """Send what waits and wait for every acknowledgement; the counts since the last flush.

        Raises:
            StreamError: when a message was refused; which of the others were stored is not known.
            ConnectionLostError: no reconnection in time.
        """
        self._publish_rows()
        self._drain(0, 0)
        self._settle(0)
        published, self._published = self._published, Published()
        return published

    def collect(self) -> None:
        """Process the acknowledgements that have arrived, without a wait for others.

        Raises:
            StreamError: as `flush`.
            ConnectionLostError: likewise.
        """
        try:
            if self.unacknowledged and self._connection.wait(0.0):
                self._heard = time.monotonic()
                self._collect()
        except ConnectionLostError:
            self._again()

    # -- sending

    def _publish_rows(self) -> None:
        if not self._rows:
            return
        subjects, payloads, lines = zip(*self._rows, strict=True)
        self._rows.clear()
        self._rows_bytes = 0
        heads = pa.array(lines, type=pa.binary()) if any(lines) else None
        self._send(PublishedColumns(pa.array(subjects, type=pa.string()), pa.array(payloads, type=pa.binary()), heads))

    def _send(self, messages: PublishedColumns) -> None:
        """Send one chunk with the header of the expected stream, and wait if the window is full after it."""
        if self._expected:
            expected = pa.repeat(pa.scalar(self._expected, type=pa.binary()), len(messages))
            empty = pa.scalar(b"", type=pa.binary())
            lines = messages.lines
            lines = expected if lines is None else pc.binary_join_element_wise(lines, expected, empty)
            messages = replace(messages, lines=lines)
        self._send_chunk(messages)

    def _send_chunk(self, messages: PublishedMessages) -> None:
        messages = small_enough(self._refusals.publishable(messages), self._connection.max_payload)
        if not len(messages):
            return
        frames = self._window.add(messages)
        try:
            self._connection.send(frames)
        except ConnectionLostError:
            self._again()
        self._drain(self._limit - self._step, _WINDOW_BYTES)

    def _subscribe(self) -> None:
        self._filled = 0
        self._pinged = None
        self._connection.subscribe(f"{self._inbox}.*")

    def _again(self) -> None:
        """Reconnect and send every unacknowledged message again."""
        while True:
            if self._retries.is_over:
                raise ConnectionLostError(f"{self._window.unacknowledged:,} messages could not be delivered in time")
            try:
                self._connection.reconnect(self._retries.until)
                self._subscribe()
                for frames in self._window.renew():
                    self._connection.send(frames)
            except ConnectionLostError:
                time.sleep(_PAUSE_SECONDS)
                continue
            # The silence of the connection that was lost is none of this one's.
            self._heard = time.monotonic()
            return

    # -- acknowledgements

    def _drain(self, messages: int, size: int) -> None:
        """Wait until no more than *messages*, and *size* bytes, are without acknowledgement."""
        self._heard = time.monotonic()
        while (left := self._window.unacknowledged) > messages or (size and left > 1 and self._window.size > size):
            try:
                self._collect()
            except ConnectionLostError:
                self._again()

    def _collect(self) -> None:
        """Process received acknowledgements; wait for the first."""
        self._memory = with_room(self._memory, self._filled)
        view = memoryview(self._memory)
        try:
            count = self._connection.receive_into(view[self._filled :], _SILENCE_SECONDS * _DOUBT)
        finally:
            view.release()
        if count == 0:
            self._doubt()
            return
        self._filled += count
        self._filled = shift(self._memory, self._filled, self._take_frames())

    def _take_frames(self) -> int:
        """Process the complete frames of the buffer, whatever they are, and return their number of bytes."""
        with self._connection.reading():
            frames = locate(self._memory, self._filled, self._connection.largest_message)
        for line in frames.lines:
            self._control(line)
        if len(frames):
            self._hear()
            self._acknowledge(frames)
        elif time.monotonic() > self._heard + 2 * _SILENCE_SECONDS:
            # A server that talks of other things only is as good as one that is silent.
            if self._pinged is None or self._connection.awaits_pong:
                raise self._silent()
            self._find_unacknowledged(time.monotonic())
        return frames.consumed

    def _hear(self) -> None:
        self._heard, self._pinged = time.monotonic(), None

    def _doubt(self) -> None:
        """Ask a server that has sent nothing for a while whether it is there; if so, find what it does not acknowledge.

        Raises:
            ConnectionLostError: it is not there.
        """
        now = time.monotonic()
        if self._pinged is None:
            self._pinged = self._sent_again = now
            self._connection.send_ping()
        elif self._connection.awaits_pong:
            if now > self._pinged + _SILENCE_SECONDS * (1 - _DOUBT):
                raise self._silent()
        else:
            self._find_unacknowledged(now)

    def _find_unacknowledged(self, now: float) -> None:
        """Refuse messages that will not be acknowledged by a server that has read them all, and answers.

        They are not sent again, unless their ids make that harmless: some streams store without acknowledging.
        """
        # Which messages of a chunk have been answered, only numbers of their own tell.
        if frames := self._window.track_all():
            for some in frames:
                self._connection.send(some)
            return
        is_over = self._retries.is_over
        refused = 0
        try:
            for subject in self._window.waiting_subjects():
                reason = self._refusals.silence(subject, time.monotonic() - self._heard if is_over else None)
                if reason is not None:
                    refused += self._window.forbid(subject, reason)[0]
        finally:
            self._refusals.close()
        self._settle(refused)
        if now > self._sent_again + _SILENCE_SECONDS:
            self._sent_again = now
            for some in self._window.repeatable():
                self._connection.send(some)

    def _control(self, line: bytes) -> None:
        """Handle a line that is no message; a forbidden subject affects only the messages on it."""
        try:
            self._connection.control(line)
        except StreamError as reason:
            subject = forbidden_subject(reason)
            if subject is None:
                raise
            # Each message on it has such a line, and the first has settled them all.
            if self._refusals.given_up(subject) is None:
                self._forbid(subject, reason)

    def _forbid(self, subject: str, reason: StreamError) -> None:
        """Refuse unanswered and future messages on a subject: no answers will arrive."""
        self._refusals.give_up(subject, reason)
        refused, frames = self._window.forbid(subject, reason)
        for others in frames:
            self._connection.send(others)
        if not refused:
            raise reason
        self._settle(refused)

    def _refusal(self, chunk: TrackedChunk, number: int, head: bytes, answer: JsonObject) -> StreamError | None:
        """Return the reason for a permanent refusal of a message; None if a retry may succeed.

        Raises:
            StreamError: the refusal concerns all messages.
        """
        subject = chunk.subject(number)
        reason = self._refusals.reason(subject, number, head, answer, ask=chunk.messages.refused is not None)
        if reason is not None and concerns_all(reason):
            raise reason
        return reason

    def _silent(self) -> ConnectionLostError:
        self._connection.close()
        return ConnectionLostError("no acknowledgement arrived for a while")

    def _acknowledge(self, frames: Frames) -> None:
        answers = Answers.read(self._memory, frames)
        if answers is not None:
            self._settle(self._window.acknowledge(answers))
            return
        try:
            self._acknowledge_each(frames)
        finally:
            self._refusals.close()

    def _settle(self, acknowledged: int) -> None:
        """Remove completed chunks from the window, after *acknowledged* awaited answers."""
        if acknowledged:
            self._retries.progress()
        stored = duplicates = 0
        completed = self._window.let_go()
        for chunk in completed:
            known = max(0, chunk.duplicates - chunk.stored_before)
            duplicates += known
            stored += len(chunk.messages) - known - chunk.refused
        if completed:
            delivery = Histogram.of_each(chain.from_iterable(chunk.waits for chunk in completed))
            self._published += Published(stored, duplicates, delivery)

    def _acknowledge_each(self, frames: Frames) -> None:
        """Process answers one by one, for buffers with refusals or irregular answers."""
        again: list[tuple[TrackedChunk, int]] = []
        acknowledged = 0
        data = bytes(memoryview(self._memory)[: frames.consumed])
        for offsets in frames.table[:, : len(frames)].T.tolist():
            inbox = data[offsets[SUBJECT] : offsets[SUBJECT_END]]
            number = decimal(inbox.rpartition(b".")[2], LARGEST_SEQUENCE)
            if number is None:
                continue
            chunk = self._window.holder(number)
            answer = answer_of(data[offsets[PAYLOAD] : offsets[END]])
            if chunk is None:
                if "seq" in answer:
                    self._window.late(number, known=bool(answer.get("duplicate")))
                continue
            if "error" not in answer and "seq" in answer:
                self._refusals.heard(number)
                one = Answers(np.array([number]), np.array([int(bool(answer.get("duplicate")))]))
                acknowledged += self._window.answered(chunk, one)
            elif not isinstance(chunk, TrackedChunk):
                self._connection.send(self._window.track(chunk))
            elif (reason := self._refusal(chunk, number, data[offsets[BODY] : offsets[PAYLOAD]], answer)) is None:
                again.append((chunk, number))
            else:
                chunk.refuse(number, reason)
                acknowledged += 1
        self._settle(acknowledged)
        if again:
            if self._retries.is_over:
                subject = again[0][0].subject(again[0][1])
                raise self._refusals.for_too_long(subject, len(again), self._connection.options.reconnect_timeout)
            time.sleep(_PAUSE_SECONDS)
            self._connection.send(b"".join(chunk.frame(number) for chunk, number in again))
