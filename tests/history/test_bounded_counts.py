"""Counts by names that are not known in advance."""

from __future__ import annotations

from turnout.history.bounded_counts import MOST, OTHERS, Tally


def test_no_more_names_than_that() -> None:
    """Further names are counted together, and no count is lost."""
    many = Tally.of(f"field {n}" for n in range(3 * MOST))

    both = many + Tally.of(["field 0", "new"]) + many

    assert len(both.counts) == MOST + 1
    assert sum(both.counts.values()) == 6 * MOST + 2
    assert both.largest[0][0] == OTHERS


def test_the_most_frequent_first() -> None:
    """Of equal counts the first by name."""
    assert Tally.of("bacab").largest == [("a", 2), ("b", 2), ("c", 1)]
