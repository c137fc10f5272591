"""Blocks of values, and parts of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.records.batch import group
from turnout.records.block import Block, taking
from turnout.records.types import Value


@pytest.mark.parametrize("kind", [list, tuple, lambda items: range(len(items))])
@given(missing=st.sets(st.integers(0, 199), max_size=200), count=st.integers(0, 200))
def test_items_are_taken_whether_few_or_many_are_missing(
    kind: Callable[[Sequence[int]], Sequence[int]], missing: set[int], count: int
) -> None:
    """A few are deleted from a copy, otherwise the others are taken: the same items in the same order."""
    column = kind(range(count))
    places = [place for place in range(count) if place not in missing]

    assert list(taking(np.array(places, np.intp), count)(column)) == [column[place] for place in places]


@pytest.mark.parametrize("value", [{"a": 1}, "text", None])
def test_some_values_of_an_unchecked_block_are_unchecked(value: Value) -> None:
    """This includes blocks of objects that were not converted to columns yet."""
    (block,) = group(np.arange(3), None, [value] * 3, checked=False)

    assert not block.take(np.array([0, 2])).checked


def test_objects_are_opened_at_the_first_access_to_a_column() -> None:
    opened: list[int] = []

    def open_(members: Sequence[Mapping[str, int]]) -> dict[str, list[int]]:
        opened.append(len(members))
        return {"n": [member["n"] for member in members]}

    block = Block.closed(np.arange(4), None, [{"n": n} for n in range(4)], open_)
    some = block.take(np.array([1, 3]))

    assert block.kind == some.kind == "object"
    assert opened == []
    assert some.columns == {"n": [1, 3]}
    assert some.columns is some.columns
    assert opened == [2]


@pytest.mark.parametrize(("values", "name"), [([None], "columns"), (["text"], "columns"), ([{}], "values")])
def test_content_of_another_kind_is_refused(values: list[Value], name: str) -> None:
    (block,) = group(np.arange(1), None, values)

    with pytest.raises(TypeError, match=f"a block of {block.kind} values"):
        getattr(block, name)
