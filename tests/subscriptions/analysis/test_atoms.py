"""Leaves as literals over atoms, and how atoms relate."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import one_key_leaves, values
from turnout.subscriptions.analysis.diagram import atom_holds, relation


@given(one_key_leaves, st.lists(values, max_size=10))
def test_literals_are_the_leaf(leaf, some) -> None:
    """A leaf is true of a value where all its literals are, and never where it has none."""
    literals = leaf.literals()
    for value in some:
        truth = literals is not None and all(atom_holds(atom, value) == holds for atom, holds in literals)
        assert truth == leaf.holds(value)


@given(one_key_leaves, one_key_leaves, st.lists(values, max_size=20))
def test_relations_have_no_counterexample(one, other, some) -> None:
    """If one atom is said to decide another, it does so for every value."""
    for known, _ in one.literals() or ():
        for asked, _ in replace(other, key=one.key).literals() or ():
            truth = relation(known, asked)
            if truth is not None:
                assert all(atom_holds(asked, value) is truth for value in some if atom_holds(known, value))
