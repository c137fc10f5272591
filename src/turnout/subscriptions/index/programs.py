"""Programs of a segment in the form in which single messages are verified: fewer checks, and trees that stop early."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from turnout.subscriptions.index.arrays import EQUAL, GROUP, JUST_ONE, LITERAL_SET, MANY, ONE_OF, TREE

LITERALS: Final = frozenset((EQUAL, MANY, ONE_OF, JUST_ONE))
"""Operations that are false of a fact without literals."""

NONE_OF: Final = LITERAL_SET << 1 | 1
"""Check that a fact has none of a set of literals."""

IS_TRUE: Final = -1
_IS_FALSE: Final = -2

_NEGATED_LITERALS: Final = (EQUAL << 1 | 1, MANY << 1 | 1)

Check: TypeAlias = tuple[int, int, Any]
"""Operation, times two, plus one if negated; its operand; and the literal, set, limits, test or tree."""

Jump: TypeAlias = tuple[int, int, int, int, int]
"""Operation of a leaf, its operand and argument, and the index of the next leaf if it is true, and if it is false.

A negative index decides the tree. Evaluation begins at the last leaf, and each leaf leads to one before it.
"""

Node: TypeAlias = tuple[int, int, int, bool, int, int]
"""Index in its tree, index of its parent, operation, negation, operand and argument."""


class Tree(NamedTuple):
    """A tree as jumps between leaves, and its nodes, the last one first, if it has to be counted (with XOR)."""

    jumps: list[Jump]
    nodes: list[Node]


def merged(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return checks in their order; negated literals of a fact become one check at the index of the first one."""
    own = list(checks)
    lacking: defaultdict[int, list[int]] = defaultdict(list)
    for kind, fact, literal in own:
        if kind in _NEGATED_LITERALS:
            lacking[fact].append(literal)
    merged: dict[Check, None] = {}
    for check in own:
        kind, fact, _ = check
        literals = lacking[fact] if kind in _NEGATED_LITERALS else ()
        merged[(NONE_OF, fact, frozenset(literals)) if len(literals) > 1 else check] = None
    return tuple(merged)


def tree_of(nodes: Sequence[tuple[int, int, int, int]]) -> Tree:
    """Return a tree of its nodes: operation, operand, argument, and distance to the parent before it."""
    children: list[list[int]] = [[] for _ in nodes]
    for node, (*_, before) in enumerate(nodes):
        if before:
            children[node - before].append(node)
    if any(op >> 1 == GROUP and not _is_plain(a, b, own) for (op, a, b, _), own in zip(nodes, children, strict=True)):
        counted = [(node, node - before, op >> 1, bool(op & 1), a, b) for node, (op, a, b, before) in enumerate(nodes)]
        return Tree([(TREE, 0, 0, IS_TRUE, _IS_FALSE)], counted[::-1])
    jumps: list[Jump] = []

    def add(node: int, if_true: int, if_false: int) -> int:
        """Add the jumps of a node from the end, where the next leaves exist already, and return its first index."""
        op, a, b, _ = nodes[node]
        if op & 1:
            if_true, if_false = if_false, if_true
        if op >> 1 != GROUP:
            jumps.append((op >> 1, a, b, if_true, if_false))
            return len(jumps) - 1
        begin = if_true if a == b else if_false
        for child in reversed(children[node]):
            begin = add(child, begin, if_false) if a == b else add(child, if_true, begin)
        return begin

    add(0, IS_TRUE, _IS_FALSE)
    return Tree(jumps, [])


def _is_plain(least: int, most: int, children: Sequence[int]) -> bool:
    """Return True for a group of which all children are to be true, or one at least."""
    return bool(children) and most == len(children) and least in (1, most)
