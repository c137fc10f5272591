"""Vectorised parsing of decimal numbers in a byte buffer, eight digits at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ZEROS = np.uint64(0x3030303030303030)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
# Added to what is above nine, it reaches the high bit of a byte.
_ABOVE_NINE = np.uint64(0x7676767676767676)
_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_LONGEST = 20


def windows(memory: bytearray, filled: int, kind: str) -> NDArray[Any]:
    """The buffer as overlapping little-endian integers of *kind*, one beginning at every byte."""
    width = np.dtype(kind).itemsize
    count = max(0, min(filled, len(memory)) - width + 1)
    return np.ndarray(shape=(count,), dtype=kind, buffer=memory, strides=(1,))


def numbers_before(words: NDArray[Any], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers that end just before each of *ends*, and where each begins.

    A number reaches back to the nearest byte that is no digit. One without digits has the value 0 and begins at its
    end; one of more than 19 digits has a value that means nothing, and its length tells.
    *words* are the buffer's `windows` of eight bytes; every end is at least 8, as no frame puts a number earlier.
    """
    values, lengths = _last_eight(words, ends)
    full = np.flatnonzero(lengths == 8)
    scale = 10**8
    reached = 8
    while full.size and reached < _LONGEST:
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


def _last_eight(words: NDArray[Any], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The value and the count of the digits among the eight bytes before each end."""
    chunk = words[ends - 8]
    over_zero = chunk ^ _ZEROS
    others = (((over_zero & _LOW_BITS) + _ABOVE_NINE) | over_zero) & _HIGH_BITS
    # The exponent of a float is the position of its highest bit; no rounding reaches it, as only every eighth is set.
    exponent = (others.astype(np.float64).view(np.int64) >> np.int64(52)) - np.int64(1023)
    digits = np.where(others == 0, np.int64(8), np.int64(7) - (exponent >> np.int64(3)))
    # What stands before the number becomes leading zeros. A shift by all 64 bits is split: C leaves it undefined.
    half = (np.int64(8) - digits).astype(np.uint64) * np.uint64(4)
    nibbles = ((((chunk & _LOW_NIBBLES) >> half) >> half) << half) << half
    pairs = ((nibbles * np.uint64(2561)) >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    fours = ((pairs * np.uint64(6553601)) >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    value = (fours * np.uint64(42949672960001)) >> np.uint64(32)
    return value.astype(np.int64), digits
