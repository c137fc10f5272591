"""Where the messages lie in a buffer of NATS protocol, byte for byte exact, without looking at each in Python.

Line ends are searched for in the whole buffer at once, and those that are followed by ``MSG`` or ``HMSG`` may
begin a frame. A payload can hold such text as well, so each frame must end where the next one begins; where
that fails, the chain is followed frame by frame. Large frames are stepped over one at a time, as there
searching the payloads costs more than a step of Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.wire._digits import numbers_before, windows

__all__ = ["Frames", "locate"]

_MSG = np.uint32(int.from_bytes(b"MSG ", "little"))
_HMSG = np.uint32(int.from_bytes(b"HMSG", "little"))
_LARGE = 1500

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Frames:
    """The complete frames of a buffer, in their order, as parallel arrays.

    Attributes:
        start: where the frame's line begins.
        line_end: where the line's CR is.
        end: where the payload ends; the payload begins, headers included, at ``line_end + 2``.
        size_start: where the last number of the line begins.
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


def locate(memory: bytearray, filled: int, usual_size: float = 0.0) -> Frames:
    """The complete frames among the first *filled* bytes, which begin with the beginning of a line.

    *usual_size*, the mean size of the frames so far, decides how to search.
    """
    if usual_size > _LARGE:
        return _step(memory, filled)
    return _search(memory, filled)


def _step(memory: bytearray, filled: int) -> Frames:
    """One frame after the other."""
    found: list[tuple[int, int, int, int, bool]] = []
    lines: list[bytes] = []
    at = 0
    while (line_end := memory.find(b"\r\n", at, filled)) >= 0:
        line = bytes(memory[at:line_end])
        if line.startswith((b"MSG ", b"HMSG ")):
            blank = line.rindex(b" ")
            end = line_end + 2 + int(line[blank + 1 :])
            if end + 2 > filled:
                break
            found.append((at, line_end, end, at + blank + 1, line[0] == 72))
            at = end + 2
        else:
            lines.append(line)
            at = line_end + 2
    table = np.array(found, dtype=np.int64).reshape(-1, 5)
    start, line_ends, ends, sizes, kinds = (np.ascontiguousarray(table[:, column]) for column in range(5))
    return Frames(start, line_ends, ends, sizes, kinds.astype(np.bool_), at, lines)


def _search(memory: bytearray, filled: int) -> Frames:
    """All at once, where the frames follow each other."""
    if filled < 12:
        return _step(memory, filled)
    feeds = np.flatnonzero(np.frombuffer(memory, dtype=np.uint8, count=filled) == 10)
    begins = np.concatenate((np.zeros(1, dtype=np.int64), feeds[:-1] + 1)) if feeds.size else feeds
    # A line shorter than a word cannot begin a frame; those at the very end have no word to look at.
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
    end = line_end + 2 + size
    return _follow(memory, filled, Frames(start, line_end, end, size_start, headed[likely], 0, []))


def _follow(memory: bytearray, filled: int, likely: Frames) -> Frames:
    """Keep of the *likely* frames those that the chain from the buffer's beginning passes through."""
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
            if complete <= last - index:
                break
            continue
        line_end = memory.find(b"\r\n", at, filled)
        if line_end < 0 or memory.startswith((b"MSG ", b"HMSG "), at):
            break
        lines.append(bytes(memory[at:line_end]))
        at = line_end + 2
    kept: Any = runs[0] if len(runs) == 1 else np.concatenate(runs) if runs else np.zeros(0, dtype=np.int64)
    return Frames(
        start[kept],
        likely.line_end[kept],
        likely.end[kept],
        likely.size_start[kept],
        likely.with_headers[kept],
        at,
        lines,
    )
