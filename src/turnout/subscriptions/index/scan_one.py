"""Search of many texts in the values of one message, all in one pass.

The values are laid one after another, each within its marks, so that the fixed cost of a pass is paid once a message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.buckets import Longs
from turnout.subscriptions.index.facts import encoded
from turnout.subscriptions.index.scanner import BEGIN, END, HALF, WORD, Scanner

_LONG_BYTES = 1 << 13
"""Values that are longer together are searched as a batch."""

_MOST_COMPARED = 1 << 10
"""Texts that are compared one by one; beyond that the values are searched as a batch, which bounds its time."""

_FACTOR: Final = np.array(0x9E3779B97F4A7C15, np.uint64)
_PLACES_OF_RUN = 32
"""Places for each run in a table of the runs that may be there."""

_OF_HALF: Final = 1 << 62
"""Added to the number of a run of two bytes; a fact's number is in the upper half of its runs."""

_FACT: Final = (1 << 30) - 1
_PADDING: Final = bytes(WORD - 1)


class OneScan:
    """Search of the texts of some facts.

    Each text has a run of four bytes, or of two. Those of a fact are looked for at all places of its values in a few
    calls of numpy, and where one is, its texts are compared.

    Args:
        scanner: the texts, in groups by fact.
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        grouped: defaultdict[int, list[tuple[bytes, int, int]]] = defaultdict(list)
        for size, base in ((HALF, _OF_HALF), (WORD, 0)):
            for fact, number, offset, text, literal in scanner.by_run(size):
                grouped[base | fact << 32 | number].append((text, offset, literal))
        self._texts_of = {number: tuple(texts) for number, texts in grouped.items()}
        numbers = np.fromiter(self._texts_of, np.int64, len(self._texts_of))
        bits = max(12, (_PLACES_OF_RUN * len(numbers)).bit_length())
        # Arrays, as numpy takes them in less time than numbers.
        self._shift = np.array(64 - bits, np.uint64)
        self._of_half = np.array(_OF_HALF, np.int64)
        self._likely = np.zeros(1 << bits, np.bool_)
        self._likely[self._slots(numbers)] = True
        of_bytes: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for fact, byte, _, _, literal in scanner.by_run(1):
            of_bytes[fact].append((byte, literal))
        self._bytes = dict(of_bytes)

    def _slots(self, numbers: Longs) -> NDArray[np.int64]:
        slots = numbers.view(np.uint64) * _FACTOR
        slots >>= self._shift
        return slots.view(np.int64)

    def find(self, asked: Mapping[str, Sequence[int]]) -> dict[int, set[int]]:
        """Return the literals in values by fact; facts without any are left out.

        Args:
            asked: facts to search each value for, by the value; folded where the texts are. At least one value.
        """
        facts: list[int] = []
        values: list[bytes] = []
        for value, own in asked.items():
            facts += own
            values += [encoded(value)] * len(own)
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
            texts = texts_of.get(number)
            if texts is not None:
                compared += len(texts)
                if compared > _MOST_COMPARED:
                    return self._find_in_batch(facts, values)
                position = index if index < length else index - length
                for text, offset, literal in texts:
                    if offset <= position and data.startswith(text, position - offset):
                        found[number >> 32 & _FACT].add(literal)
        if self._bytes:
            self._add_bytes(facts, values, found)
        return found

    def _numbers(self, data: bytes, length: int, facts: Sequence[int], values: Sequence[bytes]) -> Longs:
        """Return the number of the run at each place: of four bytes, and behind these of two."""
        numbers = np.empty(2 * length, np.int64)
        owners = np.array(facts, np.int64)
        owners <<= 32
        owners = owners.repeat([len(value) + len(BEGIN + END) for value in values])
        np.bitwise_or(np.ndarray(length, np.uint32, data, 0, (1,)), owners, numbers[:length])
        owners |= self._of_half
        np.bitwise_or(np.ndarray(length, np.uint16, data, 0, (1,)), owners, numbers[length:])
        return numbers

    def _add_bytes(self, facts: Sequence[int], values: Sequence[bytes], found: defaultdict[int, set[int]]) -> None:
        """Add the texts of one byte."""
        texts_of = self._bytes
        values_of: dict[int, list[bytes]] = {}
        for fact, value in zip(facts, values, strict=True):
            if fact in texts_of:
                values_of.setdefault(fact, []).append(value)
        for fact, own in values_of.items():
            joined = END.join(own)
            literals = [literal for byte, literal in texts_of[fact] if byte in joined]
            if literals:
                found[fact].update(literals)

    def _find_in_batch(self, facts: Sequence[int], values: Sequence[bytes]) -> dict[int, set[int]]:
        found: defaultdict[int, set[int]] = defaultdict(set)
        owners, literals = self._scanner.find(values, np.array(facts, np.int64))
        for owner, literal in zip(owners.tolist(), literals.tolist(), strict=True):
            found[facts[owner]].add(literal)
        return found
