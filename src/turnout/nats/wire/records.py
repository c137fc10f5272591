"""Records of a stream: their frames in a buffer, their columns, and single ones that were looked up.

The position of a message is in its reply subject (ADR-15, JSAck)::

    $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<timestamp>.<pending>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject
from turnout.loops.frames import (
    BODY,
    BROKEN,
    EDGES,
    END,
    FIRST,
    FRAME_FIELDS,
    FULL,
    HEADER_FIELDS,
    INCOMPLETE,
    KEY,
    NAME,
    NAME_END,
    PAYLOAD,
    PENDING,
    POSITION_FIELDS,
    REPLY,
    REPLY_END,
    SEQUENCE,
    SUBJECT,
    SUBJECT_END,
    TIME,
    VALUE,
    VALUE_END,
    copy_slices,
    find_frames,
    read_headers,
    read_positions,
)
from turnout.nats.protocol.errors import BrokenFrameError, NotJetStreamMessageError
from turnout.nats.protocol.frames import MAX_LINE_BYTES, MAX_MESSAGE_BYTES, MessageLine
from turnout.nats.protocol.headers import MESSAGE_ID
from turnout.nats.protocol.positions import JSAck, StreamIdentity
from turnout.records.batch import STREAM_ID, ListedRecords, Pairs
from turnout.records.headers import headers_type
from turnout.records.types import ArrowArray, ArrowBatch, Binaries, Strings

Integers = NDArray[np.int64]

_FEW_FRAMES: Final = 64


@dataclass(slots=True)
class Frames:
    """The complete frames of a buffer, in their order.

    Attributes:
        table: the rows of `turnout.loops.frames`, with at least a column for each frame.
        count: how many frames there are.
        consumed: how many bytes of the buffer are done with, other lines included.
        lines: the protocol lines between the messages (PING, -ERR, INFO), without their line ends.
    """

    table: Integers
    count: int
    consumed: int
    lines: list[bytes]

    def __len__(self) -> int:
        return self.count

    def column(self, name: int) -> Integers:
        """Return a row of the table, for the frames that there are."""
        column: Integers = self.table[name, : self.count]
        return column


def locate(memory: bytearray, filled: int, largest: int = MAX_MESSAGE_BYTES) -> Frames:
    """The complete frames among the first *filled* bytes, which begin with the beginning of a line.

    Args:
        memory: the buffer.
        filled: how many bytes of it count.
        largest: the most bytes that a message may have, headers included.

    Raises:
        BrokenFrameError: when the bytes are no NATS protocol.
    """
    frames = Frames(np.empty((FRAME_FIELDS, _FEW_FRAMES), np.int64), 0, 0, [])
    if memory.find(b"\n", 0, filled) < 0 or memory.find(b"\r\n", 0, filled) < 0:
        # Nothing ends yet: the quickest search there is, as it is done again for each piece.
        _check_open_line(memory, 0, filled)
        return frames
    data = np.frombuffer(memory, np.uint8)
    while True:
        found = find_frames(data, filled, frames.consumed, largest, frames.table, frames.count)
        frames.count, frames.consumed, stop = found
        if stop == FULL:
            frames.table = _widened(frames.table)
        elif stop == INCOMPLETE or not _take_line(memory, filled, largest, frames, is_broken=stop == BROKEN):
            return frames


def _widened(table: Integers) -> Integers:
    """Return the table with four times the columns."""
    wider = np.empty((FRAME_FIELDS, 4 * table.shape[1]), np.int64)
    wider[:, : table.shape[1]] = table
    return wider


def _take_line(memory: bytearray, filled: int, largest: int, frames: Frames, *, is_broken: bool) -> bool:
    """Take a line that is no usual message; return False if its end is not there.

    Raises:
        BrokenFrameError: it is no line, or one of a broken message.
    """
    at = frames.consumed
    line_end = memory.find(b"\r\n", at, filled)
    if line_end < 0:
        _check_open_line(memory, at, filled)
        return False
    line = bytes(memory[at:line_end])
    if line.startswith((b"MSG ", b"HMSG ")):
        MessageLine.parse(line, largest)
        problem = "it does not end where its size says" if is_broken else f"its line has {len(line):,} bytes"
        raise BrokenFrameError("message", problem, line)
    frames.lines.append(line)
    frames.consumed = line_end + 2
    return True


def _check_open_line(memory: bytearray, at: int, filled: int) -> None:
    """Refuse an unfinished line of more than `MAX_LINE_BYTES` bytes."""
    if filled - at > MAX_LINE_BYTES:
        raise BrokenFrameError("line", f"{filled - at:,} bytes without an end", bytes(memory[at : at + 100]))


def with_room(memory: bytearray, filled: int) -> bytearray:
    r"""Return *memory*, or a copy of twice the size if its *filled* bytes leave no room.

    >>> with_room(bytearray(b"MSG "), 4)
    bytearray(b'MSG \x00\x00\x00\x00')
    """
    if filled < len(memory):
        return memory
    larger = bytearray(2 * len(memory))
    larger[:filled] = memory
    return larger


def shift(memory: bytearray, filled: int, consumed: int) -> int:
    """Move the bytes behind the first *consumed* to the beginning of a buffer, and return how many they are."""
    left = filled - consumed
    if consumed and left:
        memory[:left] = memory[consumed:filled]
    return left


SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", headers_type()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns of a record, as Spark's Arrow expects them."""

_BINARY: Final = pa.binary()
_STRING: Final = pa.string()
_LEAD: Final = np.frombuffer(b"$JS.ACK.", np.uint8)
_MESSAGE_ID: Final = np.frombuffer(MESSAGE_ID.encode(), np.uint8)


@dataclass(slots=True)
class Received:
    """The messages of one buffer, in a copy of it.

    Attributes:
        data: the bytes of the frames.
        octets: likewise.
        table: where each message is in them, by the rows of `turnout.loops.frames`.
        positions: by the rows of positions of `turnout.loops.frames`. The size of a message is the bytes of a request
            that it uses up: its topic, its reply subject, its headers and its payload.
        count: how many messages there are.
        statuses: (subject, header block) of the server's statuses, with their index: the number of messages before
            them.
    """

    data: bytes
    octets: NDArray[np.uint8]
    table: Integers
    positions: Integers
    count: int
    statuses: list[tuple[int, str, bytes]]

    def __len__(self) -> int:
        return self.count

    @property
    def pending(self) -> int:
        """Number of messages of the stream that the consumer has left behind the last one; -1 without messages."""
        return int(self.positions[PENDING, self.count - 1]) if self.count else -1

    def sequence(self, index: int) -> int:
        """Return the sequence of a message in the stream."""
        return int(self.positions[SEQUENCE, index])

    def time(self, index: int) -> int:
        """Return when a message was stored, in microseconds since 1970."""
        return int(self.positions[TIME, index]) // 1000

    def batch(self, count: int, partition: int = 0) -> ArrowBatch:
        """Return the first *count* messages as a record batch of `SCHEMA`."""
        if not count:
            return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)
        table, headers = self.table[:, :count], self._headers(count)
        columns = [
            _texts(self.octets, table[SUBJECT], table[SUBJECT_END]),
            _numbers(np.full(count, partition, np.int32), pa.int32()),
            _numbers(self.positions[SEQUENCE, :count], pa.int64()),
            headers.keys_column(),
            _slices(self.octets, table[PAYLOAD], table[END]),
            headers.column(),
            _numbers(self.positions[TIME, :count] // 1000, SCHEMA.field("timestamp").type),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def listed(self, stream: str, make: Callable[[], ArrowBatch]) -> ListedRecords:
        """Return the messages, which are few, as lists.

        Args:
            stream: name of the stream, with its identity if it is known, as in the column `STREAM_ID`.
            make: makes their record batch.
        """
        data, count = self.data, len(self)
        rows = self.table[: END + 1, :count].tolist()
        topics = [
            str(data[begin:end], "utf-8", "replace")
            for begin, end in zip(rows[SUBJECT], rows[SUBJECT_END], strict=True)
        ]
        values = [data[begin:end] for begin, end in zip(rows[PAYLOAD], rows[END], strict=True)]
        keys: Sequence[bytes | None] = [None] * count
        pairs: Sequence[Pairs] = [()] * count
        if rows[BODY] != rows[PAYLOAD]:
            keys, pairs = self._headers(count).listed()
        sequences, _, nanoseconds, *_ = self.positions[:, :count].tolist()
        times = [time // 1000 for time in nanoseconds]
        if "." in stream:
            ids = [f"{stream}:{sequence}:{time}" for sequence, time in zip(sequences, times, strict=True)]
        else:
            ids = [f"{stream}:{sequence}" for sequence in sequences]
        return ListedRecords(ids, topics, [0] * count, sequences, times, keys, values, pairs, make)

    def _headers(self, count: int) -> _Headers:
        """Find the headers of the first *count* messages."""
        edges = np.empty((EDGES, count + 1), np.int64)
        table = np.empty((HEADER_FIELDS, 4 * count), np.int64)
        total = read_headers(self.octets, self.table, count, _MESSAGE_ID, table, edges)
        if total > table.shape[1]:
            table = np.empty((HEADER_FIELDS, total), np.int64)
            read_headers(self.octets, self.table, count, _MESSAGE_ID, table, edges)
        return _Headers(self.data, self.octets, table[:, :total], edges)


class _Headers(NamedTuple):
    """Headers of messages.

    Attributes:
        data: the bytes that they are in.
        octets: likewise.
        table: where each header is in them, by the rows of `turnout.loops.frames`.
        edges: the headers of each message, and its message id among them, likewise.
    """

    data: bytes
    octets: NDArray[np.uint8]
    table: Integers
    edges: Integers

    def keys_column(self) -> ArrowArray:
        """Return the message ids, null where there is none."""
        keys = self.edges[KEY, :-1]
        named = keys >= 0
        if not named.any():
            return pa.nulls(len(named), pa.binary())
        # A slice of no bytes is where there is none.
        begins, ends = (np.where(named, self.table[row, keys], 0) for row in (VALUE, VALUE_END))
        return _slices(self.octets, begins, ends, None if named.all() else named)

    def column(self) -> ArrowArray:
        """Return all headers as one list a message, null where it has none."""
        offsets = self.edges[FIRST]
        if not self.table.shape[1]:
            return pa.nulls(len(offsets) - 1, headers_type())
        names = _texts(self.octets, self.table[NAME], self.table[NAME_END])
        values = _slices(self.octets, self.table[VALUE], self.table[VALUE_END])
        pairs = pa.StructArray.from_arrays([names, values], fields=list(headers_type().value_type))
        without = offsets[1:] == offsets[:-1]
        mask = pa.array(without) if without.any() else None
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pairs, type=headers_type(), mask=mask)

    def listed(self) -> tuple[list[bytes | None], list[Pairs]]:
        """Return the message ids and the names and values of all headers, by message."""
        data = self.data
        headers = [
            (str(data[name:name_end], "utf-8", "replace"), data[value:value_end])
            for name, name_end, value, value_end in zip(*self.table.tolist(), strict=True)
        ]
        offsets, keys = self.edges.tolist()
        ids = [None if at < 0 else headers[at][1] for at in keys[:-1]]
        return ids, [headers[begin:end] for begin, end in pairwise(offsets)]


def decode(memory: bytearray, frames: Frames) -> Received:
    """Read the *frames* of a buffer; nothing of the result refers to the buffer.

    Raises:
        StreamError: when a message has no JetStream position.
    """
    data = bytes(memoryview(memory)[: frames.consumed])
    octets = np.frombuffer(data, np.uint8)
    positions = np.empty((POSITION_FIELDS, len(frames)), np.int64)
    statuses: list[tuple[int, str, bytes]] = []
    row = kept = 0
    while True:
        row, kept = read_positions(octets, frames.table, row, len(frames), _LEAD, positions, kept)
        if row == len(frames):
            return Received(data, octets, frames.table, positions, kept, statuses)
        offsets = frames.table[:, row].tolist()
        subject = data[offsets[SUBJECT] : offsets[SUBJECT_END]].decode("utf-8", "replace")
        block = data[offsets[BODY] : offsets[PAYLOAD]]
        if offsets[PAYLOAD] == offsets[END] and len(block) > 9 and block[8] == ord(" "):
            statuses.append((kept, subject, block))
        else:
            positions[:, kept] = _position(subject, data[offsets[REPLY] : offsets[REPLY_END]], offsets)
            frames.table[:, kept] = offsets
            kept += 1
        row += 1


def _position(subject: str, reply: bytes, offsets: list[int]) -> list[int]:
    """Return the position of a message whose reply subject is not a usual one, as `read_positions` does.

    Raises:
        NotJetStreamMessageError: it has none.
    """
    text = reply.decode("utf-8", "replace")
    try:
        at = JSAck.parse(text)
        numbers = [at.stream_seq, at.consumer_seq, at.timestamp_ns, at.num_pending]
    except NotJetStreamMessageError:
        numbers = []
    if not numbers or max(numbers) > LARGEST_SEQUENCE:
        problem = f"has no position: the message on {subject!r} is not from a stream"
        raise NotJetStreamMessageError(text, problem)
    return [*numbers, offsets[SUBJECT_END] - offsets[SUBJECT] + len(reply) + offsets[END] - offsets[BODY]]


def _numbers(numbers: NDArray[np.generic], kind: pa.DataType) -> ArrowArray:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def _slices(
    data: NDArray[np.uint8], begins: Integers, ends: Integers, valid: NDArray[np.bool_] | None = None
) -> Binaries:
    """Return the bytes between each begin and end as a new array; null where they are not valid."""
    count = len(begins)
    copies, offsets = np.empty(int((ends - begins).sum()), np.uint8), np.empty(count + 1, np.int32)
    copy_slices(data, begins, ends, count, copies, offsets)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(_BINARY, count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(copies)])


def _texts(data: NDArray[np.uint8], begins: Integers, ends: Integers) -> Strings:
    """Return the texts between each begin and end; bytes that are not UTF-8 become replacement characters."""
    raw = _slices(data, begins, ends)
    if bytes(raw.buffers()[2]).isascii():
        return raw.view(_STRING)
    try:
        return raw.cast(_STRING)
    except pa.ArrowInvalid:
        return pa.array([one.decode("utf-8", "replace") for one in raw.to_pylist()], _STRING)


class Row(NamedTuple):
    """Message as a tuple, in the order of the columns."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: list[JsonObject] | None
    timestamp: int


def row(subject: str, sequence: int, value: bytes, headers: Sequence[tuple[str, bytes]], stored: str) -> Row:
    """Build the row of a message with its headers; *stored* is the server's storage time."""
    key = next((value for name, value in headers if name == MESSAGE_ID), None)
    pairs = [{"key": name, "value": value} for name, value in headers]
    return Row(subject, 0, sequence, key, value, pairs or None, _microseconds(stored))


def _microseconds(text: str) -> int:
    """An RFC 3339 time with up to nine digits behind the second, as microseconds since 1970.

    Raises:
        ValueError: when it is none.
    """
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp())
    return seconds * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def record_batch(rows: Sequence[Row]) -> ArrowBatch:
    """The rows as a record batch."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(SCHEMA)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def with_stream(batch: ArrowBatch, stream: str, identity: StreamIdentity | None = None) -> ArrowBatch:
    """Return the batch with an additional column ``stream``, in the form that a run reads.

    With the stream's identity there is a column more, with which origins begin: see `turnout.engine.messages`. A
    checkpoint of an earlier release has none in its ids.
    """
    batch = batch.append_column("stream", pa.repeat(pa.scalar(stream), batch.num_rows))
    if identity is None or not identity.token:
        return batch
    return batch.append_column(STREAM_ID, pa.repeat(pa.scalar(identity.label(stream)), batch.num_rows))
