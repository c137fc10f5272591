"""Hash tables of flat arrays: rows in the order of their hashes, and where each bucket of them starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.int64]

_FIRST = 0x9E3779B97F4A7C15
_SECOND = 0xC2B2AE3D27D4EB4F
_SHIFT = 29
_ROOM = 2
"""Buckets for each row, at least."""


def arranged(hashes: NDArray[np.uint64]) -> tuple[Indices, NDArray[np.uint32]]:
    """Return the order that sorts the rows by hash, and the start of each bucket of equal top bits in it."""
    order = np.argsort(hashes, kind="stable")
    bits = max(4, int(len(hashes) * _ROOM).bit_length())
    counts = np.bincount((hashes >> np.uint64(64 - bits)).astype(np.int64), minlength=1 << bits)
    starts = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts, out=starts[1:])
    return order, starts


def indices_of(mask: NDArray[Any]) -> Indices:
    """Return the indices of true elements, or of those that are not 0: faster than `numpy.flatnonzero`."""
    return mask.nonzero()[0]


def in_bucket(starts: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> tuple[Indices, Indices]:
    """Return pairs (index of the hash, row) of all rows in the hashes' buckets; equality is not checked."""
    bucket = (hashes >> np.uint64(shift_of(len(starts)))).view(np.int64)
    first = starts.take(bucket).astype(np.int64)
    count = starts.take(bucket + 1).astype(np.int64)
    count -= first
    some = indices_of(count)
    if len(some) == 0:
        return some, some
    which, row = expanded(first.take(some), count.take(some))
    return some.take(which), row


def shift_of(starts: int) -> int:
    """Return the number of bits to shift a hash by for its bucket, given the length of the table of starts."""
    return 65 - starts.bit_length()


def expanded(first: Indices, count: Indices) -> tuple[Indices, Indices]:
    """Return the elements of ranges: the index of the range, and the position."""
    ends = count.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    if total == len(count) and (total == 0 or int(count.max()) == 1):
        return np.arange(total), first
    which = np.arange(len(count)).repeat(count)
    return which, np.arange(total) + (first - ends + count).take(which)


def viewed(array: NDArray[Any]) -> Sequence[Any]:
    """Return the array as a sequence, which reads single numbers faster than numpy."""
    return cast("Sequence[Any]", array.data)


def mixed(keys: Longs) -> NDArray[np.uint64]:
    """A hash of each number: no two numbers have the same."""
    x = keys.view(np.uint64) * np.uint64(_FIRST)
    x ^= x >> np.uint64(_SHIFT)
    x *= np.uint64(_SECOND)
    return x
