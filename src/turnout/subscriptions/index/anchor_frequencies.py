"""Estimated frequency of anchor texts: subscriptions are indexed by rare texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.conditions.anchor import Anchor, weight
from turnout.conditions.evaluate import parsed_number
from turnout.conditions.pattern import fold
from turnout.subscriptions.index.buckets import Indices
from turnout.subscriptions.index.facts import BEGIN, END, PART, Fact, encoded_all, marked, probes_of
from turnout.subscriptions.index.ranges import Numbers, cells_of, size_of

_LEAST_INTERVALS = 1024
"""Fewer intervals of a key say little of how its values are spread: a text is preferred to half of them."""

_PART_WEIGHTS = np.array([64.0, 64.0, 16.0, 4.0, 1.5])
"""Weight of a part by its length, the last one for longer parts."""


_RUN = 3
"""Bytes of a part by which sample values are found that may have it."""


class Background(Protocol):
    """Frequency of a text among the subscriptions of other segments."""

    def use_counts(self, fact: Fact, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of uses of each text of the fact."""
        ...


class Costs:
    """Cost of literals, from the number of subscriptions and of sample messages that have them.

    Args:
        sample: metadata of typical messages.
        background: other uses of literals, if only a few subscriptions are counted.
    """

    def __init__(self, sample: Collection[Mapping[str, str]] = (), background: Background | None = None) -> None:
        self._sample = tuple(sample)
        self._frequencies: dict[Fact, Counter[str]] = {}
        self._background = background

    def with_background(self, background: Background) -> Costs:
        """Return these costs with another background, for a few additional subscriptions."""
        other = Costs((), background)
        other._sample, other._frequencies = self._sample, self._frequencies
        return other

    def of(self, fact: Fact, texts: Sequence[str], use_counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the cost of each text of a fact; *use_counts* is the number of subscriptions that use it."""
        if self._background is not None:
            use_counts = use_counts + self._background.use_counts(fact, texts)
        is_part = fact[1].op == PART.op
        weights = _weights_of_parts(texts) if is_part else weight(Anchor(fact[0], fact[1], ""))
        guess = np.maximum(use_counts, 1) * weights
        if not self._sample:
            return guess
        counts = self._counts_of_parts(fact, texts) if is_part else self._counts(fact, texts)
        # The guess only decides between texts that the sample shows alike.
        return np.asarray(counts + guess / (guess + 1), np.float64)

    def _counts(self, fact: Fact, texts: Sequence[str]) -> NDArray[np.float64]:
        return np.fromiter(map(self.frequencies(fact).get, texts, repeat(0)), np.float64, len(texts))

    def _counts_of_parts(self, fact: Fact, texts: Sequence[str]) -> NDArray[np.float64]:
        key, kind = fact
        values = [message[key] for message in self._sample if key in message]
        raws = [BEGIN + raw + END for raw in encoded_all(map(fold, values) if kind.fold else values)]
        with_run: defaultdict[bytes, set[int]] = defaultdict(set)
        for number, raw in enumerate(raws):
            for offset in range(len(raw) - _RUN + 1):
                with_run[raw[offset : offset + _RUN]].add(number)
        counts = []
        for text in map(marked, encoded_all(texts)):
            runs = [text[offset : offset + _RUN] for offset in range(len(text) - _RUN + 1)]
            likely = min((with_run.get(run, ()) for run in runs), key=len, default=range(len(raws)))
            counts.append(sum([text in raws[number] for number in likely]))
        return np.array(counts, np.float64)

    def of_nodes(self, key: str, cuts: Numbers, nodes: Indices, use_count: int) -> NDArray[np.float64]:
        """Return the cost of nodes over the cells of a key, which *use_count* intervals use."""
        depth = np.frexp(nodes)[1] - 1
        guess: NDArray[np.float64] = np.ldexp(float(max(use_count, _LEAST_INTERVALS)), -depth)
        if not self._sample:
            return guess
        found = cells_of(cuts, self._numbers(key)) + size_of(cuts)
        counts = np.bincount(found, minlength=2 * size_of(cuts))
        for node in range(size_of(cuts) - 1, 0, -1):
            counts[node] = counts[2 * node] + counts[2 * node + 1]
        return np.asarray(counts.take(nodes) + guess / (guess + 1), np.float64)

    def _numbers(self, key: str) -> Numbers:
        read = (parsed_number(message[key]) for message in self._sample if key in message)
        return np.array([number for number in read if number is not None], np.float64)

    def frequencies(self, fact: Fact) -> Counter[str]:
        """Return the number of sample messages with each text."""
        if fact not in self._frequencies:
            key, probes = fact[0], probes_of(fact[1])
            values = (message[key] for message in self._sample if key in message)
            self._frequencies[fact] = Counter(text for value in values for text in probes(value))
        return self._frequencies[fact]


def _weights_of_parts(texts: Sequence[str]) -> NDArray[np.float64]:
    lengths = np.fromiter(map(len, texts), np.int64, len(texts)) - 1
    return _PART_WEIGHTS.take(lengths, mode="clip")
