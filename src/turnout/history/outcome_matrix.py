"""The matrix of two versions: how many records ended in one way with the old and in another with the new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turnout.history.outcome_watch import EndedRecord, EndNumbers


@dataclass(frozen=True, slots=True)
class Matrix:
    """Records by how they ended with the old version and with the new one.

    Attributes:
        counts: (old, new) → number of records.
    """

    counts: Mapping[tuple[EndedRecord, EndedRecord], int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, old: EndNumbers, new: EndNumbers
    ) -> tuple[Matrix, NDArray[np.bool_], list[tuple[EndedRecord, EndedRecord]]]:
        """Return a batch's matrix, a mask of rows with changed outcomes, and the pairs of these rows in order."""
        pairs = old.codes * new.width + new.codes
        codes, inverse, numbers = np.unique(pairs, return_inverse=True, return_counts=True)
        ended = [(old.ended(code // new.width), new.ended(code % new.width)) for code in codes.tolist()]
        counts = dict(zip(ended, numbers.tolist(), strict=True))
        other = np.array([before != after for before, after in ended], np.bool_)[inverse]
        return cls(counts), other, [ended[at] for at in inverse[other].tolist()]

    def __add__(self, others: Matrix) -> Matrix:
        counts = dict(self.counts)
        for pair, number in others.counts.items():
            counts[pair] = counts.get(pair, 0) + number
        return Matrix(counts)

    @property
    def changes(self) -> list[tuple[EndedRecord, EndedRecord, int]]:
        """Entries off the diagonal, most records first."""
        changed = [(old, new, number) for (old, new), number in self.counts.items() if old != new]
        return sorted(changed, key=lambda change: (-change[2], change[0], change[1]))

    @property
    def outcomes(self) -> int:
        """Number of records with another outcome."""
        return sum(number for old, new, number in self.changes if old.outcome != new.outcome)

    @property
    def stages(self) -> int:
        """Number of records with the same outcome at another stage."""
        return sum(number for old, new, number in self.changes if old.outcome == new.outcome)

    def by_version(self) -> tuple[dict[EndedRecord, int], dict[EndedRecord, int]]:
        """Records by how they ended, of the old version and of the new one."""
        old: dict[EndedRecord, int] = {}
        new: dict[EndedRecord, int] = {}
        for (before, after), number in sorted(self.counts.items()):
            old[before] = old.get(before, 0) + number
            new[after] = new.get(after, 0) + number
        return old, new
