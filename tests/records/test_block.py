"""Parts of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.records.block import taking


@pytest.mark.parametrize("kind", [list, tuple, lambda items: range(len(items))])
@given(missing=st.sets(st.integers(0, 199), max_size=200), count=st.integers(0, 200))
def test_items_are_taken_whether_few_or_many_are_missing(
    kind: Callable[[Sequence[int]], Sequence[int]], missing: set[int], count: int
) -> None:
    """A few are deleted from a copy, otherwise the others are taken: the same items in the same order."""
    column = kind(range(count))
    places = [place for place in range(count) if place not in missing]

    assert list(taking(np.array(places, np.intp), count)(column)) == [column[place] for place in places]
