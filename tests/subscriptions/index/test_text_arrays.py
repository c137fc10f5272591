"""Texts as flat arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnout.subscriptions.index.arrays import Texts


@given(st.lists(st.text(max_size=5), min_size=1), st.data())
def test_texts_are_read_back_and_compared(texts: list[str], data: st.DataObject) -> None:
    """One by one, some at once, and against others."""
    raws = [text.encode("utf-8", "surrogatepass") for text in texts]
    numbers = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=10))
    others = data.draw(st.lists(st.sampled_from(raws), min_size=len(numbers), max_size=len(numbers)))
    packed = Texts.of(raws)

    assert [packed.text(number) for number in range(len(packed))] == texts
    equal = packed.equal(np.array(numbers, np.int64), others)
    assert equal.tolist() == [raws[number] == other for number, other in zip(numbers, others, strict=True)]
