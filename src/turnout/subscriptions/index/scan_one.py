"""Search of many texts in the values of one message, all in one pass.

The values are laid one after another, each within its marks, so that the fixed cost of a pass is paid once a message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from sys import byteorder
from typing import Final

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.buckets import Longs
from turnout.subscriptions.index.scanner import BEGIN, END, HALF, WORD, Scanner

_LONG_BYTES = 1 << 13
"""Values that are longer together are searched as a batch."""

_MOST_COMPARED = 1 << 10
"""Texts that are compared one by one; beyond that the values are searched as a batch, which bounds its time."""

_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_PLACES_OF_RUN = 32
"""Places for each run in a table of the runs that may be there."""

_OF_HALF: Final = 1 << 62
"""Added to the number of a run of two bytes; a fact's number is in the upper half of its runs."""

_FACT: Final = (1 << 30) - 1
_PADDING: Final = bytes(WORD - 1)
_ALL_BYTES: Final = bytes(range(256))


class OneScan:
    """Search of the texts of some facts.

    Each text has a run of four bytes, or of two. Those of a fact are looked for at all places of its values in a few
    calls of numpy, and where one is, its texts are compared.

    Args:
        scanners: by fact.
    """

    def __init__(self, scanners: Mapping[int, Scanner]) -> None:
        self._scanners = scanners
        grouped: defaultdict[int, list[tuple[bytes, int, int]]] = defaultdict(list)
        for size, base in ((HALF, _OF_HALF), (WORD, 0)):
            for fact, scanner in scanners.items():
                for number, offset, text, literal in scanner.by_run(size):
                    grouped[base | fact << 32 | number].append((text, offset, literal))
        self._texts_of = {number: (number >> 32 & _FACT, tuple(texts)) for number, texts in grouped.items()}
        numbers = np.fromiter(self._texts_of, np.int64, len(self._texts_of))
        bits = max(12, (_PLACES_OF_RUN * len(numbers)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._likely = np.zeros(1 << bits, np.bool_)
        self._likely[self._slots(numbers)] = True
        # Number of a fact, as the machine reads it.
        self._of_words = {fact: (fact << 32).to_bytes(8, byteorder) for fact in scanners}
        self._of_halves = {fact: (_OF_HALF | fact << 32).to_bytes(8, byteorder) for fact in scanners}
        self._bytes = {}
        for fact, scanner in scanners.items():
            if own := {byte: literal for byte, *_, literal in scanner.by_run(1)}:
                self._bytes[fact] = own, _ALL_BYTES.translate(None, bytes(own))

    def _slots(self, numbers: Longs) -> NDArray[np.int64]:
        return (numbers.view(np.uint64) * _FACTOR >> self._shift).view(np.int64)

    def find(self, facts: Sequence[int], values: Sequence[bytes]) -> dict[int, set[int]]:
        """Return the literals in values by fact; facts without any are left out.

        Args:
            facts: facts of each value; one may have several.
            values: in UTF-8, folded where the texts are; at least one.
        """
        data = b"".join((BEGIN, (END + BEGIN).join(values), END, _PADDING))
        length = len(data) - len(_PADDING)
        if length > _LONG_BYTES:
            return self._find_in_batch(facts, values)
        numbers = self._numbers(data, length, facts, values)
        indexes = self._likely.take(self._slots(numbers)).nonzero()[0]
        texts_of = self._texts_of
        found: defaultdict[int, set[int]] = defaultdict(set)
        compared = 0
        for number, index in zip(numbers.take(indexes).tolist(), indexes.tolist(), strict=True):
            of_run = texts_of.get(number)
            if of_run is not None:
                fact, texts = of_run
                compared += len(texts)
                if compared > _MOST_COMPARED:
                    return self._find_in_batch(facts, values)
                position = index if index < length else index - length
                for text, offset, literal in texts:
                    if offset <= position and data.startswith(text, position - offset):
                        found[fact].add(literal)
        if self._bytes:
            self._add_bytes(facts, values, found)
        return found

    def _numbers(self, data: bytes, length: int, facts: Sequence[int], values: Sequence[bytes]) -> Longs:
        """Return the number of the run at each place: of four bytes, and behind these of two."""
        sizes = [len(value) + len(BEGIN + END) for value in values]
        numbers = np.empty(2 * length, np.int64)
        for of_facts, type_, out in (
            (self._of_words, np.uint32, numbers[:length]),
            (self._of_halves, np.uint16, numbers[length:]),
        ):
            # Joined, as this takes less time than repeating numbers by numpy.
            owners = b"".join([of_facts[fact] * size for fact, size in zip(facts, sizes, strict=True)])
            np.bitwise_or(np.ndarray(length, type_, data, 0, (1,)), np.frombuffer(owners, np.int64), out)
        return numbers

    def _add_bytes(self, facts: Sequence[int], values: Sequence[bytes], found: defaultdict[int, set[int]]) -> None:
        """Add the texts of one byte."""
        of_facts = self._bytes
        for fact, value in zip(facts, values, strict=True):
            if fact in of_facts:
                literal_of, others = of_facts[fact]
                if some := value.translate(None, others):
                    found[fact].update([literal_of[byte] for byte in set(some)])

    def _find_in_batch(self, facts: Sequence[int], values: Sequence[bytes]) -> dict[int, set[int]]:
        by_fact: defaultdict[int, list[bytes]] = defaultdict(list)
        for fact, value in zip(facts, values, strict=True):
            by_fact[fact].append(value)
        found = {fact: set(self._scanners[fact].find(own)[1].tolist()) for fact, own in by_fact.items()}
        return {fact: literals for fact, literals in found.items() if literals}
