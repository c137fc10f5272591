"""Mapping of many subjects by one table; work that depends only on the subject is done once and cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.subjects.mapping_table import MappingTable, Share
from turnout.subjects.random_numbers import percent

_MAX_SUBJECTS = 200_000
"""Maximum number of cached subjects; the cache is cleared when it is full."""


class _Drawn(dict[int, str | None]):
    """Results of a subject with weighted destinations, by the draw's percent; None where the message is lost.

    Of shares with ``random(n)``, for which the whole draw counts, nothing is kept.
    """

    __slots__ = ("_is_random", "_shares", "_subject", "_tokens")

    def __init__(self, subject: str, shares: Sequence[Share]) -> None:
        super().__init__()
        self._subject = subject
        self._tokens = subject.split(".")
        self._shares = [(share.until, share.transform) for share in shares]
        self._is_random = any(share.transform.is_random for share in shares)

    def new(self, point: int, draw: float) -> str | None:
        """Map the subject with a random draw; used for percents that are not cached."""
        rendered = self._render(point, draw)
        if not self._is_random:
            self[point] = rendered
        return rendered

    def _render(self, point: int, draw: float) -> str | None:
        for until, transform in self._shares:
            if point < until:
                return transform.render(self._subject, self._tokens, draw)
        return None


class Mapper:
    """Applies a table to batches of subjects.

    Args:
        table: the mappings.
        cluster: cluster whose destinations apply.
    """

    def __init__(self, table: MappingTable, cluster: str | None = None) -> None:
        self._table = table
        self._cluster = cluster
        self._cache: dict[str, str | _Drawn] = {}

    def apply(self, subjects: Sequence[str], draws: Callable[[list[int]], NDArray[np.float64]]) -> list[str | None]:
        """Map each subject; None where the weights mean loss.

        Args:
            subjects: as published.
            draws: gives a number in [0, 1) for each requested row.
        """
        cache = self._cache
        if len(cache) > _MAX_SUBJECTS:
            cache.clear()
        for subject in set(subjects).difference(cache):
            cache[subject] = self._find(subject)
        mapped: list[Any] = [cache[subject] for subject in subjects]
        undecided = [row for row, result in enumerate(mapped) if type(result) is _Drawn]
        if undecided:
            for row, draw in zip(undecided, draws(undecided).tolist(), strict=True):
                drawn_targets, point = mapped[row], percent(draw)
                # A loss is None, too.
                mapped[row] = drawn_targets[point] if point in drawn_targets else drawn_targets.new(point, draw)
        return mapped

    def _find(self, subject: str) -> str | _Drawn:
        mapping = self._table.find(subject)
        if mapping is None:
            return subject
        shares = mapping.group(self._cluster)
        if len(shares) == 1 and shares[0].weight == 100 and not shares[0].transform.is_random:
            return shares[0].transform.render(subject, subject.split("."), None)
        return _Drawn(subject, shares)
