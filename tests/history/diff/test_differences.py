"""Conditions over totals, and what is refused in their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ConfigError
from turnout.history.diff.differences import MOST, OTHERS, TOTALS, Differences, Tally, Threshold
from turnout.history.diff.report import DiffReport, report_lines

NUMBERS = {"lost": 3, "moved": 0, "values": 10}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("lost > 0", True),
        ("lost > 3", False),
        ("lost >= 3 and moved == 0", True),
        ("moved > 0 or values != 10", False),
        ("moved or lost", True),
        ("not (lost > 0 or moved > 0)", False),
        ("1 < lost <= 3 < values", True),
        ("  lost\t> 2.5 ", True),
        ("0 < moved", False),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    """Names, numbers, comparisons in a row, and, or, not and parentheses."""
    assert Threshold.parse(text, NUMBERS).holds(NUMBERS) is holds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lots > 0", "there is no total 'lots'; did you mean \"lost\"?"),
        ("lost >", "cannot be read"),
        ("", "cannot be read"),
        ("lost = 0", "cannot be read"),
        ("__import__('os').system('true')", "expected names, numbers, comparisons"),
        ("lost + 1 > 0", "'lost + 1': expected names"),
        ("lost in (1, 2)", "expected names"),
        ("lost.real > 0", "expected names"),
        ("lost > 'a'", "expected names"),
        ("lost is True", "expected names"),
        ("-lost < 0", "expected names"),
        ("lost > 0\x00", "cannot be read"),
        ("(" * 400 + "lost" + ")" * 400, "cannot be read"),
        ("not " * 3000 + "lost", "expected at most 1,000"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    """Nothing else of Python is let in; the text and what was expected are named."""
    with pytest.raises(ConfigError) as refused:
        Threshold.parse(text, NUMBERS)

    assert problem in str(refused.value)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """There is no third way."""
    try:
        threshold = Threshold.parse(text, TOTALS)
    except ConfigError:
        return
    assert threshold.holds(dict.fromkeys(TOTALS, 1)) in (True, False)


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


def test_deliveries_add_up_in_the_report() -> None:
    """Those of records under their own topics are named beside those of subscriptions."""
    differences = Differences(
        records=9,
        changed=9,
        lost=7,
        gained=2,
        moved=1,
        losers=Tally({"acme": 3, "nordic": 2}),
        movers=Tally({"acme": 1}),
    )

    lines = list(report_lines(DiffReport("old", "new", "all", differences, 1.0)))

    assert "deliveries lost: 7 (acme 3, nordic 2, under their own topic 2)" in lines
    assert "deliveries gained: 2 (under their own topic 2)" in lines
    assert "deliveries moved: 1 (acme 1)" in lines
