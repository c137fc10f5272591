"""A range of a stream read by sequence, without any consumer (ADR-31, direct get in batches).

Slower than a pull consumer, as the server adds some 150 bytes of headers to each message. It is for streams
whose messages go when a consumer acknowledges them: work queues allow no second consumer, and messages read
here can be read again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import numpy as np

from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, decimal
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.headers import ADDED_BY_DIRECT_GETS, parse
from turnout.nats.protocol.status import END_OF_BATCH, NO_MESSAGES, NO_RESPONDERS
from turnout.nats.wire.connection import Connection, Message
from turnout.nats.wire.pull import Range, hole
from turnout.nats.wire.rows import Row, record_batch, row
from turnout.records.types import ArrowBatch

_BATCH_MESSAGES = 5000
_BATCH_BYTES = 8 << 20


class DirectReader:
    """Reads one `Range`, of at most one filter, once.

    Attributes:
        hole: as with `turnout.nats.wire.pull.PullReader`.
    """

    def __init__(self, connection: Connection, range_: Range) -> None:
        self._connection = connection
        self._range = range_
        self._next = max(1, range_.start)
        self._last = self._next - 1
        self.hole: int | None = None

    @property
    def next(self) -> int:
        """Sequence after the last message received; after the read, the rest of the range holds no messages."""
        return self._last + 1

    def batches(self) -> Iterator[ArrowBatch]:
        """The record batches, of `turnout.nats.wire.records.SCHEMA`, in the order of the stream.

        Raises:
            StreamError: when the stream does not allow direct access, or is not there.
            ConnectionLostError: no reconnection in time.
        """
        retries = self._connection.retry_window()
        stored = self._range.time
        while self._next < self._range.end:
            try:
                if not self._connection.is_open:
                    self._connection.reconnect(retries.until)
                before = self._next
                # No consumer ends with the stream: whose messages the last batch had, is known at the end of the range.
                self._range.check(self._connection, self.next, stored)
                rows, done = self._ask()
            except ConnectionLostError:
                if retries.is_over:
                    raise
                continue
            retries.progress()
            if self._next == before and not done:
                raise StreamError(f"stream {self._range.stream!r}: messages are pending, but none arrive")
            if rows:
                sequences = np.array([row.offset for row in rows])
                self.hole, self._last = hole(sequences, self.next), rows[-1].offset
                stored = rows[-1].timestamp
                yield record_batch(rows)
            if done:
                break
        self._range.check(self._connection, self.next, stored)

    def _ask(self) -> tuple[list[Row], bool]:
        """Read one batch: its rows within the range, and True if no messages remain after it."""
        connection, range_ = self._connection, self._range
        inbox = connection.new_inbox()
        number = connection.subscribe(inbox)
        request: JsonObject = {
            "seq": self._next,
            "batch": min(_BATCH_MESSAGES, range_.end - self._next),
            "max_bytes": _BATCH_BYTES,
        }
        if range_.filters:
            request["next_by_subj"] = range_.filters[0]
        subject = f"DIRECT.GET.{range_.stream}"
        connection.publish_api(subject, json.dumps(request).encode(), inbox)
        rows: list[Row] = []
        following = self._next
        try:
            for message in connection.messages(time.monotonic() + 4 * connection.options.timeout):
                if message.subject != inbox:
                    continue
                ended = self._ended(message)
                if ended is not None:
                    connection.unsubscribe(number)
                    # Advanced only now: a batch that a lost connection cut off is requested again as a whole.
                    self._next = following
                    return rows, ended
                row = _row(range_.stream, message)
                if row.offset < following:
                    raise StreamError(f"{subject}: message {row.offset} arrived after {following - 1}")
                following = row.offset + 1
                if row.offset < range_.end:
                    rows.append(row)
        except TimeoutError:
            connection.close()
            raise ConnectionLostError("a direct get was not answered to its end") from None
        raise AssertionError("messages() ends by raising only")

    def _ended(self, message: Message) -> bool | None:
        """Return None for a message; for a status, True if no messages remain after this batch."""
        status = message.status
        if status is None:
            return None
        if status.code == END_OF_BATCH:
            pending = dict(parse(message.headers)).get("Nats-Num-Pending", b"0")
            return not pending.strip(b"0")
        if status.code == NO_MESSAGES:
            return True
        if status.code == NO_RESPONDERS:
            raise StreamError(
                f"stream {self._range.stream!r} does not answer direct gets: it needs allow_direct for this", code=503
            )
        raise StreamError(f"stream {self._range.stream!r}: {status.text or 'refused'}", code=status.code)


def _row(stream: str, message: Message) -> Row:
    pairs = parse(message.headers)
    added = {name: value.decode("utf-8", "replace") for name, value in pairs if name in ADDED_BY_DIRECT_GETS}
    own = [(name, value) for name, value in pairs if name not in ADDED_BY_DIRECT_GETS]
    sequence = decimal(added.get("Nats-Sequence", ""), LARGEST_SEQUENCE)
    try:
        if sequence is not None:
            return row(added["Nats-Subject"], sequence, message.payload, own, added["Nats-Time-Stamp"])
    except (KeyError, ValueError):
        # Reported below, with all messages.
        pass
    raise StreamError(f"stream {stream!r}: the answer to a direct get has no position: {added!r:.200}")
