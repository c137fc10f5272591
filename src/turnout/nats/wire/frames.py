"""Vectorised search for messages in a buffer of NATS protocol, exact to the byte.

Line ends are searched for in the whole buffer at once, and those that are followed by ``MSG`` or ``HMSG`` may
begin a frame. A payload can hold such text as well, so each frame must end where the next one begins; where
that fails, the chain is followed frame by frame. Large frames are stepped over one at a time, as there
searching the payloads costs more than a step of Python; and so are few, as one search costs a hundred steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.nats.protocol.errors import BrokenFrameError
from turnout.nats.protocol.frames import MAX_LINE_BYTES, MAX_MESSAGE_BYTES, MAX_SIZE_DIGITS, MessageLine
from turnout.untrusted import decimal

_ZEROS = np.uint64(0x3030303030303030)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
# Added to a value above nine, it sets the high bit of a byte.
_ABOVE_NINE = np.uint64(0x7676767676767676)
_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_MAX_DIGITS = 20


def windows(memory: bytearray, filled: int, kind: str) -> NDArray[Any]:
    """The buffer as overlapping little-endian integers of *kind*, one beginning at every byte."""
    width = np.dtype(kind).itemsize
    count = max(0, min(filled, len(memory)) - width + 1)
    return np.ndarray(shape=(count,), dtype=kind, buffer=memory, strides=(1,))


def numbers_before(words: NDArray[np.uint64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers that end just before each of *ends*, and where each begins.

    A number reaches back to the nearest byte that is no digit. One without digits has the value 0 and begins at its
    end; one of more than 19 digits has a meaningless value; check its length.
    *words* are the buffer's `windows` of eight bytes; every end is at least 8, as no frame puts a number earlier.
    """
    values, lengths = _last_eight(words, ends)
    full = np.flatnonzero(lengths == 8)
    scale = 10**8
    reached = 8
    while full.size and reached < _MAX_DIGITS:
        at = ends[full] - reached
        inside = at >= 8
        full, at = full[inside], at[inside]
        more, count = _last_eight(words, at)
        values[full] += more * np.int64(scale)
        lengths[full] += count
        full = full[count == 8]
        reached += 8
        scale *= 10**8
        if scale > 10**16:
            break
    return values, ends - lengths


def _last_eight(words: NDArray[np.uint64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The value and the count of the digits among the eight bytes before each end."""
    chunk = words[ends - 8]
    over_zero = chunk ^ _ZEROS
    others = (((over_zero & _LOW_BITS) + _ABOVE_NINE) | over_zero) & _HIGH_BITS
    # The exponent of a float is the position of its highest bit; no rounding reaches it, as only every eighth is set.
    exponent = (others.astype(np.float64).view(np.int64) >> np.int64(52)) - np.int64(1023)
    digits = np.where(others == 0, np.int64(8), np.int64(7) - (exponent >> np.int64(3)))
    # Bytes before the number become leading zeros. A shift by all 64 bits is split: C leaves it undefined.
    half = (np.int64(8) - digits).astype(np.uint64) * np.uint64(4)
    nibbles = ((((chunk & _LOW_NIBBLES) >> half) >> half) << half) << half
    pairs = ((nibbles * np.uint64(2561)) >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    fours = ((pairs * np.uint64(6553601)) >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    value = (fours * np.uint64(42949672960001)) >> np.uint64(32)
    return value.astype(np.int64), digits


_MSG = np.uint32(int.from_bytes(b"MSG ", "little"))
_HMSG = np.uint32(int.from_bytes(b"HMSG", "little"))
_LARGE_FRAME_BYTES = 1500
_FEW_BYTES = 4096

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Frames:
    """The complete frames of a buffer, in their order, as parallel arrays.

    Attributes:
        start: offset of the frame's line.
        line_end: offset of the line's CR.
        end: end of the payload, which begins, headers included, at ``line_end + 2``.
        size_start: offset of the last number of the line.
        with_headers: whether it is an HMSG.
        consumed: how many bytes of the buffer are done with, other lines included.
        lines: the protocol lines between the messages (PING, -ERR, INFO), without their line ends.
    """

    start: Positions
    line_end: Positions
    end: Positions
    size_start: Positions
    with_headers: NDArray[np.bool_]
    consumed: int
    lines: list[bytes]

    def __len__(self) -> int:
        return len(self.start)


def locate(memory: bytearray, filled: int, usual_size: float = 0.0, largest: int = MAX_MESSAGE_BYTES) -> Frames:
    """The complete frames among the first *filled* bytes, which begin with the beginning of a line.

    Args:
        memory: the buffer.
        filled: how many bytes of it count.
        usual_size: the mean size of the frames so far; it decides how to search.
        largest: the most bytes that a message may have, headers included.

    Raises:
        BrokenFrameError: when the bytes are no NATS protocol. That a size has other characters than digits is found
            by where it leads, or where the frame is the last one.
    """
    if memory.find(b"\n", 0, filled) < 0:
        # Nothing ends yet: the quickest search there is, as it is done again for each piece.
        _check_open_line(memory, 0, filled)
        return _step(memory, 0, largest)
    if usual_size > _LARGE_FRAME_BYTES or filled <= _FEW_BYTES:
        return _step(memory, filled, largest)
    return _search(memory, filled, largest)


def _step(memory: bytearray, filled: int, largest: int) -> Frames:
    """Locate frames one after the other."""
    rows: list[tuple[int, int, int, int, bool]] = []
    lines: list[bytes] = []
    at = 0
    while (line_end := memory.find(b"\r\n", at, filled)) >= 0:
        line = bytes(memory[at:line_end])
        if line.startswith((b"MSG ", b"HMSG ")):
            end = line_end + 2 + MessageLine.parse(line, largest).total
            if end + 2 > filled:
                break
            _check_end(memory, line, end)
            rows.append((at, line_end, end, at + line.rindex(b" ") + 1, line[0] == 72))
            at = end + 2
        else:
            lines.append(line)
            at = line_end + 2
    else:
        _check_open_line(memory, at, filled)
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    start, line_ends, ends, sizes, kinds = (np.ascontiguousarray(table[:, column]) for column in range(5))
    return Frames(start, line_ends, ends, sizes, kinds.astype(np.bool_), at, lines)


def _check_end(memory: bytearray, line: bytes, end: int) -> None:
    if memory[end : end + 2] != b"\r\n":
        raise BrokenFrameError("message", "it does not end where its size says", line)


def _check_open_line(memory: bytearray, at: int, filled: int) -> None:
    """Refuse an unfinished line of more than `MAX_LINE_BYTES` bytes."""
    if filled - at > MAX_LINE_BYTES:
        raise BrokenFrameError("line", f"{filled - at:,} bytes without an end", bytes(memory[at : at + 100]))


def _search(memory: bytearray, filled: int, largest: int) -> Frames:
    """Locate all frames in one vectorised search, for consecutive frames."""
    if filled < 12 or _is_incomplete(memory, filled):
        return _step(memory, filled, largest)
    feeds = np.flatnonzero(np.frombuffer(memory, dtype=np.uint8, count=filled) == 10)
    begins = np.concatenate((np.zeros(1, dtype=np.int64), feeds[:-1] + 1)) if feeds.size else feeds
    # A line shorter than a word cannot begin a frame; those at the very end have no whole word.
    begins = begins[begins <= filled - 4]
    words = windows(memory, filled, "<u4")[begins]
    headed = words == _HMSG
    likely = np.flatnonzero(headed | (words == _MSG))
    start = begins[likely]
    line_end = feeds[likely] - 1
    long_enough = line_end - start >= 9
    if not long_enough.all():
        likely, start, line_end = likely[long_enough], start[long_enough], line_end[long_enough]
    size, size_start = numbers_before(windows(memory, filled, "<u8"), line_end)
    digits = line_end - size_start
    # An invalid size must not be followed; if the chain reaches it, it is read again and refused.
    size[(digits < 1) | (digits > MAX_SIZE_DIGITS) | (size > largest)] = largest + 1
    end = line_end + 2 + size
    return _follow(memory, filled, largest, Frames(start, line_end, end, size_start, headed[likely], 0, []))


def _is_incomplete(memory: bytearray, filled: int) -> bool:
    """Return True if the first line or frame is not complete: its bytes are not searched again for each new piece."""
    line_end = memory.find(b"\r\n", 0, filled)
    if line_end < 0:
        return True
    if not memory.startswith((b"MSG ", b"HMSG ")):
        return False
    size = decimal(bytes(memory[memory.rfind(b" ", 0, line_end) + 1 : line_end]))
    return size is not None and line_end + size + 4 > filled


def _follow(memory: bytearray, filled: int, largest: int, likely: Frames) -> Frames:
    """Return the frames of *likely* that are on the chain from the start of the buffer."""
    start, after = likely.start, likely.end + 2
    breaks = np.flatnonzero(after[:-1] != start[1:])
    runs: list[NDArray[np.int64]] = []
    lines: list[bytes] = []
    at = 0
    while at < filled:
        index = int(np.searchsorted(start, at))
        if index < len(start) and start[index] == at:
            step = int(np.searchsorted(breaks, index))
            last = int(breaks[step]) if step < len(breaks) else len(start) - 1
            complete = int(np.searchsorted(after[index : last + 1], filled, side="right"))
            runs.append(np.arange(index, index + complete))
            if complete:
                at = int(after[index + complete - 1])
                # Of the others in the run it is known that the next one begins where they end.
                _parsed(memory, likely, index + complete - 1, largest)
                _check_end(memory, _line(memory, likely, index + complete - 1), at - 2)
            if complete <= last - index:
                _parsed(memory, likely, index + complete, largest)
                break
            continue
        line_end = memory.find(b"\r\n", at, filled)
        if line_end < 0:
            _check_open_line(memory, at, filled)
            break
        if memory.startswith((b"MSG ", b"HMSG "), at):
            raise BrokenFrameError("message", "its line is too short", bytes(memory[at:line_end]))
        lines.append(bytes(memory[at:line_end]))
        at = line_end + 2
    selected: NDArray[np.int64] = (
        runs[0] if len(runs) == 1 else np.concatenate(runs) if runs else np.zeros(0, dtype=np.int64)
    )
    return Frames(
        start[selected],
        likely.line_end[selected],
        likely.end[selected],
        likely.size_start[selected],
        likely.with_headers[selected],
        at,
        lines,
    )


def _line(memory: bytearray, frames: Frames, row: int) -> bytes:
    return bytes(memory[frames.start[row] : frames.line_end[row]])


def _parsed(memory: bytearray, frames: Frames, row: int, largest: int) -> MessageLine:
    """The line of one frame, read strictly.

    Raises:
        BrokenFrameError: when it cannot be, or says something else than was found.
    """
    line = _line(memory, frames, row)
    parsed = MessageLine.parse(line, largest)
    if parsed.total != frames.end[row] - frames.line_end[row] - 2:
        raise BrokenFrameError("message", "its size cannot be read", line)
    return parsed


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
