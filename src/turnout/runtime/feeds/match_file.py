"""Immutable file of matches: for each subscription, the ascending sequences of the records that matched it.

Subscriptions are 64-bit hashes of their ids. The sequences of one are stored in runs of at most 512: an entry with the
subscription, the first sequence and the place of the run, and the differences to the following sequences as variable
length integers. Entries are sorted by subscription and first sequence, so that a page of a feed is found by binary
search, whatever the file holds of others.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turnout.errors import TurnoutError

Sequences: TypeAlias = NDArray[np.int64]
SubscriptionHashes: TypeAlias = NDArray[np.uint64]

_MAGIC: Final = b"TURNOUT\x01"
_HEAD: Final = struct.Struct("<8sQQQQ")
"""Magic, base of the first sequences, entries, matches, bytes of differences."""

_RUN: Final = 512
"""Matches in one run: maximum number to decode before the first match of a page."""

_MOST_SPAN: Final = (1 << 32) - 1
"""Difference of the sequences in one file: first sequences are stored as 32 bits above the base."""


class MatchFileError(TurnoutError):
    """Raised when a file of matches is damaged or of another version."""


class Matches(NamedTuple):
    """Matches as parallel columns: hash of the subscription, sequence of the record."""

    subscriptions: SubscriptionHashes
    sequences: Sequences

    @classmethod
    def none(cls) -> Self:
        """Return no matches."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64))

    @classmethod
    def joined(cls, parts: list[Matches]) -> Self:
        """Return all matches of the parts, in their order."""
        if not parts:
            return cls.none()
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def distinct(self) -> Matches:
        """Return each match once, sorted by subscription and sequence."""
        order = np.lexsort((self.sequences, self.subscriptions))
        subscriptions, sequences = self.subscriptions[order], self.sequences[order]
        if len(order):
            again = (subscriptions[1:] == subscriptions[:-1]) & (sequences[1:] == sequences[:-1])
            first = np.concatenate([[True], ~again])
            subscriptions, sequences = subscriptions[first], sequences[first]
        return Matches(subscriptions, sequences)


def encode(matches: Matches) -> bytes:
    """Return the content of a file with these matches.

    Raises:
        ValueError: the sequences are more than 2³² apart.
    """
    subscriptions, sequences = matches.distinct()
    count = len(sequences)
    base = int(sequences.min()) if count else 0
    if count and int(sequences.max()) - base > _MOST_SPAN:
        raise ValueError("expected sequences of one part of a stream, found some that are more than 2^32 apart")
    is_entry = _run_starts(subscriptions)
    entries = np.flatnonzero(is_entry)
    differences = np.diff(sequences, prepend=0)[~is_entry].astype(np.uint64)
    lengths = _lengths(differences)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    # Matches before an entry that are not entries themselves have a difference.
    starts = ends[entries - np.arange(len(entries))]
    data = _varints(differences, lengths)
    return b"".join(
        (
            _HEAD.pack(_MAGIC, base, len(entries), count, len(data)),
            subscriptions[entries].astype("<u8").tobytes(),
            (sequences[entries] - base).astype("<u4").tobytes(),
            np.append(starts, len(data)).astype("<u8" if len(data) > _MOST_SPAN else "<u4").tobytes(),
            data,
        )
    )


class MatchFile:
    """File of matches, mapped into memory.

    Args:
        path: path of the file.

    Raises:
        MatchFileError: it is damaged, or no such file.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        content = np.memmap(path, np.uint8, "r")
        if len(content) < _HEAD.size:
            raise MatchFileError(f"{path}: expected a file of matches, found {len(content)} bytes")
        magic, self._base, entries, self.matches, size = _HEAD.unpack(content[: _HEAD.size].tobytes())
        width = 8 if size > _MOST_SPAN else 4
        if magic != _MAGIC or len(content) != _HEAD.size + 12 * entries + width * (entries + 1) + size:
            raise MatchFileError(f"{path}: expected a file of matches, found something else, or a part of one")
        at = _HEAD.size
        self._subscriptions = content[at : at + 8 * entries].view("<u8")
        at += 8 * entries
        self._firsts = content[at : at + 4 * entries].view("<u4")
        at += 4 * entries
        self._starts = content[at : at + width * (entries + 1)].view("<u8" if width == 8 else "<u4")
        self._data = content[at + width * (entries + 1) :]

    def sequences(self, subscription: int, after: int, limit: int) -> Sequences:
        """Return the sequences of a subscription above *after*, ascending, and at least *limit* if there are so many.

        Args:
            subscription: hash of its id.
            after: a sequence.
            limit: number of the sequences that are needed; the rest of a run is returned with them.
        """
        low, high = (int(np.searchsorted(self._subscriptions, np.uint64(subscription), side)) for side in _SIDES)
        firsts = self._firsts[low:high]
        run = low + max(0, int(np.searchsorted(firsts, max(0, after - self._base), "right")) - 1)
        found: list[Sequences] = []
        missing = limit
        while run < high and missing > 0:
            sequences = self._run(run)
            sequences = sequences[np.searchsorted(sequences, after, "right") :]
            found.append(sequences)
            missing -= len(sequences)
            run += 1
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _run(self, number: int) -> Sequences:
        start, end = int(self._starts[number]), int(self._starts[number + 1])
        steps = np.concatenate([[self._base + int(self._firsts[number])], decoded(self._data[start:end])])
        return np.cumsum(steps.astype(np.int64))

    def all(self) -> Matches:
        """Return all matches, sorted by subscription and sequence."""
        differences = decoded(self._data).astype(np.int64)
        ends = np.cumsum(np.concatenate([[0], (self._data < 0x80)]))  # how many differences end before each byte
        counts = np.diff(ends[self._starts.astype(np.int64)]) + 1
        entries = np.cumsum(counts) - counts
        steps = np.zeros(self.matches, np.int64)
        inside = np.ones(self.matches, np.bool_)
        inside[entries] = False
        steps[inside] = differences
        sums = np.cumsum(steps)
        firsts = self._base + self._firsts.astype(np.int64)
        sequences = sums + np.repeat(firsts - sums[entries], counts)
        return Matches(np.repeat(np.asarray(self._subscriptions, np.uint64), counts), sequences)


_SIDES: Final = ("left", "right")


def _run_starts(subscriptions: SubscriptionHashes) -> NDArray[np.bool_]:
    """Return a mask of the sorted matches that begin a run."""
    count = len(subscriptions)
    if not count:
        return np.zeros(0, np.bool_)
    is_new = np.concatenate([[True], subscriptions[1:] != subscriptions[:-1]])
    begins = np.flatnonzero(is_new)
    within = np.arange(count) - np.repeat(begins, np.diff(np.append(begins, count)))
    return np.equal(within % _RUN, 0)


def _lengths(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the number of bytes that each value takes, seven bits in each."""
    lengths = np.ones(len(values), np.int64)
    for bits in range(7, 64, 7):
        larger = values >= np.uint64(1 << bits)
        if not larger.any():
            break
        lengths += larger
    return lengths


def _varints(values: NDArray[np.uint64], lengths: NDArray[np.int64]) -> bytes:
    """Return the values as variable length integers: low bits first, the high bit set in all bytes but the last."""
    starts = np.cumsum(lengths) - lengths
    data = np.zeros(int(lengths.sum()), np.uint8)
    for number in range(int(lengths.max(initial=0))):
        has = lengths > number
        low = (values[has] >> np.uint64(7 * number)) & np.uint64(0x7F)
        more = (lengths[has] > number + 1).astype(np.uint64) << np.uint64(7)
        data[starts[has] + number] = (low | more).astype(np.uint8)
    return data.tobytes()


def decoded(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the values of variable length integers."""
    if not len(data):
        return np.zeros(0, np.uint64)
    ends = np.flatnonzero(data < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    within = np.arange(len(data)) - np.repeat(starts, ends - starts + 1)
    parts = (data & 0x7F).astype(np.uint64) << (7 * within).astype(np.uint64)
    return np.add.reduceat(parts, starts)
