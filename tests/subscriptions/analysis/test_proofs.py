"""What is claimed about conditions never has a counterexample, and what is planted is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, leaves, messages, values
from turnout.conditions import Group, Logic, all_of, any_of, evaluate, kiwi, not_, parse
from turnout.conditions.evaluate import leaf_holds
from turnout.conditions.pattern import parse_pattern, pattern_matcher
from turnout.subscriptions.analysis import Verdict, form_of, subsumed
from turnout.subscriptions.analysis.atoms import atom_holds, literals_of, relation
from turnout.subscriptions.analysis.contradictions import clash
from turnout.subscriptions.analysis.globs import includes, meet, tokens_of

some_messages = st.lists(messages, min_size=5, max_size=15)


def verdict(one: str, other: str) -> Verdict:
    narrow, wide = parse(one), parse(other)
    return subsumed(narrow, form_of(narrow), wide, form_of(wide))


@given(leaves, st.lists(values, max_size=10))
def test_literals_are_the_leaf(leaf, some) -> None:
    """A leaf is true of a value where all its literals are, and never where it has none."""
    literals = literals_of(leaf)
    for value in some:
        truth = literals is not None and all(atom_holds(atom, value) == holds for atom, holds in literals)
        assert truth == leaf_holds(leaf, value)


@given(leaves, leaves, st.lists(values, max_size=20))
def test_relations_have_no_counterexample(one, other, some) -> None:
    """Where one atom is said to decide another, it does so for every value."""
    for known, _ in literals_of(one) or ():
        for asked, _ in literals_of(replace(other, key=one.key)) or ():
            truth = relation(known, asked)
            if truth is not None:
                assert all(atom_holds(asked, value) is truth for value in some if atom_holds(known, value))


_globs = st.lists(st.sampled_from(["a", "b", "*", "?"]), max_size=6).map("".join)


@given(_globs, _globs, st.lists(st.text(alphabet="ab", max_size=6), max_size=30))
def test_patterns_beside_patterns(one, other, texts) -> None:
    """An included pattern matches nothing that the other does not, and patterns that do not meet share no text."""
    first, second = tokens_of(parse_pattern(one)), tokens_of(parse_pattern(other))
    matches, others = pattern_matcher(one), pattern_matcher(other)
    for text in texts:
        assert not includes(second, first) or others(text) or not matches(text)
        assert meet(first, second) or not (matches(text) and others(text))


@given(conditions, conditions, some_messages)
def test_claims_have_no_counterexample(one, other, some) -> None:
    """Equal digests, "always", "never" and "subsumed" are true of every message that is drawn."""
    form, other_form = form_of(one), form_of(other)
    answer = subsumed(one, form, other, other_form)
    for message in some:
        mine, theirs = evaluate(one, message), evaluate(other, message)
        assert form.digest != other_form.digest or mine == theirs
        assert form.always in (None, mine)
        assert answer is not Verdict.YES or theirs or not mine


@given(conditions, conditions)
def test_planted_ones_are_found(one, other) -> None:
    """Both sides of a rule of logic have one digest, a part implies the whole, and a contradiction is never true."""
    both, either = all_of(one, other), any_of(one, other)
    form = form_of(both)
    if not (form.exact and form_of(either).exact):
        return

    assert form.digest == form_of(not_(any_of(not_(other), not_(one)))).digest
    assert form_of(all_of(one, not_(one))).always is False
    assert form_of(any_of(one, not_(one))).always is True
    assert subsumed(both, form, one, form_of(one)) is Verdict.YES
    assert subsumed(one, form_of(one), either, form_of(either)) is Verdict.YES


@pytest.mark.parametrize(
    "text",
    [
        "a:x AND a:y",
        "n<5 AND n>9",
        "n=5 AND n=6",
        "n<5 AND NOT n:*",
        "a EXISTS AND NOT a EXISTS",
        "a:abc* AND a:abd*",
        "a:*.log AND a:*.txt",
        "a:x* AND NOT a:*",
        "a:7 AND a>8",
        "ip IN 10.0.0.0/8 AND ip IN 11.0.0.0/8",
        "ip IN 10.1.0.0/16 AND NOT ip IN 10.0.0.0/8",
        "(a:x OR a:y) AND a:z",
        "a:x* AND (a:y OR (b:1 AND b:2))",
    ],
)
def test_contradictions(text) -> None:
    """What can never be true is known to be so."""
    assert form_of(parse(text)).always is False


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a:x AND b:y", "b:y AND a:x"),
        ("a:x", "a:x AND a EXISTS"),
        ("a:x", "a:x AND NOT a:y"),
        ("a:x", "a:x AND a:x*"),
        ("n>=5 AND n<=9", "NOT n<5 AND n<=9"),
        ("n>5", "n>5.0 AND n>4"),
        ("a:*", "a EXISTS"),
        (r"a:\x", "a:x"),
        ("NOT (a:x OR b:y)", "NOT a:x AND NOT b:y"),
        ("a:x OR (a:x AND b:y)", "a:x"),
        ("(a:x AND b:y) OR (a:x AND NOT b:y)", "a:x"),
    ],
)
def test_equivalents(one, other) -> None:
    """What says the same in other words has the same digest."""
    assert form_of(parse(one)).digest == form_of(parse(other)).digest


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a:x AND b:y", "a:x", "yes"),
        ("a:x", "a:x AND b:y", "no"),
        ("a:orders.eu.*", "a:orders.*", "yes"),
        ("a:orders.*", "a:orders.eu.*", "no"),
        ("n>9", "n>5", "yes"),
        ("n>5 AND n<7", "n>5 AND n<8", "yes"),
        ("ip IN 10.1.0.0/16", "ip IN 10.0.0.0/8", "yes"),
        ("a:x", "a:x OR b:y", "yes"),
        ("a:x OR a:y", "a:x OR a:y OR a:z", "yes"),
        ("a:x", "NOT a:y", "yes"),
        ("a:abc*", "a:i:ABC*", "yes"),
    ],
)
def test_subsumption(one, other, expected) -> None:
    """A condition whose messages are all another's is truth from one that has a message of its own."""
    assert verdict(one, other) == expected


def test_too_large() -> None:
    """Of a condition beyond the bound nothing is claimed but that its own words mean the same."""
    many = [kiwi(f"k{n}", "v") for n in range(400)]
    one, other = Group(Logic.OR, tuple(many)), Group(Logic.OR, tuple(reversed(many)))

    assert not form_of(one).exact
    assert form_of(one).digest == form_of(other).digest
    assert form_of(one).always is None
    assert subsumed(many[0], form_of(many[0]), one, form_of(one)) is Verdict.UNKNOWN


def test_the_clash_is_named() -> None:
    """Two leaves that exclude each other are named, and nothing beside them."""
    assert clash(parse("b:1 AND n<5 AND c:2 AND n>9")) == "n<5 and n>9"
    assert clash(parse("a:x AND NOT (b:1 OR NOT b:1)")) == "a:x AND NOT (b:1 OR NOT b:1)"
