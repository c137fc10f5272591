"""Vectorised conversion of the frames in a buffer to Arrow columns; see `turnout.nats.wire.listed` for a few frames.

The position of a message is in its reply subject (ADR-15, JSAck)::

    $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<timestamp>.<pending>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.deferred import pc
from turnout.nats.protocol.errors import BrokenFrameError, NotJetStreamMessageError
from turnout.nats.protocol.frames import MAX_SIZE_DIGITS
from turnout.nats.protocol.headers import MESSAGE_ID
from turnout.nats.protocol.positions import JSAck
from turnout.nats.wire.frames import Frames, numbers_before, windows
from turnout.nats.wire.listed import LONGEST_NUMBER, Listed
from turnout.records.header_column import ARROW
from turnout.records.types import ArrowArray, ArrowBatch, Binaries, Strings

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", ARROW),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns of a record, as Spark's Arrow expects them."""

Positions = NDArray[np.int64]
Integers = Positions | Sequence[int]

_ACK = np.uint64(int.from_bytes(b"$JS.ACK.", "little"))
# Five numbers of one digit with the dots between them.
_SHORTEST_NUMBERS = 9


@dataclass(frozen=True)
class Received:
    """The messages of one buffer.

    Attributes:
        make_columns: makes `columns`.
        sequences: their sequences in the stream.
        consumer_sequences: their sequences in the consumer, which have no gaps unless something was lost.
        sizes: how many bytes of a request each uses up: its topic, its reply subject, its headers and its payload.
        pending: how many messages of the stream the consumer has left behind the last one.
        statuses: (subject, header block) of the server's statuses, with their index: the number of messages before
            them.
        listed: the messages as lists, where they were read one by one.
    """

    make_columns: Callable[[], list[ArrowArray]]
    sequences: Integers
    consumer_sequences: Integers
    sizes: Integers
    pending: int
    statuses: list[tuple[int, str, bytes]] = field(default_factory=list)
    listed: Listed | None = None

    @classmethod
    def of_listed(cls, listed: Listed, partition: int = 0) -> Self:
        """Return messages that were read one by one."""
        columns = partial(listed.columns, partition)
        last = listed.pending[-1]
        return cls(columns, listed.sequences, listed.consumer_sequences, listed.sizes, last, listed=listed)

    @cached_property
    def columns(self) -> list[ArrowArray]:
        """Arrow arrays in the order of `SCHEMA`."""
        return self.make_columns()

    def time(self, index: int) -> int:
        """Return when a message was stored, in microseconds since 1970."""
        if self.listed is not None:
            return self.listed.times[index] // 1000
        return int(self.columns[-1][index].value)

    def batch(self, count: int) -> ArrowBatch:
        """Return the first *count* messages as a record batch of `SCHEMA`."""
        batch = pa.RecordBatch.from_arrays(self.columns, schema=SCHEMA)
        return batch if count == len(self.sequences) else batch.slice(0, count)


def decode(memory: bytearray, filled: int, frames: Frames, partition: int = 0) -> Received:
    """Read the *frames* of a buffer; nothing of the result refers to the buffer.

    Raises:
        StreamError: when a message has no JetStream position.
        BrokenFrameError: when a frame is none.
    """
    words = windows(memory, filled, "<u8")
    octets = np.frombuffer(memory, dtype=np.uint8, count=filled)
    body = frames.line_end + 2
    rows = np.flatnonzero(frames.with_headers)
    payload, before_size = _payloads(memory, words, frames, body, rows)
    statuses, keep = _statuses(memory, octets, frames, body, payload, rows)
    if keep is not None:
        frames, body, payload, before_size = (
            _rows(frames, keep),
            body[keep],
            payload[keep],
            before_size[keep],
        )
    if not len(frames):
        empty: Positions = np.zeros(0, dtype=np.int64)
        return Received(lambda: [pa.array([], type=field.type) for field in SCHEMA], empty, empty, empty, -1, statuses)
    at = _positions(memory, words, octets, frames, before_size)
    topic_start = frames.start + 4 + frames.with_headers
    values = _slices(memory, filled, payload, frames.end)
    keys, headers = _headers(memory, filled, body, payload, frames.with_headers)
    columns = [
        _strings(_slices(memory, filled, topic_start, at.topic_end)),
        pa.array(np.full(len(frames), partition, dtype=np.int32)),
        pa.array(at.sequence),
        keys,
        values,
        headers,
        pa.array(at.time // 1000).cast(pa.timestamp("us", tz="UTC")),
    ]
    sizes = (at.topic_end - topic_start) + (before_size - at.reply_start) + (frames.end - body)
    return Received(lambda: columns, at.sequence, at.consumer_sequence, sizes, int(at.pending[-1]), statuses)


def _payloads(
    memory: bytearray, words: NDArray[np.uint64], frames: Frames, body: Positions, rows: Positions
) -> tuple[Positions, Positions]:
    """Return the start of each payload, behind the headers of *rows*, and the end of each line before its sizes."""
    payload = body.copy()
    before_size = frames.size_start - 1
    if rows.size:
        sizes, begins = numbers_before(words, before_size[rows])
        digits = before_size[rows] - begins
        broken = (digits < 1) | (digits > MAX_SIZE_DIGITS) | (sizes > frames.end[rows] - body[rows])
        if broken.any():
            row = rows[np.argmax(broken)]
            line = bytes(memory[frames.start[row] : frames.line_end[row]])
            raise BrokenFrameError("HMSG", "the size of its headers is impossible", line)
        payload[rows] += sizes
        before_size[rows] = begins - 1
    return payload, before_size


def _rows(frames: Frames, keep: Positions) -> Frames:
    return Frames(
        frames.start[keep],
        frames.line_end[keep],
        frames.end[keep],
        frames.size_start[keep],
        frames.with_headers[keep],
        frames.consumed,
        frames.lines,
    )


def _statuses(
    memory: bytearray,
    octets: NDArray[np.uint8],
    frames: Frames,
    body: Positions,
    payload: Positions,
    rows: Positions,
) -> tuple[list[tuple[int, str, bytes]], Positions | None]:
    """Return the statuses among the frames: an empty payload and a code in the version line."""
    if not rows.size:
        return [], None
    # "NATS/1.0" is eight bytes; a blank behind it means that a code follows.
    rows = rows[(payload[rows] == frames.end[rows]) & (payload[rows] - body[rows] > 9)]
    status_rows = rows[octets[body[rows] + 8] == 32]
    if not status_rows.size:
        return [], None
    statuses = []
    for count, row in enumerate(status_rows):
        line = bytes(memory[frames.start[row] : frames.line_end[row]])
        block = bytes(memory[body[row] : payload[row]])
        statuses.append((int(row) - count, line.split(b" ", 2)[1].decode("utf-8", "replace"), block))
    keep = np.ones(len(frames), dtype=np.bool_)
    keep[status_rows] = False
    return statuses, np.flatnonzero(keep)


@dataclass(frozen=True, slots=True)
class _ReplyColumns:
    """Columns parsed from reply subjects, with the ends of topics and starts of reply subjects."""

    sequence: Positions
    consumer_sequence: Positions
    time: Positions
    pending: Positions
    topic_end: Positions
    reply_start: Positions


def _positions(
    memory: bytearray, words: NDArray[np.uint64], octets: NDArray[np.uint8], frames: Frames, reply_end: Positions
) -> _ReplyColumns:
    """Parse the numbers of each reply subject from its end; if any has another form, parse all in Python."""
    first = bytes(memory[frames.start[0] : reply_end[0]]).split(b" ")
    reply = first[3] if len(first) > 3 else b""
    tokens = reply.split(b".")
    if len(tokens) not in (9, 11):
        return _read_each(memory, frames, reply_end)
    lead = len(b".".join(tokens[:-5])) + 1
    if int((reply_end - frames.start).min()) < lead + _SHORTEST_NUMBERS:
        return _read_each(memory, frames, reply_end)
    end = reply_end
    numbers = []
    regular = True
    for _ in range(5):
        value, begin = numbers_before(words, end)
        digits = end - begin
        longest = digits.max()
        # Nineteen digits fit, or give a negative number.
        fitting = longest < LONGEST_NUMBER or (longest == LONGEST_NUMBER and value.min() >= 0)
        regular = bool(regular and fitting and digits.min() > 0 and (octets[begin - 1] == 46).all())
        numbers.append(value)
        end = begin - 1
    pending, time, consumer_sequence, sequence, _ = numbers
    reply_start = np.maximum(end + 1 - lead, 1)
    topic_end = np.maximum(reply_start - 2 - len(first[2]), 0)
    # The fields of another form would not have these bounds.
    fits = (words[reply_start] == _ACK) & (octets[reply_start - 1] == 32) & (octets[topic_end] == 32)
    if not (regular and fits.all() and (topic_end > frames.start + 4).all()):
        return _read_each(memory, frames, reply_end)
    return _ReplyColumns(sequence, consumer_sequence, time, pending, topic_end, reply_start)


def _read_each(memory: bytearray, frames: Frames, reply_end: Positions) -> _ReplyColumns:
    """The reply subjects one by one: for servers that put more behind the usual tokens."""
    table = np.empty((6, len(frames)), dtype=np.int64)
    for row in range(len(frames)):
        start = int(frames.start[row])
        line = bytes(memory[start : reply_end[row]])
        parts = line.split(b" ")
        if len(parts) < 3:
            raise BrokenFrameError("message", f"its line has {len(parts)} words before its size", line)
        reply = parts[3] if len(parts) > 3 else b""
        topic_end = start + len(parts[0]) + 1 + len(parts[1])
        try:
            at = JSAck.parse(reply.decode("utf-8", "replace"))
            table[:5, row] = (at.stream_seq, at.consumer_seq, at.timestamp_ns, at.num_pending, topic_end)
            table[5, row] = start + len(line) - len(reply)
        except (NotJetStreamMessageError, OverflowError):
            shown = parts[1].decode("utf-8", "replace")
            raise NotJetStreamMessageError(
                reply.decode("utf-8", "replace"),
                f"has no position: the message on {shown!r} is not from a stream",
            ) from None
    return _ReplyColumns(*table)


def _slices(memory: bytearray, filled: int, starts: Positions, ends: Positions) -> Binaries:
    """Return the bytes between each start and end, in ascending order, as a new binary array."""
    count = len(starts)
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    # Every second element is a wanted slice, the others are between them.
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(memoryview(memory)[:filled])]
    )
    return whole.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def _strings(array: Binaries) -> Strings:
    """Convert a binary array to text; bytes that are not UTF-8 become replacement characters."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([raw.decode("utf-8", "replace") for raw in array.to_pylist()], type=pa.string())


def _headers(
    memory: bytearray, filled: int, body: Positions, payload: Positions, with_headers: NDArray[np.bool_]
) -> tuple[ArrowArray, ArrowArray]:
    """The column of message ids and the column of all headers."""
    count = len(body)
    rows = np.flatnonzero(with_headers)
    if not rows.size:
        return pa.nulls(count, pa.binary()), pa.nulls(count, ARROW)
    if not (payload[rows] > body[rows]).any():
        return pa.nulls(count, pa.binary()), pa.nulls(count, ARROW)
    blocks = _slices(memory, filled, body[rows], payload[rows])
    edges = np.frombuffer(blocks.buffers()[1], dtype=np.int32)[: len(rows) + 1].astype(np.int64)
    packed = bytearray(blocks.buffers()[2].to_pybytes()[: edges[-1]])
    octets = np.frombuffer(packed, dtype=np.uint8)
    feeds = np.flatnonzero(octets == 10)
    # Of a block's line feeds the first ends the version line and the last its closing blank line.
    first = np.searchsorted(feeds, edges[:-1])
    lines = np.maximum(np.searchsorted(feeds, edges[1:]) - first - 2, 0)
    owner = np.repeat(np.arange(len(rows)), lines)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(lines) - lines, lines)
    line = first[owner] + within
    start = feeds[line] + 1
    end = feeds[line + 1]
    end = end - (octets[end - 1] == 13)
    colons = np.append(np.flatnonzero(octets == 58), len(packed))
    colon = colons[np.searchsorted(colons, start)]
    readable = (colon < end) & (colon > start)
    if not readable.all():
        owner, start, end, colon = owner[readable], start[readable], end[readable], colon[readable]
    value = colon + 1
    while (blank := (value < end) & np.isin(octets[np.minimum(value, len(packed) - 1)], (9, 32))).any():
        value = value + blank
    if not len(owner):
        return pa.nulls(count, pa.binary()), pa.nulls(count, ARROW)
    names = _slices(packed, len(packed), start, colon)
    values = _slices(packed, len(packed), value, end)
    return _ids(names, values, rows, owner, count), _lists(names, values, rows, owner, count)


def _ids(names: Binaries, values: Binaries, rows: Positions, owner: Positions, count: int) -> ArrowArray:
    """The first message id of each message, null where it has none."""
    named = np.flatnonzero(pc.equal(names, pa.scalar(MESSAGE_ID.encode())).to_numpy(zero_copy_only=False))
    if not named.size:
        return pa.nulls(count, pa.binary())
    indices = np.full(count, -1, dtype=np.int64)
    # Backwards, so that the first of several wins.
    indices[rows[owner[named[::-1]]]] = named[::-1]
    return values.take(pa.array(indices, mask=indices < 0))


def _lists(names: Binaries, values: Binaries, rows: Positions, owner: Positions, count: int) -> ArrowArray:
    """All headers as one list a message, null where it has none."""
    pairs = pa.StructArray.from_arrays([_strings(names), values], fields=list(ARROW.value_type))
    lengths = np.zeros(count, dtype=np.int64)
    lengths[rows] = np.bincount(owner, minlength=len(rows))
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=ARROW, mask=pa.array(lengths == 0))
