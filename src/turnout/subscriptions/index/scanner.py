"""Search of many texts in many values in one pass.

A text is written with its operation before it: ``~`` is in the value, ``^`` at its beginning, ``$`` at its end, ``=``
is all of it. Values get a mark before and after them that no UTF-8 text contains, so that each operation is a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, starmap
from sys import byteorder
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.records.types import Hashes
from turnout.subscriptions.index.buckets import Indices, Ints, Longs, expanded, indices_of

BEGIN, END, _BETWEEN = b"\xff", b"\xfe", b"\xfd"
_RUN = 3
"""Bytes of a text that are looked for first."""

WORD = 4
"""Bytes of a text that are looked for first in the values of one message; see `scan_one`."""

HALF = 2
"""The same for texts of fewer bytes than that."""

_MOST_BYTES = 1 << 20
"""Bytes of values that are searched at a time, roughly: each takes some 50 bytes of memory meanwhile."""

_WINDOW = 1 << 15
"""Positions that are searched together: few enough for a processor's cache."""

_TEXT = 32
"""Bits of a text in the number of a pair, below those of its piece or value."""

_GROUP = 8 * _RUN
"""Bits of a run below those of its group."""

_PLACES = 16
"""Places for each run in the table of those that may be there."""

_PIECES = 4
"""A longer value is searched in pieces, so many of them at a time."""

_MAX_PAIRS = 1 << 20
"""Approximate number of pairs of a place and a text that are compared at a time."""

_DENSE = 32
"""A run found more often than once in this many bytes of a value is dense: its texts are searched one by one there."""

_FACTOR = 0x9E3779B97F4A7C15
"""Odd, so that its powers are no multiples of a power of two."""

_Bytes = NDArray[np.uint8]


def marked(text: bytes) -> bytes:
    """Return the bytes to search for a text with its operation."""
    operation, plain = text[:1], text[1:]
    return BEGIN * (operation in b"^=") + plain + END * (operation in b"$=")


class Scanner:
    """Search of fixed texts, of which each group is looked for in values of its own.

    A run of three bytes of each text, the one that fewest other texts of its group have, is looked for at all places;
    where it is found, a hash of the place is compared with that of the text, and then the bytes are.

    Args:
        texts: distinct in a group, with their operations.
        literals: number of each text, ascending.
        groups: group of each text, from 0; all are of group 0 if not given.
    """

    def __init__(self, texts: Sequence[bytes], literals: Ints, groups: Indices | None = None) -> None:
        self._texts = list(map(marked, texts))
        self._literals = literals
        self._groups = np.zeros(len(texts), np.int64) if groups is None else groups
        self._size = np.fromiter(map(len, self._texts), np.int64, len(self._texts))
        self._start = np.cumsum(self._size) - self._size
        self._data = np.frombuffer(b"".join(self._texts), np.uint8)
        self._hash = self._hashes()
        self._tables = [_Runs(length, *self._runs(length)) for length in range(1, _RUN + 1)]

    def _hashes(self) -> Hashes:
        """Return the hash of each text: the sum of its bytes times powers."""
        if len(self._size) == 0:
            return np.zeros(0, np.uint64)
        index = np.arange(len(self._data)) - np.repeat(self._start, self._size)
        products = self._data * _powers(int(self._size.max())).take(index)
        hashes: Hashes = np.add.reduceat(products, self._start)
        return hashes

    def _runs(self, length: int) -> tuple[Indices, Longs, Indices]:
        """Return the texts that are looked for by a run of this length, their runs, and the places of these in them."""
        texts = np.flatnonzero(self._size >= length if length == _RUN else self._size == length)
        count = self._size.take(texts) - (length - 1)
        owner, indexes = expanded(self._start.take(texts), count)
        runs = _runs_at(self._data, length).take(indexes) | (self._groups.take(texts) << _GROUP).take(owner)
        _, which, uses = np.unique(runs, return_inverse=True, return_counts=True)
        if len(texts) == 0:
            return texts, runs, texts
        rarest = np.minimum.reduceat((uses.take(which) << 32) | np.arange(len(runs)), np.cumsum(count) - count)
        chosen = rarest & 0xFFFFFFFF
        return texts, runs.take(chosen), indexes.take(chosen) - self._start.take(texts.take(owner.take(chosen)))

    def find(self, values: Sequence[bytes], groups: Indices | None = None) -> tuple[Indices, Ints]:
        """Return pairs (index of the value, literal in it), sorted, each once.

        Args:
            values: to search.
            groups: group of each value; all are of group 0 if not given.
        """
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        is_cut = bool(sizes.max(initial=0) > _MOST_BYTES)
        pieces, value_of = self._pieces(values) if is_cut else (values, np.arange(len(values)))
        if is_cut:
            sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        upper = None if groups is None else groups.take(value_of) << _GROUP
        portions = indices_of(np.diff(np.cumsum(sizes) // _MOST_BYTES, prepend=0)).tolist()
        pairs = [np.zeros(0, np.int64)]
        for part in starmap(slice, pairwise(sorted({0, *portions, len(pieces)}))):
            joined = _Joined.of(pieces[part], sizes[part], None if upper is None else upper[part], is_marked=is_cut)
            owner, text = _split(self._find(joined))
            pairs.append(value_of[part].take(owner) << _TEXT | text)
        owner, text = _split(_distinct(pairs) if is_cut else np.concatenate(pairs))
        return owner, self._literals.take(text)

    def _pieces(self, values: Sequence[bytes]) -> tuple[list[bytes], Indices]:
        """Return the values with their marks, cut into pieces that need little memory, and the index of their values.

        Each piece has the beginning of the next one.
        """
        overlap = int(self._size.max(initial=1)) - 1
        step = max(1, overlap, _MOST_BYTES // _PIECES)
        pieces: list[bytes] = []
        owner: list[int] = []
        for index, value in enumerate(values):
            whole = BEGIN + value + END
            own = [whole]
            if len(value) > _MOST_BYTES:
                starts = range(0, max(1, len(whole) - overlap), step)
                own = [whole[start : start + step + overlap] for start in starts]
            pieces += own
            owner += [index] * len(own)
        return pieces, np.array(owner, np.int64)

    def _find(self, joined: _Joined) -> Longs:
        """Return the pairs of a piece and a text in it, as numbers, sorted, each once."""
        pairs = [np.zeros(0, np.int64)]
        *of_whole, rest = self._tables
        for table in of_whole:
            indexes, runs = table.find(joined.data, joined.upper)
            pairs.append(joined.owner.take(indexes) << _TEXT | table.texts.take(runs))
        indexes, runs = rest.find(joined.data, joined.upper)
        if int(rest.uses.take(runs).sum()) > _MAX_PAIRS:
            owners, texts, sparse = self._dense(joined, indexes, runs)
            pairs.append(self._contained(joined, owners, texts))
            indexes, runs = indexes.take(sparse), runs.take(sparse)
        sums = joined.sums() if len(indexes) else np.zeros(1, np.uint64)
        for some in rest.portions(runs):
            text, offset, which = rest.texts_of(runs[some])
            pairs += self._equal(joined, sums, indexes[some].take(which) - offset, text)
        return _distinct(pairs)

    def _dense(self, joined: _Joined, indexes: Indices, runs: Indices) -> tuple[Indices, Indices, Indices]:
        """Return pairs of a piece and the texts of runs that fill much of it, and the indices of all other runs.

        A value of one repeated letter has a run at each of its places, and each of its texts would be compared there.
        """
        table = self._tables[-1]
        keys, which, counts = np.unique(
            joined.owner.take(indexes) << _TEXT | runs, return_inverse=True, return_counts=True
        )
        pieces, dense_runs = _split(keys)
        is_dense = counts * _DENSE > np.diff(joined.starts).take(pieces)
        text, _, own = table.texts_of(dense_runs[is_dense])
        return pieces[is_dense].take(own), text, indices_of(~is_dense.take(which))

    def _equal(self, joined: _Joined, sums: Hashes, begin: Indices, text: Indices) -> list[Longs]:
        """Return the pairs of a piece and a text, as numbers, that are equal at one of the places at least."""
        data, size = joined.data, self._size.take(text)
        within = indices_of((begin >= 0) & (begin + size <= len(data)))
        begin, text, size = begin.take(within), text.take(within), size.take(within)
        hashes = sums.take(begin + size) - sums.take(begin)
        likely = indices_of(hashes == self._hash.take(text) * _powers(len(data)).take(begin))
        begin, text = begin.take(likely), text.take(likely)
        # One place of each pair is compared: a value may repeat a text a million times.
        pairs = joined.owner.take(begin) << _TEXT | text
        order = pairs.argsort()
        pairs = pairs.take(order)
        first = indices_of(np.diff(pairs, prepend=-1))
        pairs, some = pairs.take(first), order.take(first)
        begin, text = begin.take(some), text.take(some)
        which, indexes = expanded(begin, self._size.take(text))
        own = indexes + (self._start.take(text) - begin).take(which)
        differs = np.zeros(len(text), np.bool_)
        differs[which[data.take(indexes) != self._data.take(own)]] = True
        if not differs.any():
            return [pairs]
        # Another text has the same hash there; this one may still be elsewhere in the value.
        return [pairs[~differs], self._contained(joined, *_split(pairs[differs]))]

    def _contained(self, joined: _Joined, owners: Indices, texts: Indices) -> Longs:
        """Return those of the pairs of a piece and a text, as numbers, in which the piece contains the text."""
        found = [
            owner << _TEXT | text
            for owner, text in zip(owners.tolist(), texts.tolist(), strict=True)
            if self._texts[text] in joined.piece(owner)
        ]
        return np.array(found, np.int64)

    def by_run(self, size: int) -> Iterator[tuple[int, int, int, bytes, int]]:
        """Yield the group of a text, the number that so many of its bytes are, their place, the text and its literal.

        By one byte those of one, by two those of two and three, by four all others: the bytes that fewest texts have.
        """
        if size == 1:
            return ((group, raw[0], 0, raw, literal) for group, raw, literal in self._texts_of_size(1))
        return self._by_half() if size == HALF else self._by_word()

    def _by_half(self) -> Iterator[tuple[int, int, int, bytes, int]]:
        short = [*self._texts_of_size(2), *self._texts_of_size(3)]
        uses = Counter((group, raw[at : at + HALF]) for group, raw, _ in short for at in range(len(raw) - 1))
        for group, raw, literal in short:
            halves = [raw[at : at + HALF] for at in range(len(raw) - 1)]
            half = min(halves, key=lambda half, group=group: uses[group, half])  # type: ignore[misc]
            yield group, int.from_bytes(half, byteorder), raw.index(half), raw, literal

    def _texts_of_size(self, size: int) -> list[tuple[int, bytes, int]]:
        texts = np.flatnonzero(self._size == size).tolist()
        return [(int(self._groups[text]), self._texts[text], int(self._literals[text])) for text in texts]

    def _by_word(self) -> Iterator[tuple[int, int, int, bytes, int]]:
        """Yield longer texts by the four bytes that have their run."""
        groups, numbers = self._groups.tolist(), self._literals.tolist()
        table = self._tables[-1]
        for text, offset in zip(table.texts.tolist(), table.offsets.tolist(), strict=True):
            raw = self._texts[text]
            if len(raw) >= WORD:
                first = min(offset, len(raw) - WORD)
                number = int.from_bytes(raw[first : first + WORD], byteorder)
                yield groups[text], number, first, raw, numbers[text]


class _Joined(NamedTuple):
    """Pieces of values in one.

    Attributes:
        data: the bytes.
        starts: start of each piece, and the end of the last one.
        owner: piece at each place.
        upper: at each place the bits of its group; None for group 0.
    """

    data: _Bytes
    starts: Indices
    owner: Indices
    upper: Longs | None

    @classmethod
    def of(cls, pieces: Sequence[bytes], sizes: Indices, upper: Longs | None, *, is_marked: bool) -> _Joined:
        """Return pieces of these sizes; with *is_marked* they have their marks already."""
        begin, end = (b"", b"") if is_marked else (BEGIN, END)
        data = np.frombuffer(b"".join((begin, (end + _BETWEEN + begin).join(pieces), end, _BETWEEN)), np.uint8)
        spans = sizes + len(begin + end + _BETWEEN)
        starts = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum(spans, out=starts[1:])
        owner = np.arange(len(pieces)).repeat(spans)
        return cls(data, starts, owner, None if upper is None else upper.repeat(spans))

    def piece(self, number: int) -> bytes:
        """Return the bytes of a piece."""
        return self.data[self.starts[number] : self.starts[number + 1]].tobytes()

    def sums(self) -> Hashes:
        """Return the sum of the bytes times powers before each place."""
        sums = np.zeros(len(self.data) + 1, np.uint64)
        np.cumsum(self.data * _powers(len(self.data))[: len(self.data)], out=sums[1:])
        return sums


class _Runs:
    """Texts by a run of bytes of a fixed length.

    Attributes:
        length: length of the runs.
        texts: number of each text, in the order of their runs.
        offsets: position of the run in each text.
        uses: number of texts of each run.
    """

    def __init__(self, length: int, texts: Indices, runs: Longs, offsets: Indices) -> None:
        order = np.argsort(runs, kind="stable")
        self.length = length
        self.texts, self.offsets = texts.take(order), offsets.take(order)
        self._runs, self._first, self.uses = np.unique(runs.take(order), return_index=True, return_counts=True)
        self._shift = np.uint64(64 - max(8, (_PLACES * len(self._runs)).bit_length()))
        self._likely = np.zeros(1 << int(64 - self._shift), np.bool_)
        self._likely[self._slots(self._runs)] = True

    def _slots(self, runs: Longs) -> Longs:
        slots = runs.view(np.uint64) * np.uint64(_FACTOR)
        slots >>= self._shift
        return slots.view(np.int64)

    def find(self, data: _Bytes, upper: Longs | None) -> tuple[Indices, Indices]:
        """Return the places in the data that have a run, and the number of the run at each.

        Args:
            data: to search.
            upper: at each place the bits of its group; None for group 0.
        """
        if len(self._runs) == 0:
            return self.texts, self.texts
        windows = [self._find(data, upper, start) for start in range(0, len(data), _WINDOW)]
        indexes, numbers = zip(*windows, strict=True)
        return np.concatenate(indexes), np.concatenate(numbers)

    def _find(self, data: _Bytes, upper: Longs | None, start: int) -> tuple[Indices, Indices]:
        runs = _runs_at(data[start : start + _WINDOW + self.length - 1], self.length)
        if upper is not None:
            runs |= upper[start : start + len(runs)]
        indexes = indices_of(self._likely.take(self._slots(runs)))
        runs = runs.take(indexes)
        numbers = np.minimum(np.searchsorted(self._runs, runs), len(self._runs) - 1)
        known = indices_of(self._runs.take(numbers) == runs)
        return indexes.take(known) + start, numbers.take(known)

    def texts_of(self, runs: Indices) -> tuple[Indices, Indices, Indices]:
        """Return the texts of runs, the position of the run in each, and the index of the run in the argument."""
        which, own = expanded(self._first.take(runs), self.uses.take(runs))
        return self.texts.take(own), self.offsets.take(own), which

    def portions(self, runs: Indices) -> Iterator[slice]:
        """Yield slices of places whose runs have not too many texts together."""
        ends = np.cumsum(self.uses.take(runs))
        if len(ends):
            cuts = np.flatnonzero(np.diff(ends // _MAX_PAIRS, prepend=0)).tolist()
            yield from starmap(slice, pairwise(sorted({0, *cuts, len(runs)})))


def _runs_at(data: _Bytes, length: int) -> Longs:
    """Return the run of bytes at each place, as a number."""
    runs = data[: max(0, len(data) - length + 1)].astype(np.int64)
    for index in range(1, length):
        runs = (runs << 8) | data[index : index + len(runs)]
    return runs


def _distinct(parts: Sequence[Longs]) -> Longs:
    """Return the distinct numbers of all parts, sorted."""
    numbers = np.concatenate(parts)
    numbers.sort()
    return numbers.take(indices_of(np.diff(numbers, prepend=-1)))


def _split(pairs: Longs) -> tuple[Longs, Longs]:
    """Return the pieces or values, and the texts, of pairs."""
    return pairs >> _TEXT, pairs & ((1 << _TEXT) - 1)


_known_powers = np.ones(1, np.uint64)


def _powers(count: int) -> Hashes:
    """Return so many powers of the factor, or more, modulo 2 to the 64th."""
    global _known_powers
    powers = _known_powers
    if len(powers) < count:
        powers = np.full(max(count, 2 * len(powers)), _FACTOR, np.uint64)
        powers[0] = 1
        powers = _known_powers = np.cumprod(powers)
    return powers
