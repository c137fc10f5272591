"""FNV-1a of many lines at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.subjects import strategies

from turnout.subjects._fnv import fnv1a, fnv1a_many


@given(st.lists(strategies.keys.map(lambda key: key.replace(b"\n", b"")) | st.just(b"x" * 100), min_size=1))
def test_hashes_of_many_lines(lines: list[bytes]) -> None:
    """They are those of each line, also of long and empty ones."""
    assert fnv1a_many(b"\n".join(lines)).tolist() == [fnv1a(line) for line in lines]
