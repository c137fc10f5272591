"""Implications between atoms: tests of one key's value, to which conditions are reduced.

Leaves are brought into few kinds of atoms, see `turnout.conditions.leaf.Leaf.literals`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from turnout.base.multivalued import ANY_KEY
from turnout.conditions import LEAVES
from turnout.conditions.leaf import Atom, AtomKind
from turnout.conditions.leaves.exists import PRESENT
from turnout.conditions.leaves.kiwi import only_text

ATOM_KINDS: Final[dict[int, AtomKind]] = {kind.rank: kind for spec in LEAVES for kind in spec.atoms}
"""Kinds of atoms by rank."""


def atom_holds(atom: Atom, value: str) -> bool:
    """Return True if the atom is true of a present value."""
    return ATOM_KINDS[atom.rank].holds(atom, value)


@lru_cache(maxsize=1 << 17)
def relation(premise: Atom, conclusion: Atom) -> bool | None:
    """Return the truth of *conclusion* that follows if *premise* is true of the same key; None if nothing follows.

    Nothing is also the answer where the question is too hard.
    """
    if premise == conclusion or conclusion.rank == PRESENT:
        return True
    if premise.rank == PRESENT:
        return None
    truth = _of_one_value(premise, conclusion)
    # What one value is not, another one may be.
    return truth if truth or premise.key != ANY_KEY else None


def _of_one_value(premise: Atom, conclusion: Atom) -> bool | None:
    """Return the truth that follows for the same value."""
    kind, other = ATOM_KINDS[premise.rank], ATOM_KINDS[conclusion.rank]
    if kind.needs_more or other.needs_more:
        return kind.relation(premise, conclusion) if kind is other else None
    value = _only_value(premise)
    if value is not None:
        return other.holds(conclusion, value)
    value = _only_value(conclusion)
    if value is not None:
        return None if kind.holds(premise, value) else False
    if kind is other or (kind.family and kind.family == other.family):
        return kind.relation(premise, conclusion)
    return False if kind.family and other.family else None


_only_value = lru_cache(maxsize=1 << 16)(only_text)
