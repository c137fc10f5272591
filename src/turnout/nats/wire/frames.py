"""Search for messages in a buffer of NATS protocol, exact to the byte; see `turnout.loops.frames`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from turnout.loops.frames import BROKEN, FRAME_FIELDS, FULL, INCOMPLETE, find_frames
from turnout.nats.protocol.errors import BrokenFrameError
from turnout.nats.protocol.frames import MAX_LINE_BYTES, MAX_MESSAGE_BYTES, MessageLine

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
