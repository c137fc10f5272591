"""Division of a range of sequences or offsets into splits of nearly the same length."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

_MIN_SPLIT_RECORDS: Final = 10_000
"""A task costs more than reading fewer records takes."""


def even_spans(start: int, end: int, max_spans: int) -> list[tuple[int, int]]:
    """Return the spans of a range as pairs of begin and end (exclusive); none for an empty range.

    The same arguments give the same spans, so a repeated micro-batch can be divided in the same way.

    Args:
        start: first number.
        end: number behind the last one.
        max_spans: spans at most; there are fewer where a span would have less than 10,000 numbers.

    >>> even_spans(10, 30_010, 2)
    [(10, 15010), (15010, 30010)]
    >>> even_spans(10, 19_000, 2)
    [(10, 19000)]
    """
    length = end - start
    if length <= 0:
        return []
    count = max(1, min(max_spans, length // _MIN_SPLIT_RECORDS))
    return list(pairwise(start + length * index // count for index in range(count + 1)))
