"""Search of many texts in many values in one pass.

A text is written with its operation before it: ``~`` is in the value, ``^`` at its beginning, ``$`` at its end, ``=``
is all of it. Values get a mark before and after them that no UTF-8 text contains, so that each operation is a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, starmap
from sys import byteorder

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
        pieces, value_of = self._pieces(values)
        upper = None if groups is None else groups.take(value_of) << _GROUP
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        portions = np.flatnonzero(np.diff(np.cumsum(sizes) // _MOST_BYTES, prepend=0)).tolist()
        owners, literals = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for part in starmap(slice, pairwise(sorted({0, *portions, len(pieces)}))):
            owner, own = self._find(pieces[part], sizes[part], None if upper is None else upper[part])
            owners.append(value_of[part].take(owner))
            literals.append(own)
        owner, literal = np.concatenate(owners), np.concatenate(literals)
        if len(pieces) > len(values):
            distinct = np.unique((owner << 32) | literal)
            return distinct >> 32, (distinct & 0xFFFFFFFF).astype(np.int32)
        return owner, literal

    def _pieces(self, values: Sequence[bytes]) -> tuple[list[bytes], Indices]:
        """Return the values with their marks, and the index of each one's value.

        A value that needs too much memory as a whole is cut into pieces, each with the beginning of the next one.
        """
        pieces = [BEGIN + value + END for value in values]
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        if not len(sizes) or sizes.max() <= _MOST_BYTES + 2:
            return pieces, np.arange(len(pieces))
        overlap = int(self._size.max(initial=1)) - 1
        step = max(1, overlap, _MOST_BYTES // _PIECES)
        starts = [range(0, max(1, size - overlap), step) for size in sizes.tolist()]
        cut = [
            piece[start : start + step + overlap] for piece, own in zip(pieces, starts, strict=True) for start in own
        ]
        return cut, np.repeat(np.arange(len(pieces)), list(map(len, starts)))

    def _find(self, pieces: Sequence[bytes], sizes: Indices, upper: Longs | None) -> tuple[Indices, Ints]:
        data = np.frombuffer(_BETWEEN.join(pieces), np.uint8)
        starts = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum(sizes + len(_BETWEEN), out=starts[1:])
        own = None if upper is None else upper.repeat(np.diff(starts))
        hits = [table.find(data, own) for table in self._tables]
        pairs = [np.zeros(0, np.int64)]
        if (
            sum(int(table.uses.take(runs).sum()) for table, (_, runs) in zip(self._tables, hits, strict=True))
            > _MAX_PAIRS
        ):
            pairs.append(self._contained(pieces, *self._take_dense(hits, starts)))
        sums = np.zeros(len(data) + 1, np.uint64)
        np.cumsum(data * _powers(len(data))[: len(data)], out=sums[1:])
        for begin, text in self._candidates(hits):
            pairs += self._equal(data, sums, begin, text, starts, pieces)
        owners, texts = np.divmod(np.unique(np.concatenate(pairs)), max(1, len(self._texts)))
        return owners, self._literals.take(texts)

    def _take_dense(self, hits: list[tuple[Indices, Indices]], starts: Indices) -> tuple[Indices, Indices]:
        """Remove the runs that fill much of a value from *hits*; return the pairs of that value and their texts.

        A value of one repeated letter has a run at each of its places, and each of its texts would be compared there.
        """
        owners, texts = [], []
        for i, (table, (indexes, runs)) in enumerate(zip(self._tables, hits, strict=True)):
            owner = np.searchsorted(starts, indexes, "right") - 1
            keys, which, counts = np.unique(
                owner * (len(table.uses) + 1) + runs, return_inverse=True, return_counts=True
            )
            values, dense_runs = np.divmod(keys, len(table.uses) + 1)
            is_dense = counts * _DENSE > np.diff(starts).take(values)
            text, _, own = table.texts_of(dense_runs[is_dense])
            owners.append(values[is_dense].take(own))
            texts.append(text)
            rest = np.flatnonzero(~is_dense.take(which))
            hits[i] = indexes.take(rest), runs.take(rest)
        return np.concatenate(owners), np.concatenate(texts)

    def _candidates(self, hits: Iterable[tuple[Indices, Indices]]) -> Iterator[tuple[Indices, Indices]]:
        """Yield the places where texts may begin, with these, not too many at a time."""
        begins, texts, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        for table, (indexes, runs) in zip(self._tables, hits, strict=True):
            for some in table.portions(runs):
                text, offset, which = table.texts_of(runs[some])
                if count + len(text) > _MAX_PAIRS:
                    yield np.concatenate(begins), np.concatenate(texts)
                    begins, texts, count = [], [], 0
                begins.append(indexes[some].take(which) - offset)
                texts.append(text)
                count += len(text)
        yield np.concatenate(begins), np.concatenate(texts)

    def _equal(
        self, data: _Bytes, sums: Hashes, begin: Indices, text: Indices, starts: Indices, pieces: Sequence[bytes]
    ) -> list[Longs]:
        """Return the pairs of a value and a text, as numbers, that are equal at one of the places at least."""
        size = self._size.take(text)
        within = np.flatnonzero((begin >= 0) & (begin + size <= len(data)))
        begin, text, size = begin.take(within), text.take(within), size.take(within)
        hashes = sums.take(begin + size) - sums.take(begin)
        likely = np.flatnonzero(hashes == self._hash.take(text) * _powers(len(data)).take(begin))
        begin, text = begin.take(likely), text.take(likely)
        owner = np.searchsorted(starts, begin, "right") - 1
        # One place of each pair is compared: a value may repeat a text a million times.
        pairs, first = np.unique(owner * len(self._texts) + text, return_index=True)
        begin, text = begin[first], text[first]
        which, indexes = expanded(begin, self._size.take(text))
        own = indexes + (self._start.take(text) - begin).take(which)
        differs = np.zeros(len(text), np.bool_)
        differs[which[data.take(indexes) != self._data.take(own)]] = True
        if not differs.any():
            return [pairs]
        # Another text has the same hash there; this one may still be elsewhere in the value.
        owners, texts = np.divmod(pairs[differs], len(self._texts))
        return [pairs[~differs], self._contained(pieces, owners, texts)]

    def _contained(self, pieces: Sequence[bytes], owners: Indices, texts: Indices) -> Longs:
        """Return those of the pairs of a piece and a text, as numbers, in which the piece contains the text."""
        found = [
            owner * len(self._texts) + text
            for owner, text in zip(owners.tolist(), texts.tolist(), strict=True)
            if self._texts[text] in pieces[owner]
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
