"""Pages and choices of dead letters, of one stream and of several partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.base.clocks import Microseconds
from turnout.engine.sample_records import SampleRecord
from turnout.history.dead_letters import DeadLetter
from turnout.server.dead_letters import chosen, page_of
from turnout.server.errors import ConflictError


def letter(partition: int, sequence: int) -> DeadLetter:
    return DeadLetter(f"dead:{partition}", sequence, "", Microseconds(0), SampleRecord("a"), True, None, None, None)


PLACES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), unique=True, max_size=20)


@given(PLACES, st.integers(1, 5))
def test_pages(places: list[tuple[int, int]], limit: int) -> None:
    """Each letter is on one page, those of higher sequences first, whatever partitions they are of."""
    letters = [letter(*place) for place in places]
    found: list[DeadLetter] = []
    cursor: int | None = None
    while True:
        page, cursor = page_of(letters, cursor, limit)
        found += page
        if cursor is None:
            break

    assert sorted((one.stream, one.sequence) for one in found) == sorted((f"dead:{p}", n) for p, n in places)
    assert [one.sequence for one in found] == sorted((one.sequence for one in found), reverse=True)


def test_choices() -> None:
    """A sequence that two partitions have needs a stream; others do not."""
    letters = [letter(0, 1), letter(1, 1), letter(1, 2)]

    assert chosen(letters, [2], None) == [letters[2]]
    assert chosen(letters, [1, 2], "dead:1") == letters[1:]
    assert chosen(letters, None, "dead:0") == letters[:1]
    assert chosen(letters, None, None) == letters
    with pytest.raises(ConflictError, match="dead:0, dead:1; name one as stream"):
        chosen(letters, [1], None)
