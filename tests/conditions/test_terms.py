"""Disjoint terms say together what the condition says, one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.conditions.strategies import conditions, leaves, messages, one_key_leaves
from turnout.base.multivalued import values_at
from turnout.conditions import all_of, any_of, evaluate, kiwi, not_, one_of
from turnout.conditions.anchor import ALWAYS, Anchor, prober, weight
from turnout.conditions.leaf import Check, ValueTest
from turnout.conditions.leaves import LEAVES
from turnout.conditions.terms import MAX_CHECKS, TESTS, Term, check_of, holds, lookups_of, passes, terms_of
from turnout.subscriptions.index import segment


@given(leaves, messages)
def test_checks_are_leaves(leaf, message):
    """The data that the indexes verify with says what the interpreter says."""
    assert evaluate(leaf, message) == holds(check_of(leaf), message)


def test_stored_numbers() -> None:
    """Segments of an index contain them: a new operation gets a number of its own, and the others keep theirs."""
    numbers = {op: test.number for op, test in TESTS.items()}
    assert numbers == {
        "=": 0, "^": 1, "$": 2, "~": 3, "glob": 4, "has": 5, "cidr": 6, "n<": 7, "n<=": 8, "n=": 9, "n>=": 10, "n>": 11,
        "re": 12, "any": 13, "subject": 14, "field": 15,
    }  # fmt: skip
    assert len(set(numbers.values())) == sum(len(spec.tests) for spec in LEAVES)


@pytest.mark.parametrize("number", [*range(16), 16, 20, 37, 63])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("fold", [False, True])
def test_a_form_is_one_byte(monkeypatch, number: int, partial: bool, fold: bool) -> None:
    """It has the number of the operation up to 63, and whether the test is of words and folded."""
    monkeypatch.setitem(TESTS, "new", ValueTest("new", number, lambda _check, _value: True))
    monkeypatch.setitem(segment.OPS, number, "new")
    form = segment.form_of(Check("k", "new", partial=partial, fold=fold))
    assert 0 <= form < 256
    assert (segment.op_of(form), bool(form & 16), bool(form & segment.FOLDED_FORM)) == ("new", partial, fold)


def has(message, anchor):
    if anchor == ALWAYS:
        return True
    return any(anchor.text in prober(anchor.kind)(value) for value in values_at(message, anchor.key))


def is_true(term: Term, message) -> bool:
    checks = all(evaluate(check, message) for check in term.checks)
    return has(message, term.access) and checks and (term.rest is None or evaluate(term.rest, message))


@given(conditions, messages)
def test_terms_are_the_condition(condition, message):
    """Of a message that the condition is true of, exactly one term is true; of others none."""
    true = [term for term in terms_of(condition, weight) if is_true(term, message)]

    assert int(evaluate(condition, message)) == len(true)


@given(leaves, messages)
def test_anchors_are_needed(leaf, message):
    """If a leaf's test is true, the message has each of its anchors; an anchor that implies the leaf makes it true."""
    true = leaf.is_met(message)
    for anchor in leaf.anchors():
        assert has(message, anchor) or not true
        assert true or not (leaf.is_decided_by(anchor) and has(message, anchor))


@given(one_key_leaves, messages)
def test_lookups_are_needed(leaf, message):
    """If a check is true, the message is found by each of its texts; a check that is not negated has some."""
    check = check_of(leaf)
    value = message.get(leaf.key)
    lookups = [Anchor(leaf.key, kind, text) for kind, texts in lookups_of(check) for text in texts]

    assert bool(lookups) != check.negated
    if value is not None and passes(check, value):
        assert all(has(message, lookup) for lookup in lookups)


@pytest.mark.parametrize(
    ("pattern", "lookups"),
    [
        ("abcdef?*", ["k ^6 'abcdef'"]),
        ("?*abcdef", ["k $6 'abcdef'"]),
        ("abcdefg?*", ["k ^6 'abcdef'", "k ~ 'efg'"]),
        ("?*abcdefg", ["k $6 'bcdefg'", "k ~ 'abc'"]),
        ("ab*cdef*gh", ["k ^2 'ab'", "k $2 'gh'", "k ~ 'cde'", "k ~ 'def'"]),
        ("abc*abc", ["k ^3 'abc'", "k $3 'abc'"]),
    ],
)
def test_runs_inside_of_what_is_looked_up_tell_nothing_more(pattern, lookups):
    """Prefixes and suffixes have some lengths: only runs that reach beyond them are looked up in addition."""
    check = check_of(kiwi("k", pattern))

    assert [str(Anchor("k", kind, text)) for kind, texts in lookups_of(check) for text in texts] == lookups


def test_nothing_multiplies_out():
    """A conjunction of ten alternatives of two has two terms, where a normal form has a thousand."""
    condition = all_of(*(any_of(kiwi(f"a{n}", "1"), kiwi(f"b{n}", "1")) for n in range(10)))

    assert len(terms_of(condition, weight)) == 2


def test_alternatives_of_one_key():
    """Alternatives without wildcards exclude each other, so each term has nothing to verify."""
    terms = terms_of(any_of(*(kiwi("k", f"v{n}") for n in range(500))), weight)

    assert len(terms) == 500
    assert all(term.checks == () and term.rest is None for term in terms)


def test_the_bound():
    """Terms beyond the bound become one that is verified whole."""
    many = [kiwi(f"k{n}", "v") for n in range(MAX_CHECKS)]
    condition = any_of(*many)

    assert terms_of(condition, weight) == (Term(ALWAYS, (), condition),)
    below = terms_of(any_of(*many[:64]), weight)
    assert len(below) == 64
    assert sum(len(term.checks) for term in below) == 64 * 63 // 2


def test_only_negations():
    """A condition without a leaf for a look-up is verified on every message."""
    (term,) = terms_of(all_of(not_(kiwi("a", "1")), not_(kiwi("b", "1"))), weight)

    assert term.access == ALWAYS
    assert len(term.checks) == 2


def test_never_true():
    """A condition that contradicts itself has no terms, or none that is ever true."""
    assert terms_of(one_of(kiwi("k", "a"), kiwi("k", "a")), weight) == ()
