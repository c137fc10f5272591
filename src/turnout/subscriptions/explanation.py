"""Why a condition is true of a message, or is not, down to each leaf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnout.conditions import Cidr, Compare, Condition, Exists, Group, Kiwi, Leaf, Logic, evaluate
from turnout.conditions.evaluate import leaf_holds

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of one node.

    Attributes:
        condition_id: the node's id.
        text: what the node asks for, in words.
        holds: whether it is true, its negation included.
        reason: what decided that.
        children: the same for a group's children.
    """

    condition_id: str
    text: str
    holds: bool
    reason: str
    children: tuple[Explanation, ...] = ()

    def lines(self, depth: int = 0) -> list[str]:
        """The explanation as indented text, a line for each node."""
        mark = "yes" if self.holds else "no "
        own = f"{'  ' * depth}{mark} {self.text}: {self.reason}"
        return [own, *(line for child in self.children for line in child.lines(depth + 1))]


def explain(condition: Condition, metadata: Mapping[str, str]) -> Explanation:
    """What each node of the condition makes of the message. Its root agrees with `evaluate`, always."""
    holds = evaluate(condition, metadata)
    negation = "not " if condition.negated else ""
    if isinstance(condition, Group):
        children = tuple(explain(child, metadata) for child in condition.children)
        text, reason = f"{negation}{_COUPLINGS[condition.logic]}", _count(children)
        return Explanation(condition.id, text, holds, reason, children)
    return Explanation(condition.id, f"{negation}{_wanted(condition)}", holds, _found(condition, metadata))


_COUPLINGS = {Logic.AND: "all of", Logic.OR: "any of", Logic.XOR: "exactly one of"}


def _count(children: tuple[Explanation, ...]) -> str:
    return f"{sum(child.holds for child in children)} of {len(children)} are true"


def _wanted(leaf: Leaf) -> str:
    match leaf:
        case Kiwi():
            scope = "a word of " if leaf.partial else ""
            case = " in any case" if leaf.ignore_case else ""
            return f"{scope}{leaf.key!r} matches {leaf.pattern!r}{case}"
        case Compare():
            return f"{leaf.key!r} {leaf.op} {leaf.number:g}"
        case Exists():
            return f"{leaf.key!r} is there"
        case Cidr():
            return f"{leaf.key!r} is in {leaf.network}"


def _found(leaf: Leaf, metadata: Mapping[str, str]) -> str:
    value = metadata.get(leaf.key)
    if value is None:
        return "the message has no such key"
    return f"it is {value!r}, which {'does' if leaf_holds(leaf, value) else 'does not'}"
