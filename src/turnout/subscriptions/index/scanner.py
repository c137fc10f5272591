"""Search of many texts in many values in one pass.

A text is written with its operation before it: ``~`` is in the value, ``^`` at its beginning, ``$`` at its end, ``=``
is all of it. Values get a mark before and after them that no UTF-8 text contains, so that each operation is a search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.buckets import Ints, Longs, Places, expanded

_BEGIN, _END = b"\xff", b"\xfe"
_RUN = 3
"""Bytes of a text that are looked for first."""

_MOST_BYTES = 1 << 20
"""Bytes of values that are searched at a time, roughly: each takes some 50 bytes of memory meanwhile."""

_FACTOR = 0x9E3779B97F4A7C15
"""Odd, so that its powers are no multiples of a power of two."""

_Bytes = NDArray[np.uint8]


def marked(text: bytes) -> bytes:
    """Return the bytes to search for a text with its operation."""
    operation, plain = text[:1], text[1:]
    return _BEGIN * (operation in b"^=") + plain + _END * (operation in b"$=")


class Scanner:
    """Search of fixed texts.

    A run of three bytes of each text, the one that fewest other texts have, is looked for at all places; where it is
    found, a hash of the place is compared with that of the text, and then the bytes are.

    Args:
        texts: distinct, with their operations.
        literals: number of each text.
    """

    def __init__(self, texts: Sequence[bytes], literals: Ints) -> None:
        self._texts = list(map(marked, texts))
        self._literals = literals
        self._size = np.fromiter(map(len, self._texts), np.int64, len(self._texts))
        self._start = np.cumsum(self._size) - self._size
        self._data = np.frombuffer(b"".join(self._texts), np.uint8)
        self._hash = self._hashes()
        self._tables = [_Runs(length, *self._runs(length)) for length in range(1, _RUN + 1)]

    def _hashes(self) -> NDArray[np.uint64]:
        """Return the hash of each text: the sum of its bytes times powers."""
        if len(self._size) == 0:
            return np.zeros(0, np.uint64)
        place = np.arange(len(self._data)) - np.repeat(self._start, self._size)
        products = self._data * _powers(int(self._size.max())).take(place)
        hashes: NDArray[np.uint64] = np.add.reduceat(products, self._start)
        return hashes

    def _runs(self, length: int) -> tuple[Places, Longs, Places]:
        """Return the texts that are looked for by a run of this length, their runs, and the places of these in them."""
        texts = np.flatnonzero(self._size >= length if length == _RUN else self._size == length)
        count = self._size.take(texts) - (length - 1)
        owner, places = expanded(self._start.take(texts), count)
        runs = _runs_at(self._data, length).take(places)
        _, which, uses = np.unique(runs, return_inverse=True, return_counts=True)
        if len(texts) == 0:
            return texts, runs, texts
        rarest = np.minimum.reduceat((uses.take(which) << 32) | np.arange(len(runs)), np.cumsum(count) - count)
        chosen = rarest & 0xFFFFFFFF
        return texts, runs.take(chosen), places.take(chosen) - self._start.take(texts.take(owner.take(chosen)))

    def find(self, values: Sequence[bytes]) -> tuple[Places, Ints]:
        """Return pairs (index of the value, literal in it), sorted by value, each once."""
        ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
        portions = np.flatnonzero(np.diff(ends // _MOST_BYTES, prepend=0)).tolist()
        owners, literals = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for first, last in pairwise(sorted({0, *portions, len(values)})):
            owner, own = self._find(values[first:last])
            owners.append(owner + first)
            literals.append(own)
        return np.concatenate(owners), np.concatenate(literals)

    def _find(self, values: Sequence[bytes]) -> tuple[Places, Ints]:
        data = np.frombuffer(_BEGIN + (_END + _BEGIN).join(values) + _END, np.uint8)
        begins, texts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for table in self._tables:
            places, found, offsets = table.find(data)
            begins.append(places - offsets)
            texts.append(found)
        begin, text = self._equal(data, np.concatenate(begins), np.concatenate(texts))
        starts = np.cumsum([0, *(len(value) + 2 for value in values)])
        value = np.searchsorted(starts, begin, "right") - 1
        pairs = np.unique((value << 32) | self._literals.take(text))
        return pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.int32)

    def _equal(self, data: _Bytes, begin: Places, text: Places) -> tuple[Places, Places]:
        """Return the places, with the texts, at which the bytes are those of the text."""
        size = self._size.take(text)
        within = np.flatnonzero((begin >= 0) & (begin + size <= len(data)))
        begin, text, size = begin.take(within), text.take(within), size.take(within)
        if len(text) == 0:
            return begin, text
        powers = _powers(len(data))
        sums = np.zeros(len(data) + 1, np.uint64)
        np.cumsum(data * powers[: len(data)], out=sums[1:])
        hashes = sums.take(begin + size) - sums.take(begin)
        likely = np.flatnonzero(hashes == self._hash.take(text) * powers.take(begin))
        begin, text, size = begin.take(likely), text.take(likely), size.take(likely)
        which, places = expanded(begin, size)
        own = places + (self._start.take(text) - begin).take(which)
        differs = np.zeros(len(text), np.bool_)
        differs[which[data.take(places) != self._data.take(own)]] = True
        same = np.flatnonzero(~differs)
        return begin.take(same), text.take(same)

    @cached_property
    def _by_run(self) -> list[dict[tuple[int, ...], list[tuple[bytes, int]]]]:
        """Texts with their literals by run, for runs of one byte, of two, and of three."""
        numbers = self._literals.tolist()
        tables = []
        for table in self._tables:
            by_run: defaultdict[tuple[int, ...], list[tuple[bytes, int]]] = defaultdict(list)
            for text, offset in zip(table.texts.tolist(), table.offsets.tolist(), strict=True):
                raw = self._texts[text]
                by_run[tuple(raw[offset : offset + table.length])].append((raw, numbers[text]))
            tables.append(dict(by_run))
        return tables

    def prepare(self) -> None:
        """Prepare the search of single values, which otherwise the first one waits for."""
        _ = self._by_run

    def find_one(self, value: bytes) -> tuple[int, ...]:
        """Return the literals in one value, each once."""
        data = _BEGIN + value + _END
        found: list[int] = []
        for length, by_run in enumerate(self._by_run, 1):
            if by_run:
                runs = zip(*(data[start:] for start in range(length)), strict=False)
                known = set(filter(by_run.__contains__, runs))
                found += [literal for run in known for text, literal in by_run[run] if text in data]
        return tuple(found)


class _Runs:
    """Texts by a run of bytes of a fixed length.

    Attributes:
        length: of the runs.
        texts: number of each text, in the order of their runs.
        offsets: place of the run in each text.
    """

    def __init__(self, length: int, texts: Places, runs: Longs, offsets: Places) -> None:
        order = np.argsort(runs, kind="stable")
        self.length = length
        self.texts, self.offsets = texts.take(order), offsets.take(order)
        self._runs, first = np.unique(runs.take(order), return_index=True)
        self._at = np.append(first, len(order)).astype(np.int64)
        self._bits = min(8 * length, max(8, int(len(runs) * 16).bit_length()))
        self._likely = np.zeros(1 << self._bits, np.bool_)
        self._likely[self._mixed(self._runs)] = True

    def _mixed(self, runs: Longs) -> Longs:
        mixed: Longs = (runs ^ (runs >> 7)) & ((1 << self._bits) - 1)
        return mixed

    def find(self, data: _Bytes) -> tuple[Places, Places, Places]:
        """Return where in the data runs are, the texts that have them, and where in the text the run is."""
        if len(self._runs) == 0:
            return self.texts, self.texts, self.texts
        runs = _runs_at(data, self.length)
        places = np.flatnonzero(self._likely.take(self._mixed(runs)))
        runs = runs.take(places)
        at = np.minimum(np.searchsorted(self._runs, runs), len(self._runs) - 1)
        known = np.flatnonzero(self._runs.take(at) == runs)
        places, at = places.take(known), at.take(known)
        first = self._at.take(at)
        which, own = expanded(first, self._at.take(at + 1) - first)
        return places.take(which), self.texts.take(own), self.offsets.take(own)


def _runs_at(data: _Bytes, length: int) -> Longs:
    """Return the run of bytes at each place, as a number."""
    runs = data[: max(0, len(data) - length + 1)].astype(np.int64)
    for place in range(1, length):
        runs = (runs << 8) | data[place : place + len(runs)]
    return runs


_known_powers = np.ones(1, np.uint64)


def _powers(count: int) -> NDArray[np.uint64]:
    """Return so many powers of the factor, or more, modulo 2 to the 64th."""
    global _known_powers
    powers = _known_powers
    if len(powers) < count:
        powers = np.full(max(count, 2 * len(powers)), _FACTOR, np.uint64)
        powers[0] = 1
        powers = _known_powers = np.cumprod(powers)
    return powers
