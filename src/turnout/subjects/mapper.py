"""Mapping of many subjects by one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.loops import loops_are_compiled
from turnout.loops.subjects import LOST, UNMATCHED
from turnout.subjects.arrays import ROWS_AT_ONCE, Int64s, SubjectArrays, is_plain, pack, unpack
from turnout.subjects.mapping_table import MappingTable, Share

Draws = Callable[[list[int]], NDArray[np.float64]]
"""Gives a number in [0, 1) for each requested row."""

_FEW_SUBJECTS = 8
"""Fewer are mapped one by one: a call of the loops has costs of its own."""
_CHOSEN, _UNDECIDED = -3, -4
"""In the place of a target: the draw chooses one, or the loops leave the texts to the reference."""


@dataclass(frozen=True, slots=True)
class _TableArrays:
    """A table for one cluster as arrays.

    Attributes:
        subjects: its sources, and the destinations of all shares.
        targets: the target of each source, `_CHOSEN` or `_UNDECIDED`; the last one keeps the subject, for no source.
        choices: the target for each percent, one row for each source whose target is chosen.
        rows: rows of *choices* by source.
    """

    subjects: SubjectArrays
    targets: Int64s
    choices: NDArray[np.int32]
    rows: Int64s

    @classmethod
    def of(cls, table: MappingTable, cluster: str | None) -> _TableArrays:
        """Return the arrays of a table."""
        shares_of = [mapping.group(cluster) for mapping in table.mappings]
        transforms = [share.transform for shares in shares_of for share in shares]
        targets: list[int] = []
        choices: list[list[int]] = []
        rows: list[int] = []
        target = 0
        for mapping, shares in zip(table.mappings, shares_of, strict=True):
            rows.append(len(choices))
            if not all(map(is_plain, (mapping.source, *(share.transform.destination for share in shares)))):
                targets.append(_UNDECIDED)
            elif _has_choice(shares):
                targets.append(_CHOSEN)
                slots: list[int] = []
                for number, share in enumerate(shares, target):
                    slots += [number] * (share.until - len(slots))
                choices.append(slots + [LOST] * (100 - len(slots)))
            else:
                targets.append(target)
            target += len(shares)
        arrays = SubjectArrays(
            [mapping.source for mapping in table.mappings],
            [(transform.steps, transform.tail) for transform in transforms],
        )
        ended = np.array([*targets, UNMATCHED], np.int64)
        return cls(arrays, ended, np.array(choices, np.int32).reshape(-1, 100), np.array(rows, np.int64))


def _has_choice(shares: Sequence[Share]) -> bool:
    """Return True if a draw decides where a message goes."""
    return len(shares) != 1 or shares[0].weight != 100 or shares[0].transform.is_random


class Mapper:
    """Applies a table to batches of subjects.

    Args:
        table: the mappings.
        cluster: cluster whose destinations apply.
    """

    def __init__(self, table: MappingTable, cluster: str | None = None) -> None:
        self._table = table
        self._cluster = cluster
        self._arrays: _TableArrays | None = None

    def apply(self, subjects: Sequence[str], draws: Draws) -> list[str | None]:
        """Map each subject; None where the weights mean loss.

        Args:
            subjects: as published.
            draws: gives a number in [0, 1) for each requested row.
        """
        if len(subjects) < _FEW_SUBJECTS or not loops_are_compiled():
            return self._apply_each(subjects, range(len(subjects)), draws)
        if self._arrays is None:
            self._arrays = _TableArrays.of(self._table, self._cluster)
        mapped: list[str | None] = []
        for start in range(0, len(subjects), ROWS_AT_ONCE):
            mapped += self._apply_some(self._arrays, subjects, start, draws)
        return mapped

    def _apply_some(self, arrays: _TableArrays, subjects: Sequence[str], first: int, draws: Draws) -> list[str | None]:
        some = subjects[first : first + ROWS_AT_ONCE]
        lines, odd = pack(some)
        found, starts = arrays.subjects.find(lines, len(some))
        targets = arrays.targets[found]
        left = [*odd, *np.flatnonzero(targets == _UNDECIDED).tolist()]
        targets[left] = LOST
        chances = None
        if len(chosen := np.flatnonzero(targets == _CHOSEN)):
            chances = np.zeros(len(some))
            chances[chosen] = draws((chosen + first).tolist())
            # As `turnout.subjects.random_numbers.percent` has it.
            targets[chosen] = arrays.choices[arrays.rows[found[chosen]], (chances[chosen] * 100).astype(np.int64)]
        mapped = unpack(arrays.subjects.render(lines, starts, targets, chances))
        for row in np.flatnonzero(targets == LOST).tolist():
            mapped[row] = None
        for row, result in zip(left, self._apply_each(subjects, [first + row for row in left], draws), strict=True):
            mapped[row] = result
        return mapped

    def _apply_each(self, subjects: Sequence[str], rows: Sequence[int], draws: Draws) -> list[str | None]:
        """Map the subjects of some rows one by one."""
        chosen = [row for row in rows if self._is_chosen(subjects[row])]
        chances = dict(zip(chosen, draws(chosen).tolist(), strict=True)) if chosen else {}
        return [self._table.apply(subjects[row], self._cluster, chances.get(row)) for row in rows]

    def _is_chosen(self, subject: str) -> bool:
        mapping = self._table.find(subject)
        return mapping is not None and _has_choice(mapping.group(self._cluster))
