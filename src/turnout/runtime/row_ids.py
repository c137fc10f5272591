"""Message ids of the rows of a Spark job: rows of one record have one id, and a stream stores one message of each."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.records.types import Binaries

_SLOTS: Final = 1 << 23
"""Slots of the table of hashes, of a byte each."""

_SAMPLED: Final = 512
_ALL: Final = 2**32 - 1


class TaskIds:
    """Ids of a task's rows.

    Args:
        distinct: whether a row with the id of an earlier one gets an id of its own. Its number in the task is added,
            which is the same when the task is repeated.
    """

    def __init__(self, *, distinct: bool) -> None:
        self._distinct = distinct
        self._rows = 0
        self._earlier = _Hashes()
        self._repeats = False
        self._sampled: list[tuple[int, bytes]] = []
        self._limit = _ALL

    def add(self, ids: Binaries) -> Binaries:
        """Return the ids for the next rows; null and empty ones are none."""
        listed = ids.to_pylist()
        rows, present = None, listed
        if ids.null_count or b"" in listed:
            rows = [row for row, id_ in enumerate(listed) if id_]
            present = [listed[row] for row in rows]
        repeated = self._earlier.add(np.fromiter(map(hash, present), np.int64, len(present))).tolist()
        if repeated:
            self._repeats = True
            for index in repeated if self._distinct else ():
                row = index if rows is None else rows[index]
                listed[row] = present[index] = b"%b:%d" % (present[index], self._rows + row)
        self._rows += len(listed)
        codes = np.fromiter(map(crc32, present), np.int64, len(present))
        low = np.flatnonzero(codes <= self._limit).tolist()
        self._sampled += [(int(codes[index]), present[index]) for index in low]
        if len(self._sampled) > 2 * _SAMPLED:
            self._cut()
        return pa.array(listed, pa.binary()) if repeated and self._distinct else ids

    def _cut(self) -> None:
        """Keep the ids of the lowest codes."""
        self._sampled = sorted(set(self._sampled))
        if len(self._sampled) > _SAMPLED:
            self._limit = self._sampled[_SAMPLED - 1][0]
            self._sampled = [one for one in self._sampled if one[0] <= self._limit]

    def sample(self) -> IdSample:
        """Return what a comparison with other tasks needs."""
        self._cut()
        digests = {hashlib.blake2b(id_, digest_size=8).digest(): code for code, id_ in self._sampled}
        return IdSample(digests, self._limit, repeats=self._repeats and not self._distinct)


class _Hashes:
    """Hashes of ids: a table that says which may be known, and sorted runs that are searched for those."""

    def __init__(self) -> None:
        self._table = np.zeros(_SLOTS, np.bool_)
        self._runs: list[NDArray[np.int64]] = []

    def add(self, hashes: NDArray[np.int64]) -> NDArray[np.intp]:
        """Add hashes, and return the indices of known ones, and of those that occur before in the array."""
        order = np.argsort(hashes, kind="stable")
        ascending = hashes[order]
        again = np.concatenate([[False], ascending[1:] == ascending[:-1]]) if len(order) else np.empty(0, np.bool_)
        slots = ascending & (_SLOTS - 1)
        maybe = np.flatnonzero(self._table[slots] & ~again)
        for run in self._runs if len(maybe) else ():
            found = np.minimum(np.searchsorted(run, ascending[maybe]), len(run) - 1)
            again[maybe] |= run[found] == ascending[maybe]
        self._table[slots] = True
        self._keep(ascending[~again])
        return np.sort(order[again])

    def _keep(self, run: NDArray[np.int64]) -> None:
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        if len(run):
            self._runs.append(run)


@dataclass(frozen=True, slots=True)
class IdSample:
    """Sample of a task's ids, those with the lowest codes: equal ids of two tasks are in both samples, or in none.

    Attributes:
        digests: digest → code of an id.
        limit: highest code of which all ids are here.
        repeats: whether rows of the task have one id.
    """

    digests: dict[bytes, int]
    limit: int
    repeats: bool

    @staticmethod
    def have_equal(samples: Iterable[IdSample]) -> bool:
        """Return True if rows of a job have one id, as far as samples can tell: certainly if many have."""
        samples = list(samples)
        if any(sample.repeats for sample in samples):
            return True
        limit = min((sample.limit for sample in samples), default=_ALL)
        counts = Counter(digest for sample in samples for digest, code in sample.digests.items() if code <= limit)
        return any(count > 1 for count in counts.values())
