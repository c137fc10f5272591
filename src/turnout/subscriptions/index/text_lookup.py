"""Literals of a batch's texts, found by the texts themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from operator import itemgetter

import numpy as np

from turnout.conditions.anchor import Kind
from turnout.subscriptions.index.buckets import Indices, Ints, indices_of
from turnout.subscriptions.index.facts import WHOLE, text_maker
from turnout.subscriptions.index.message_columns import Column
from turnout.subscriptions.index.segment import Segment


class DirectLiterals:
    """Literals of rows under the facts of `Segment.direct_keys`, looked up at the first use of a fact.

    Most values of many keys occur once: filling a dictionary takes longer than the look-ups that it saves.

    Args:
        segment: segment with the facts.
        texts: by number of a key that is direct: the text of each row, None where the key is absent.
        count: how many rows there are.

    Attributes:
        is_direct: mask of the facts that are answered here.
    """

    def __init__(self, segment: Segment, texts: Mapping[int, Column], count: int) -> None:
        self._segment = segment
        self._texts = texts
        self._count = count
        keys = np.zeros(len(segment.head.keys), np.bool_)
        keys[list(texts)] = True
        self.is_direct = keys.take(segment.key_of_fact)
        facts = indices_of(self.is_direct)
        self._slot = np.zeros(len(self.is_direct), np.int64)
        self._slot[facts] = np.arange(len(facts))
        self._known = np.zeros(len(self.is_direct), np.bool_)
        self._literals = np.empty((len(facts), count), np.int32)

    def of_fact(self, fact: int) -> Ints:
        """Return the literal of each row; 0 for none."""
        literals: Ints = self._literals[self._slot[fact]]
        if not self._known[fact]:
            literals[:] = self._found(fact)
            self._known[fact] = True
        return literals

    def of(self, facts: Ints, rows: Indices) -> Ints:
        """Return the literal of each of some rows under a fact of its own."""
        if not self._known.take(facts).all():
            for fact in np.unique(facts).tolist():
                self.of_fact(fact)
        return self._literals.ravel().take(self._slot.take(facts) * self._count + rows)

    def _found(self, fact: int) -> Ints:
        assert self._segment.texts is not None
        column = self._texts[int(self._segment.key_of_fact[fact])]
        known = self._segment.texts[fact]
        assert known is not None
        texts = _texts(self._segment.head.facts[fact][1], column.dense().values)
        literals = np.fromiter(map(known.get, texts, repeat(0)), np.int32, len(texts))  # type: ignore[arg-type]
        return column.by_row(literals)


def _texts(kind: Kind, values: Sequence[str | None]) -> Sequence[str | None]:
    """Return the text that a single fact makes of each value; None where there is no value."""
    if kind == WHOLE:
        return values
    if kind.op in ("^", "$") and not kind.fold:
        part = slice(kind.length) if kind.op == "^" else slice(-kind.length, None)
        # None has no part.
        with suppress(TypeError):
            return list(map(itemgetter(part), values))  # type: ignore[arg-type]
    make = text_maker(kind)
    return [None if value is None else make(value) for value in values]
