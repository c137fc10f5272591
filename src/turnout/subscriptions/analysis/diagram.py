"""Conditions as decision diagrams: one atom after the other, in one order, until the truth is known.

A diagram's ways to "true" are the condition's disjoint terms, and the diagram is the same for every condition that says
the same in other words (R. E. Bryant, Graph-Based Algorithms for Boolean Function Manipulation, 1986). Atoms of one key
are not independent, as ``a:x`` and ``a:y``: `Diagrams.reduced` takes out what their relations decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby, islice
from typing import Final, NamedTuple, TypeAlias

from turnout.base.multivalued import ANY_KEY
from turnout.conditions import Condition, Group, Leaf, Logic, evaluate
from turnout.conditions.anchor import parsed_number
from turnout.conditions.leaf import Atom, AtomKind, Literal
from turnout.conditions.leaves import LEAVES
from turnout.conditions.leaves.compare_fields import FIELDS, leaf_of
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


_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class CanonicalForm:
    """Canonical form of a condition.

    Attributes:
        digest: equal for two conditions only if both are true of the same messages.
        always: True if the condition is true of every message, False if it is true of none, None otherwise or where
            that could not be proven.
        literals: literals of a plain conjunction, sorted; None where the condition is more than that.
        exact: False for a condition too large to be looked into; its digest is that of its words in a fixed order.
    """

    digest: str
    always: bool | None = None
    literals: tuple[Literal, ...] | None = None
    exact: bool = True


def form_of(condition: Condition) -> CanonicalForm:
    """Return the canonical form of a condition.

    Not promised: that conditions with different digests differ. Patterns whose relation is not known, and conditions
    too large for a decision diagram, are distinguished by their text.

    >>> from turnout.conditions import parse
    >>> form_of(parse("a:x AND n<5")).digest == form_of(parse("NOT (n>=5 OR NOT a:x) AND NOT n:abc AND n<5.0")).digest
    True
    >>> form_of(parse("n<5 AND n>9")).always
    False
    """
    literals = _distinct_literals(condition)
    if literals is not None:
        return CanonicalForm(_digest("&", literals), None, literals)
    try:
        diagrams = Diagrams()
        root = diagrams.reduced(diagrams.of(condition))
        return _of_diagram(diagrams, root)
    except TooLargeError:
        return CanonicalForm(_digest("?", [_words(condition)]), exact=False)


def _of_diagram(diagrams: Diagrams, root: int) -> CanonicalForm:
    if root in (FALSE, TRUE):
        return CanonicalForm(_digest("=", [root == TRUE]), root == TRUE)
    literals = diagrams.literals(root)
    if literals is not None:
        return CanonicalForm(_digest("&", literals), None, literals)
    return CanonicalForm(_digest("/", diagrams.rows(root)))


def _distinct_literals(condition: Condition) -> tuple[Literal, ...] | None:
    """Return the literals of a conjunction of distinct keys, which needs no diagram; None for other conditions."""
    if isinstance(condition, Group):
        if condition.logic is not Logic.AND or condition.negated or len(condition.children) > MOST_ATOMS:
            return None
        children = condition.children
    else:
        children = (condition,)
    literals: list[Literal] = []
    keys: set[str] = set()
    for child in children:
        if isinstance(child, Group):
            return None
        own = child.literals()
        if own is None or child.key in keys or (child.negated and len(own) > 1):
            return None
        keys.add(child.key)
        literals += [(atom, holds != child.negated) for atom, holds in own]
    return tuple(sorted(literals))


def _digest(kind: str, parts: Iterable[object]) -> str:
    text = kind + "".join(map(repr, parts))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()


def _words(condition: Condition) -> str:
    """Return the condition in a fixed order of its children."""
    if not isinstance(condition, Group):
        return repr((condition.literals(), condition.negated))
    children = sorted(map(_words, condition.children))
    if condition.logic is not Logic.XOR:
        # Twice the same is once the same, but for "exactly one".
        children = sorted(set(children))
    return f"{condition.logic.value}{'!' if condition.negated else ''}({','.join(children)})"


_MOST_WAYS = 16
"""This many ways to "true" are tried."""

_MESSAGES = 4
"""This many messages show most of what a condition does not imply."""


def witness(diagrams: Diagrams, root: int) -> Mapping[str, str] | None:
    """Return metadata of a message for which the diagram is true; None if none is found, which proves nothing."""
    for path in islice(diagrams.ways(root), _MOST_WAYS):
        message = message_of(path)
        if message is not None:
            return message
    return None


def messages_of(condition: Condition, form: CanonicalForm) -> tuple[dict[str, str], ...]:
    """Some messages for which a condition is true: a condition that is false of one of them does not subsume it."""
    if form.literals is not None:
        messages = [message_of(form.literals)]
    else:
        try:
            diagrams = Diagrams()
            root = diagrams.reduced(diagrams.of(condition))
        except TooLargeError:
            return ()
        messages = [message_of(path) for path in islice(diagrams.ways(root), _MESSAGES)]
    return tuple(message for message in messages if message is not None and evaluate(condition, message))


def message_of(path: Sequence[Literal]) -> dict[str, str] | None:
    """Return a message for which all literals are true, sorted by key; None if none is found."""
    message: dict[str, str] = {}
    for key, group in groupby(path, key=lambda literal: literal[0].key):
        literals = list(group)
        if not any(holds for _, holds in literals):
            # Every atom is false where the key is absent.
            continue
        value = next((text for text in _values(literals) if _fits(literals, text)), None)
        if value is None:
            return None
        message[key] = value
    for leaf in (leaf_of(atom) for atom, holds in path if holds and atom.rank == FIELDS):
        if leaf.other not in message:
            about = [literal for literal in path if literal[0].key == leaf.other]
            values = (value for value in _near(message[leaf.key]) if leaf.is_met({**message, leaf.other: value}))
            other = next((value for value in values if _fits(about, value)), None)
            if other is None:
                return None
            message[leaf.other] = other
    return message if _agrees(path, message) else None


def _near(value: str) -> tuple[str, ...]:
    """Return values that compare with a value in each way."""
    number = parsed_number(value)
    return (value, "x") if number is None else (value, repr(number - 1), repr(number + 1))


def _agrees(path: Sequence[Literal], message: Mapping[str, str]) -> bool:
    """Return True if the literals about several values, or any, are true of the message."""
    for atom, holds in path:
        if atom.rank == FIELDS and leaf_of(atom).is_met(message) != holds:
            return False
        if atom.key == ANY_KEY and any(atom_holds(atom, value) for value in message.values()) != holds:
            return False
    return True


def _fits(literals: list[Literal], value: str) -> bool:
    return all(atom_holds(atom, value) == holds for atom, holds in literals if atom.rank != FIELDS)


def _values(literals: list[Literal]) -> Iterator[str]:
    """Values that the atoms make likely."""
    words = [next(iter(ATOM_KINDS[atom.rank].values(atom))) for atom, holds in literals if holds and atom.partial]
    if len(words) > 1:
        yield " ".join(words)
    for atom, _ in literals:
        yield from ATOM_KINDS[atom.rank].values(atom)
    yield from ("-", "x", "0", "")
