"""FNV-1a with 32 bits: the hash of ``partition`` (ADR-30)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout.deferred import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

OFFSET = 2166136261
PRIME = 16777619

_MASK = 0xFFFFFFFF
_SHORT_BYTES = 24
_LINE_FEED = 10
_COLUMN_BYTES = 64
"""Longer lines are hashed one by one: a column of bytes for few of them costs more than it saves."""


def fnv1a(data: bytes) -> int:
    """Return the hash of *data*, from 0 to 2**32 - 1."""
    value = OFFSET
    if len(data) <= _SHORT_BYTES:
        # A byte changes only the lowest bits, so the others may grow and be cut off once, at the end. That is
        # faster as long as the number is short.
        for byte in data:
            value = (value ^ byte) * PRIME
        return value & _MASK
    for byte in data:
        value = ((value ^ byte) * PRIME) & _MASK
    return value


def fnv1a_many(lines: bytes) -> NDArray[np.uint32]:
    """Return the hash of each line of *lines*, which are separated by line feeds."""
    data = np.frombuffer(lines, np.uint8)
    ends = np.append(np.flatnonzero(data == _LINE_FEED), len(data))
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts
    hashes = np.full(len(lengths), OFFSET, np.uint32)
    # Shortest first, so that the lines that still have a byte are always the last ones.
    order = np.argsort(lengths, kind="stable")
    order = order[: np.searchsorted(lengths[order], _COLUMN_BYTES, side="right")]
    positions, ordered = starts[order], lengths[order]
    states = hashes[order]
    longest = int(ordered[-1]) if len(ordered) else 0
    for first in np.searchsorted(ordered, np.arange(longest), side="right").tolist():
        remaining, at = states[first:], positions[first:]
        remaining ^= data[at]
        remaining *= np.uint32(PRIME)
        at += 1
    hashes[order] = states
    for line in np.flatnonzero(lengths > _COLUMN_BYTES).tolist():
        hashes[line] = fnv1a(lines[starts[line] : ends[line]])
    return hashes
