"""Final numbers of a segment's literals, in the order of their hashes."""

from __future__ import annotations

import numpy as np

from turnout.subscriptions.index.arrays import EQUAL, MANY
from turnout.subscriptions.index.buckets import Indices, arranged
from turnout.subscriptions.index.clauses import Clauses
from turnout.subscriptions.index.facts import encoded_all, hashes_of, salt_of
from turnout.subscriptions.index.literal_choice import Prices
from turnout.subscriptions.index.secondary_keys import SecondaryKeys
from turnout.subscriptions.index.text_arrays import Texts


class NumberedLiterals:
    """The literals that something refers to, from 1 in the order of their hashes.

    Args:
        clauses: clauses of the segment, with all literals.
        ways: literals that entries are found by.
        prices: number of uses of each literal.

    Attributes:
        hash: hash of each literal, beginning with literal 1.
        fact: fact of its text.
        start: start of the buckets of hashes.
        text: the texts themselves.
        uses: number of uses of each.
        first_facts: the facts whose literals a message is asked for first.
    """

    def __init__(self, clauses: Clauses, ways: SecondaryKeys, prices: Prices) -> None:
        fact_of_literal = np.array(clauses.literals.fact, np.int64)
        used = np.zeros(len(fact_of_literal), np.bool_)
        used[ways.first] = True
        used[ways.second] = True
        op, b = np.array(clauses.op, np.int32), np.array(clauses.b, np.int64)
        used[b[(op == EQUAL) | (op == MANY)]] = True
        for members in clauses.sets:
            used[list(members)] = True
        raws = encoded_all(clauses.literals.text)
        hashes = np.zeros(len(raws), np.uint64)
        for number, fact in enumerate(clauses.literals.facts):
            mine = np.flatnonzero(used & (fact_of_literal == number))
            hashes[mine] = hashes_of([raws[index] for index in mine.tolist()], salt_of(fact))
        selected = np.flatnonzero(used)
        order, self.start = arranged(hashes.take(selected))
        selected = selected.take(order)
        self.hash = hashes.take(selected)
        self.fact = fact_of_literal.take(selected).astype(np.int32)
        self.text = Texts.of([raws[index] for index in selected.tolist()])
        self._number = np.zeros(len(raws), np.int64)
        self._number[selected] = np.arange(1, len(selected) + 1)
        self.uses = prices.uses.take(selected).astype(np.int32)
        self.first_facts: tuple[int, ...] = tuple(np.unique(fact_of_literal.take(ways.first)).tolist())

    def __len__(self) -> int:
        return len(self.hash)

    def of(self, literals: Indices) -> Indices:
        """Return the final number of each literal."""
        return self._number.take(literals)
