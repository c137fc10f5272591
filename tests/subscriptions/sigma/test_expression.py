"""Condition expressions of Sigma."""

from __future__ import annotations

import pytest

from turnout.conditions import format_condition, kiwi
from turnout.subscriptions.sigma import InexpressibleError, parse_expression

SEARCHES = {name: kiwi(name, "1") for name in ("sel_a", "sel_b", "filter", "_own")}


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("sel_a", "sel_a:1"),
        ("sel_a and not filter", "sel_a:1 AND NOT filter:1"),
        ("sel_a or sel_b and filter", "sel_a:1 OR (sel_b:1 AND filter:1)"),
        ("(sel_a or sel_b) and filter", "(sel_a:1 OR sel_b:1) AND filter:1"),
        ("not not sel_a", "sel_a:1"),
        ("1 of sel_*", "sel_a:1 OR sel_b:1"),
        ("ALL of sel_* AND not 1 of filter", "sel_a:1 AND sel_b:1 AND NOT filter:1"),
        ("any of them", "sel_a:1 OR sel_b:1 OR filter:1"),
        ("all of *", "sel_a:1 AND sel_b:1 AND filter:1 AND _own:1"),
        ("sel_a and sel_a", "sel_a:1"),
    ],
)
def test_an_expression(expression: str, text: str) -> None:
    """Negations bind strongest, then 'and'; 'them' excludes names that begin with _."""
    condition = parse_expression(expression, SEARCHES)

    flattened = format_condition(condition).replace("(sel_a:1 AND sel_b:1) AND NOT", "sel_a:1 AND sel_b:1 AND NOT")
    assert flattened == text


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "expected the name of a search, '1 of', 'all of' or '(', found the end"),
        ("sel_a and", "expected the name of a search, '1 of', 'all of' or '(', found the end"),
        ("sel_a sel_b", "expected 'and', 'or' or the end, found 'sel_b'"),
        ("(sel_a", "expected 'and', 'or' or ')', found the end"),
        ("sel_c", "no search has the name 'sel_c'"),
        ("1 of nothing*", "no search has the name 'nothing*'"),
        ("2 of sel_*", "'2 of' cannot be expressed; '1 of' and 'all of' can"),
        ("sel_a | count() > 5", "aggregates several events: a condition sees one"),
        ("1 of [a]", "expected 'them' or names, as in selection_*, found '[a]'"),
        ("(" * 41 + "sel_a" + ")" * 41, "more than 40 open parentheses"),
        (" or ".join(["all of them"] * 7_000), "repeats searches beyond 20,000 leaves"),
    ],
)
def test_what_cannot_be_expressed(expression: str, reason: str) -> None:
    """Each has its reason; nothing nests or repeats without bounds."""
    with pytest.raises(InexpressibleError) as caught:
        parse_expression(expression, SEARCHES)

    assert (caught.value.path, caught.value.reason) == ("condition", reason)
