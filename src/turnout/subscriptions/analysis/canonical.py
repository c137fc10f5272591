"""Canonical form of a condition and its digest: equal digests mean equivalent conditions, however written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from turnout.conditions import Condition, Group, Logic
from turnout.conditions.leaf import Literal
from turnout.subscriptions.analysis.diagram import FALSE, MOST_ATOMS, TRUE, Diagrams, TooLargeError

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
