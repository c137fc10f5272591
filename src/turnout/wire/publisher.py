"""Messages into streams, many under way at once, none forgotten: `Publisher.flush` returns when each is acknowledged.

A message stays here until its PubAck has come. When the connection is lost, or the server is too busy for some,
they are sent again; a message id makes that harmless within the stream's duplicate window.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from turnout.errors import ConnectionLostError, StreamError
from turnout.wire import headers as _headers
from turnout.wire._digits import numbers_before, windows
from turnout.wire.connection import Connection
from turnout.wire.frames import Frames, locate

__all__ = ["Published", "Publisher"]

_SUBJECT = re.compile(r"[^\s.*>\x00][^\s.\x00]*(?:\.[^\s.*>\x00][^\s.\x00]*)*")
_CHUNK_FRAMES = 500
_CHUNK_BYTES = 1 << 18
_WINDOW_BYTES = 32 << 20
_KNOWN_SUBJECTS = 10_000
# After this long without any acknowledgement the connection is taken for dead.
_SILENCE = 10.0
_NO_RESPONDERS_TRIES = 4
_PAUSE = 0.25
# Too many requests; JetStream temporarily unavailable; insufficient resources; no leader yet.
_PASSING = frozenset({10008, 10009, 10023, 10167})
_TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class Published:
    """What became of the messages since the last flush: stored anew, and known to the stream already."""

    stored: int = 0
    duplicates: int = 0

    def __add__(self, other: Published) -> Published:
        return Published(self.stored + other.stored, self.duplicates + other.duplicates)


class Publisher:
    """Publishes over a connection that it has for itself.

    Args:
        connection: it is opened again when it is lost.
        window: the most messages without acknowledgement. Several publishers to one server should stay below
            10,000 together: beyond that it drops messages (and this class sends them again).
        expected_stream: the stream that must store them (``Nats-Expected-Stream``).

    Not promised: the order, when the server refuses one for the moment and takes the next.
    """

    def __init__(self, connection: Connection, window: int = 4000, expected_stream: str | None = None) -> None:
        self._connection = connection
        self._window = max(1, window)
        self._expected = expected_stream
        self._inbox = connection.new_inbox()
        self._lead = f" {self._inbox}."
        self._plain_head = _headers.encode([("Nats-Expected-Stream", expected_stream)]) if expected_stream else b""
        self._id_head = self._plain_head[:-2] or b"NATS/1.0\r\n"
        self._inflight: dict[int, tuple[str, bytes]] = {}
        self._inflight_bytes = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._count = 0
        self._known: set[str] = set()
        self._no_responders: dict[int, int] = {}
        self._memory = bytearray(1 << 20)
        self._filled = 0
        self._done = Published()
        self._progress = time.monotonic()
        self._subscribe()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: Sequence[tuple[str, bytes | str]] = (),
        message_id: str | None = None,
    ) -> None:
        """Send one message, and wait only while the window is full.

        Raises:
            StreamError: when the subject or the size cannot be, or an earlier message was refused for good.
        """
        if subject not in self._known:
            self._check(subject)
        if headers or (message_id is not None and not _is_plain(message_id)):
            more = [("Nats-Expected-Stream", self._expected)] if self._expected else []
            ids = [(_headers.MESSAGE_ID, message_id)] if message_id is not None else []
            head = _headers.encode([*more, *ids, *headers])
        elif message_id is not None:
            head = b"%bNats-Msg-Id: %b\r\n\r\n" % (self._id_head, message_id.encode())
        else:
            head = self._plain_head
        number = self._count = self._count + 1
        if head:
            size = len(head)
            line = f"HPUB {subject}{self._lead}{number} {size} {size + len(payload)}\r\n"
        else:
            line = f"PUB {subject}{self._lead}{number} {len(payload)}\r\n"
        frame = b"%b%b%b\r\n" % (line.encode(), head, payload)
        if len(frame) > self._connection.max_payload:
            self._check_size(subject, len(head) + len(payload))
        self._inflight[number] = (subject, frame)
        self._inflight_bytes += len(frame)
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        if len(self._waiting) >= _CHUNK_FRAMES or self._waiting_bytes >= _CHUNK_BYTES:
            self._push()
        if len(self._inflight) >= self._window or self._inflight_bytes >= _WINDOW_BYTES:
            self._drain(self._window // 2, _WINDOW_BYTES // 2)

    def flush(self) -> Published:
        """Send what waits and wait for every acknowledgement; the counts since the last flush.

        Raises:
            StreamError: when a message was refused; which of the others were stored is not known.
            ConnectionLostError: when no server comes back in time.
        """
        self._drain(0, 0)
        done, self._done = self._done, Published()
        return done

    # -- checks

    def _check(self, subject: str) -> None:
        if not _SUBJECT.fullmatch(subject):
            raise StreamError(f"{subject!r} is no subject to publish on", code=400)
        if len(self._known) >= _KNOWN_SUBJECTS:
            self._known.clear()
        self._known.add(subject)

    def _check_size(self, subject: str, size: int) -> None:
        limit = self._connection.max_payload
        if size > limit:
            raise StreamError(
                f"a message on {subject!r} has {size:,} bytes with its headers, the server takes {limit:,}"
                " (its max_payload)",
                code=400,
            )

    # -- sending

    def _subscribe(self) -> None:
        self._filled = 0
        self._connection.subscribe(f"{self._inbox}.*")

    def _push(self) -> None:
        """Send what waits. What a broken connection swallows is in flight, and so is sent again."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        try:
            self._connection.send(data)
        except ConnectionLostError:
            self._again()

    def _again(self) -> None:
        """A new connection, and everything that has no acknowledgement once more."""
        deadline = self._progress + self._connection.options.reconnect_timeout
        while True:
            if time.monotonic() >= deadline:
                raise ConnectionLostError(f"{len(self._inflight):,} messages could not be delivered in time")
            try:
                self._connection.reconnect(deadline)
                self._subscribe()
                self._resend(list(self._inflight))
            except ConnectionLostError:
                continue
            self._waiting.clear()
            self._waiting_bytes = 0
            return

    def _resend(self, numbers: Sequence[int]) -> None:
        for at in range(0, len(numbers), _CHUNK_FRAMES):
            chunk = numbers[at : at + _CHUNK_FRAMES]
            self._connection.send(b"".join(self._inflight[number][1] for number in chunk))

    # -- acknowledgements

    def _drain(self, messages: int, size: int) -> None:
        """Wait until no more than *messages*, and *size* bytes, are without acknowledgement."""
        self._progress = time.monotonic()
        if self._waiting:
            self._push()
        while len(self._inflight) > messages or self._inflight_bytes > size > 0:
            try:
                self._collect()
            except ConnectionLostError:
                self._again()

    def _collect(self) -> None:
        """Take the acknowledgements that have come, waiting for the first."""
        if self._filled == len(self._memory):
            larger = bytearray(2 * len(self._memory))
            larger[: self._filled] = self._memory
            self._memory = larger
        view = memoryview(self._memory)
        try:
            count = self._connection.receive_into(view[self._filled :], _SILENCE)
        finally:
            view.release()
        if count == 0:
            self._connection.close()
            raise ConnectionLostError("no acknowledgement came for a while")
        self._filled += count
        frames = locate(self._memory, self._filled)
        for line in frames.lines:
            self._connection.control(line)
        if len(frames):
            self._acknowledge(frames)
        left = self._filled - frames.consumed
        if frames.consumed and left:
            self._memory[:left] = self._memory[frames.consumed : self._filled]
        self._filled = left

    def _acknowledge(self, frames: Frames) -> None:
        memory, end = self._memory, frames.consumed
        words = windows(memory, self._filled, "<u8")
        before_size = frames.size_start - 1
        regular = not frames.with_headers.any() and memory.find(b'"error"', 0, end) < 0
        if not (regular and memory.count(b'"seq":', 0, end) == len(frames)):
            self._acknowledge_each(frames)
            return
        _, sid_start = numbers_before(words, before_size)
        numbers, _ = numbers_before(words, sid_start - 1)
        duplicates = memory.count(b'"duplicate":', 0, end)
        taken = 0
        inflight = self._inflight
        for number in numbers.tolist():
            sent = inflight.pop(number, None)
            if sent is not None:
                taken += 1
                self._inflight_bytes -= len(sent[1])
        # An acknowledgement that nothing waited for came for a message that was sent twice.
        duplicates = max(0, duplicates - (len(frames) - taken))
        self._done += Published(taken - duplicates, duplicates)
        if taken:
            self._progress = time.monotonic()

    def _acknowledge_each(self, frames: Frames) -> None:
        """The same one by one, where something was refused."""
        again: list[int] = []
        for start, line_end, end in zip(frames.start, frames.line_end, frames.end, strict=True):
            parts = bytes(self._memory[start:line_end]).split()
            number = int(parts[1].rsplit(b".", 1)[1])
            if number not in self._inflight:
                continue
            head = int(parts[-2]) if parts[0] == b"HMSG" else 0
            body = bytes(self._memory[line_end + 2 : end])
            if self._answered(number, body[:head], body[head:]):
                _, sent = self._inflight.pop(number)
                self._inflight_bytes -= len(sent)
                self._no_responders.pop(number, None)
                self._progress = time.monotonic()
            else:
                again.append(number)
        if again:
            if time.monotonic() - self._progress > self._connection.options.reconnect_timeout:
                raise StreamError(f"{len(again):,} messages are refused for too long", code=_TOO_MANY)
            time.sleep(_PAUSE)
            self._resend(again)

    def _answered(self, number: int, head: bytes, payload: bytes) -> bool:
        """Whether the message is stored; False where it is worth another try.

        Raises:
            StreamError: when it never will be.
        """
        subject = self._inflight[number][0]
        code, text = (_headers.status(head) if head else None) or (0, "")
        if code == 503:
            # A stream that is just starting, or changing its leader, does not listen for a moment.
            tries = self._no_responders[number] = self._no_responders.get(number, 0) + 1
            if tries < _NO_RESPONDERS_TRIES:
                return False
            raise StreamError(f"no stream listens on {subject!r}: nothing was stored there", code=503)
        if code == _TOO_MANY:
            return False
        if code:
            raise StreamError(f"publishing on {subject!r} was refused: {text}", code=code)
        told = _json(payload)
        wrong = told.get("error")
        if wrong is not None:
            if wrong.get("err_code") in _PASSING or wrong.get("code") == _TOO_MANY:
                return False
            raise StreamError(
                f"publishing on {subject!r} was refused: {wrong.get('description')}",
                code=wrong.get("code", 0),
                err_code=wrong.get("err_code", 0),
            )
        if "seq" not in told:
            raise StreamError(f"what answers on {subject!r} is no stream: nothing was stored there")
        duplicate = bool(told.get("duplicate"))
        self._done += Published(int(not duplicate), int(duplicate))
        return True


def _json(payload: bytes) -> dict[str, Any]:
    try:
        told = json.loads(payload)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _is_plain(text: str) -> bool:
    return text.isprintable() and bool(text)
