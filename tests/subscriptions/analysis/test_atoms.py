"""Leaves as literals over atoms, and how atoms relate."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import leaves, values
from turnout.conditions.evaluate import leaf_holds
from turnout.subscriptions.analysis.atoms import atom_holds, literals_of, relation


@given(leaves, st.lists(values, max_size=10))
def test_literals_are_the_leaf(leaf, some) -> None:
    """A leaf is true of a value where all its literals are, and never where it has none."""
    literals = literals_of(leaf)
    for value in some:
        truth = literals is not None and all(atom_holds(atom, value) == holds for atom, holds in literals)
        assert truth == leaf_holds(leaf, value)


@given(leaves, leaves, st.lists(values, max_size=20))
def test_relations_have_no_counterexample(one, other, some) -> None:
    """If one atom is said to decide another, it does so for every value."""
    for known, _ in literals_of(one) or ():
        for asked, _ in literals_of(replace(other, key=one.key)) or ():
            truth = relation(known, asked)
            if truth is not None:
                assert all(atom_holds(asked, value) is truth for value in some if atom_holds(known, value))
