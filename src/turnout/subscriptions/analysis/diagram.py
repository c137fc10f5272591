"""Conditions as decision diagrams: one atom after the other, in one order, until the truth is known.

A diagram's ways to "true" are the condition's disjoint terms, and the diagram is the same for every condition that says
the same in other words (R. E. Bryant, Graph-Based Algorithms for Boolean Function Manipulation, 1986). Atoms of one key
are not independent, as ``a:x`` and ``a:y``: `Diagrams.reduced` takes out what their relations decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from turnout.conditions import Condition, Group, Leaf, Logic
from turnout.conditions.leaf import Atom, Literal
from turnout.subscriptions.analysis.atoms import relation

FALSE: Final = 0
TRUE: Final = 1

MOST_ATOMS = 300
"""A condition with more different atoms is not made a diagram of."""

_MOST_STEPS = 60_000
"""Maximum number of steps for one condition, or for one pair of them."""

Root: TypeAlias = int
"""The place of a node, `FALSE` or `TRUE`."""

_Context: TypeAlias = tuple[Literal, ...]


class TooLargeError(Exception):
    """Raised when a condition exceeds `MOST_ATOMS` atoms or `_MOST_STEPS` steps; it is then not analysed."""


class DecisionNode(NamedTuple):
    """Atom with the branches for true and for false."""

    atom: Atom
    high: Root
    low: Root


class Diagrams:
    """The nodes of some diagrams, each different one once, so that equal diagrams have equal roots.

    Raises:
        TooLargeError: from every method, where it would take too long.
    """

    def __init__(self) -> None:
        self._nodes: list[DecisionNode] = []
        self._roots: dict[DecisionNode, Root] = {}
        self._chosen: dict[tuple[Root, Root, Root], Root] = {}
        self._reduced: dict[tuple[Root, _Context], Root] = {}
        self._atoms: set[Atom] = set()
        self._last_decided: dict[Literal, tuple[int, Atom | None]] = {}
        self._steps = 0

    def node(self, root: Root) -> DecisionNode:
        """Return the node at a root that is neither `TRUE` nor `FALSE`."""
        return self._nodes[root - 2]

    def of(self, condition: Condition) -> Root:
        """Return the diagram of a condition, as if its atoms were independent."""
        if not isinstance(condition, Group):
            return self._of_leaf(condition)
        children = map(self.of, condition.children)
        match condition.logic:
            case Logic.AND:
                root = TRUE
                for child in children:
                    root = self.choose(child, root, FALSE)
            case Logic.OR:
                root = FALSE
                for child in children:
                    root = self.choose(child, TRUE, root)
            case Logic.XOR:
                root, none_true = FALSE, TRUE
                for child in children:
                    root, none_true = self.choose(child, none_true, root), self.choose(child, FALSE, none_true)
        return self.inverse(root) if condition.negated else root

    def _of_leaf(self, leaf: Leaf) -> Root:
        literals = leaf.literals()
        root = FALSE if literals is None else self.conjunction(literals)
        return self.inverse(root) if leaf.negated else root

    def conjunction(self, literals: Sequence[Literal]) -> Root:
        """Return the diagram of literals that are sorted, and all different."""
        root = TRUE
        for atom, holds in reversed(literals):
            root = self._node_of(atom, root, FALSE) if holds else self._node_of(atom, FALSE, root)
        return root

    def _node_of(self, atom: Atom, high: Root, low: Root) -> Root:
        if high == low:
            return high
        node = DecisionNode(atom, high, low)
        root = self._roots.get(node)
        if root is None:
            self._atoms.add(atom)
            if len(self._atoms) > MOST_ATOMS:
                raise TooLargeError
            self._nodes.append(node)
            root = self._roots[node] = len(self._nodes) + 1
        return root

    def inverse(self, root: Root) -> Root:
        """Return the diagram that is true where this one is false."""
        return self.choose(root, FALSE, TRUE)

    def choose(self, question: Root, high: Root, low: Root) -> Root:
        """Return the diagram *high* where *question* is true, and *low* where it is false."""
        if question < 2:
            return high if question else low
        if high == low:
            return high
        if (high, low) == (TRUE, FALSE):
            return question
        roots = (question, high, low)
        root = self._chosen.get(roots)
        if root is None:
            self._step()
            atom = min(self.node(root).atom for root in roots if root > 1)
            of_high = self.choose(*(self._follow(root, atom, True) for root in roots))
            of_low = self.choose(*(self._follow(root, atom, False) for root in roots))
            root = self._chosen[roots] = self._node_of(atom, of_high, of_low)
        return root

    def _follow(self, root: Root, atom: Atom, holds: bool) -> Root:
        if root < 2 or self.node(root).atom != atom:
            return root
        return self.node(root).high if holds else self.node(root).low

    def reduced(self, root: Root, context: _Context = ()) -> Root:
        """Return an equivalent diagram without tests that other atoms of the same key decide.

        Args:
            root: a diagram.
            context: literals of the key of the first node that are true already.
        """
        if root < 2:
            return root
        atom, high, low = self.node(root)
        if context and context[0][0].key != atom.key:
            # Keys are in sequence: no node below tests earlier keys.
            context = ()
        if context:
            # Without literals that decide nothing below, the same case comes again: most patterns are independent.
            context = tuple(one for one in context if (last := self._last(one)) is not None and last >= atom)
        case = (root, context)
        simpler = self._reduced.get(case)
        if simpler is None:
            self._step()
            truth = _decided(context, atom)
            if truth is None:
                simpler = self._split(atom, high, low, context)
            else:
                simpler = self.reduced(high if truth else low, context)
            self._reduced[case] = simpler
        return simpler

    def _last(self, literal: Literal) -> Atom | None:
        """Return the last atom in sequence that a literal decides; None if it decides none behind its own."""
        known = self._last_decided.get(literal)
        if known is None or known[0] != len(self._atoms):
            own = literal[0]
            behind = (atom for atom in self._atoms if atom.key == own.key and atom > own)
            last = max((atom for atom in behind if _decided((literal,), atom) is not None), default=None)
            known = self._last_decided[literal] = len(self._atoms), last
        return known[1]

    def _split(self, atom: Atom, high: Root, low: Root, context: _Context) -> Root:
        if_true, if_false = (
            context if self._last(literal) is None else (*context, literal) for literal in ((atom, True), (atom, False))
        )
        high, low = self.reduced(high, if_true), self.reduced(low, if_false)
        if high == low or self.reduced(low, if_true) == high:
            return low
        if self.reduced(high, if_false) == low:
            return high
        return self._node_of(atom, high, low)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TooLargeError

    def ways(self, root: Root, before: tuple[Literal, ...] = ()) -> Iterator[tuple[Literal, ...]]:
        """Yield the literals of each way to "true": the disjoint terms."""
        if root == TRUE:
            yield before
        elif root != FALSE:
            atom, high, low = self.node(root)
            yield from self.ways(high, (*before, (atom, True)))
            yield from self.ways(low, (*before, (atom, False)))

    def literals(self, root: Root) -> tuple[Literal, ...] | None:
        """Return the literals of a plain conjunction; None where the diagram is more than that."""
        literals: list[Literal] = []
        while root > 1:
            atom, high, low = self.node(root)
            if FALSE not in (high, low):
                return None
            literals.append((atom, high != FALSE))
            root = high or low
        return tuple(literals) if root == TRUE else None

    def rows(self, root: Root) -> list[DecisionNode]:
        """Return the nodes of one diagram, renumbered: children before their parents, the root last."""
        numbers: dict[Root, int] = {FALSE: FALSE, TRUE: TRUE}
        rows: list[DecisionNode] = []
        self._number(root, numbers, rows)
        return rows

    def _number(self, root: Root, numbers: dict[Root, int], rows: list[DecisionNode]) -> int:
        if root not in numbers:
            atom, high, low = self.node(root)
            rows.append(DecisionNode(atom, self._number(high, numbers, rows), self._number(low, numbers, rows)))
            numbers[root] = len(rows) + 1
        return numbers[root]


def _decided(context: _Context, atom: Atom) -> bool | None:
    """Return the truth value that the known facts of its key imply for an atom, if any."""
    for other, holds in context:
        if holds:
            truth = relation(other, atom)
            if truth is not None:
                return truth
        elif relation(atom, other) is True:
            return False
    return None
