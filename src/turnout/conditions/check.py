"""Checks: leaves as plain data, which are tested on values one by one. Indexes and transforms use them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from turnout.base.multivalued import Metadata, seen_texts, values_at
from turnout.conditions.anchor import PRESENCE, Lookups
from turnout.conditions.leaf import Check, Leaf, ValueTest
from turnout.conditions.leaves import LEAVES
from turnout.conditions.leaves.compare_fields import is_met
from turnout.conditions.pattern import Piece

TESTS: Final[dict[str, ValueTest]] = {test.op: test for spec in LEAVES for test in spec.tests}
"""Operations of checks by name."""

_PASSES: Final = {op: test.passes for op, test in TESTS.items()}


def check_of(leaf: Leaf) -> Check:
    """Return the leaf as data."""
    return leaf.check()


def holds(check: Check, metadata: Metadata) -> bool:
    """Return True if the check, its negation included, is true of a message's metadata."""
    if check.other is not None:
        return holds_between(check, values_at(metadata, check.key), values_at(metadata, check.other)) != check.negated
    texts = seen_texts(metadata, check[0])
    if isinstance(texts, tuple):
        return any(passes(check, value) for value in texts) != check[7]
    return (texts is not None and passes(check, texts)) != check[7]


def passes(check: Check, value: str) -> bool:
    """Return True if the check, without its negation, is true of a present value of its only key."""
    return _PASSES[check[1]](check, value)


def holds_between(check: Check, values: Iterable[str], others: Collection[str]) -> bool:
    """Return True if the check of two keys, without its negation, is true of a value of each."""
    return any(is_met(check.last, value, other, ignore_case=check.fold) for value in values for other in others)


def lookups_of(check: Check, glob: tuple[Piece, ...] | None = None) -> Lookups:
    """Return the lookup texts of a check, by kind; any one suffices; empty if the check is negated.

    Runs of characters inside a beginning or an end that can be looked up are not among them: more messages have those.

    Args:
        check: the check.
        glob: the pieces of its pattern, where that has been read before and is not to be folded.
    """
    if check.negated:
        return []
    lookups = TESTS[check.op].lookups
    return [(PRESENCE, ("",))] if lookups is None else lookups(check, glob)
