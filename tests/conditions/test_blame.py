"""Which leaves keep a condition from being true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from turnout.base.multivalued import text_at
from turnout.conditions import Condition, Group, Kiwi, Leaf, Logic, evaluate, format_condition, leaves, parse
from turnout.conditions.explain import MAX_REPEATED, Blame, blame, true_leaves


def blamed(text: str, **metadata: str) -> list[tuple[str, str | None]]:
    """The blamed leaves as text, each with the value that it saw."""
    answer = blame(parse(text), metadata)
    return [(format_condition(leaf.leaf), leaf.value) for leaf in answer.leaves or ()]


def plain(leaf: Leaf) -> Leaf:
    return replace(leaf, negated=False)


def distinct(condition: Condition) -> list[Leaf]:
    return list(dict.fromkeys(map(plain, leaves(condition))))


def turned(condition: Condition, tests: set[Leaf], metadata: dict[str, str]) -> bool:
    """The condition's truth with the outcomes of some tests turned around: the definition, without any shortcut."""
    if not isinstance(condition, Group):
        return evaluate(condition, metadata) != (plain(condition) in tests)
    true = sum(turned(child, tests, metadata) for child in condition.children)
    holds = {Logic.AND: true == len(condition.children), Logic.OR: true > 0, Logic.XOR: true == 1}[condition.logic]
    return holds != condition.negated


def smaller_sets(tests: list[Leaf], size: int) -> Iterator[tuple[Leaf, ...]]:
    return chain.from_iterable(combinations(tests, count) for count in range(size))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("city:Oulu AND n>5", [("n>5", "3")]),
        ("city:Turku AND n>5", [("city:Turku", "Oulu"), ("n>5", "3")]),
        ("(city:Turku AND n>5) OR kind:x", [("kind:x", None)]),
        ("city:Oulu AND NOT (n<5 OR kind exists)", [("n<5", "3")]),
        ("city:Oulu XOR n<5", [("n<5", "3")]),
        ("NOT city:Oulu", [("NOT city:Oulu", "Oulu")]),
        ("city:Oulu", []),
        # The second city:Turku follows the first one, so it is one change and not two.
        ("(city:Turku AND n<5) AND (city:Turku OR kind:x)", [("city:Turku", "Oulu")]),
    ],
)
def test_the_leaves_to_blame(text: str, expected: list[tuple[str, str | None]]) -> None:
    """The fewest, the first of them where there are several, each with what it saw."""
    assert blamed(text, city="Oulu", n="3") == expected


def test_what_can_never_be_true_has_nobody_to_blame() -> None:
    """No change of a leaf helps a condition that contradicts itself."""
    assert blame(parse("a:1 AND NOT a:1"), {"a": "1"}) == Blame(None)


def test_true_leaves_come_with_their_values() -> None:
    """Negated leaves too, where they are true."""
    leaves = true_leaves(parse("city:Oulu AND (n>5 OR NOT kind:x)"), {"city": "Oulu", "n": "3"})

    assert [(format_condition(one.leaf), one.value) for one in leaves] == [("city:Oulu", "Oulu"), ("NOT kind:x", None)]


@given(conditions, messages)
def test_turning_the_blamed_leaves_makes_it_true_and_no_smaller_set_does(
    condition: Condition, metadata: dict[str, str]
) -> None:
    """Held against every smaller set of tests."""
    tests = distinct(condition)
    assume(len(tests) <= 10)
    answer = blame(condition, metadata)

    if answer.leaves is None:
        assert not any(turned(condition, set(some), metadata) for some in smaller_sets(tests, len(tests) + 1))
        return
    assert turned(condition, {plain(leave.leaf) for leave in answer.leaves}, metadata)
    assert not any(turned(condition, set(some), metadata) for some in smaller_sets(tests, len(answer.leaves)))
    assert all(leave.value == text_at(metadata, leave.leaf.key) for leave in answer.leaves)


few_leaves = st.builds(Kiwi, st.sampled_from("abc"), st.sampled_from("xy"), negated=st.booleans())
repeating = st.recursive(
    few_leaves,
    lambda children: st.builds(
        Group, st.sampled_from(list(Logic)), st.lists(children, min_size=1, max_size=4), negated=st.booleans()
    ),
    max_leaves=14,
)


@given(repeating, st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")))
def test_leaves_that_are_repeated_count_once(condition: Condition, metadata: dict[str, str]) -> None:
    """Six tests in fourteen places: the answer is still the smallest."""
    tests = distinct(condition)
    answer = blame(condition, metadata)
    ways = [some for some in smaller_sets(tests, len(tests) + 1) if turned(condition, set(some), metadata)]

    assert (None if answer.leaves is None else len(answer.leaves)) == min(map(len, ways), default=None)


def test_beyond_the_bound_the_answer_is_right_though_not_known_to_be_the_smallest() -> None:
    """Twice a dozen tests: each is decided by cost, and the result says so."""
    keys = [f"k{number}" for number in range(MAX_REPEATED + 2)]
    condition = parse(" AND ".join(f"({key}:x AND ({key}:x OR other:y))" for key in keys))

    answer = blame(condition, {})

    assert not answer.exact
    assert answer.leaves is not None
    assert turned(condition, {plain(leave.leaf) for leave in answer.leaves}, {})
    assert len(answer.leaves) == len(keys)
