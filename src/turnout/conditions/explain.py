"""Explanation of a condition's outcome for a message, down to the leaf."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from turnout.base.multivalued import Metadata, values_at
from turnout.conditions.evaluate import evaluate
from turnout.conditions.model import Condition, Group, Logic
from turnout.conditions.text import format_condition

_SHOWN_VALUES = 10
"""Values of one key that an explanation names."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome of one node of a condition.

    Attributes:
        condition: the node.
        holds: its truth, its own negation included.
        reason: the reason in words: the value under a leaf's key, or how many children of a group are true.
        children: the same for each child of a group.

    >>> from turnout.conditions import parse
    >>> part = explain(parse("NOT total>500"), {"total": "900"})
    >>> part.holds, part.reason, part.children
    (False, "'total' is '900'", ())
    """

    condition: Condition
    holds: bool
    reason: str
    children: tuple[Explanation, ...] = ()

    @property
    def decisive(self) -> Iterator[Explanation]:
        """The leaves that decided the outcome: if they were different, it might be too."""
        if not self.children:
            yield self
            return
        outcome = self.holds != self.condition.negated
        for child in self.children:
            if not isinstance(self.condition, Group) or _counts(self.condition, outcome, child.holds):
                yield from child.decisive

    def lines(self, indent: int = 0) -> Iterator[str]:
        """Yield the explanation as text, a line for each node, children indented."""
        mark = "+" if self.holds else "-"
        name = format_condition(self.condition) if not self.children else _name(self.condition)
        yield f"{'  ' * indent}{mark} {name}: {self.reason}"
        for child in self.children:
            yield from child.lines(indent + 1)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def explain(condition: Condition, metadata: Metadata) -> Explanation:
    """Return the truth of the condition for this metadata, and of each node in it.

    >>> from turnout.conditions import parse
    >>> explanation = explain(parse("city:Oulu AND total>500"), {"city": "Oulu", "total": "120"})
    >>> explanation.holds, explanation.reason
    (False, '1 of 2 hold')
    >>> [(part.holds, part.reason) for part in explanation.children]
    [(True, "'city' is 'Oulu'"), (False, "'total' is '120'")]
    """
    if not isinstance(condition, Group):
        observation = ", ".join(f"{key!r} {_describe_values(values_at(metadata, key))}" for key in condition.keys)
        return Explanation(condition, evaluate(condition, metadata), observation)
    children = tuple(explain(child, metadata) for child in condition.children)
    true = sum(child.holds for child in children)
    reason = f"{true} of {len(children)} hold" + (", negated" if condition.negated else "")
    return Explanation(condition, evaluate(condition, metadata), reason, children)


def _describe_values(values: tuple[str, ...]) -> str:
    """Describe the value under a key."""
    if len(values) < 2:
        return f"is {values[0]!r}" if values else "is missing"
    remaining = len(values) - _SHOWN_VALUES
    return f"has {', '.join(map(repr, values[:_SHOWN_VALUES]))}" + (f" and {remaining} more" if remaining > 0 else "")


def _name(condition: Condition) -> str:
    assert isinstance(condition, Group)
    return f"{'NOT ' if condition.negated else ''}{condition.logic.upper()}"


def _counts(group: Group, outcome: bool, child: bool) -> bool:
    """Return True if a child with this truth contributes to the group's own outcome, its negation left aside."""
    if group.logic is Logic.AND:
        return outcome or not child
    if group.logic is Logic.OR:
        return child or not outcome
    return True
