"""Conditions that no message, or every message, makes true."""

from __future__ import annotations

from itertools import combinations

from turnout.conditions import Condition, Group, Leaf, Logic, format_condition
from turnout.subscriptions.analysis.canonical import form_of

_MOST_LEAVES = 64


def clash(condition: Condition) -> str:
    """Return the contradiction in a condition that is never true: two leaves of a conjunction that exclude each other.

    The whole condition where it is not as simple as that.

    >>> from turnout.conditions import parse
    >>> clash(parse("a:x AND n<5 AND b:* AND n>9"))
    'n<5 and n>9'
    """
    required = _required(condition)
    for leaf in required:
        if form_of(leaf).always is False:
            return format_condition(leaf)
    if len(required) <= _MOST_LEAVES:
        for one, other in combinations(required, 2):
            if one.key == other.key and form_of(Group(Logic.AND, (one, other))).always is False:
                return f"{format_condition(one)} and {format_condition(other)}"
    return format_condition(condition)


def _required(condition: Condition) -> list[Leaf]:
    """Return the leaves that all have to be true, as far as they are on the surface."""
    if not isinstance(condition, Group):
        return [condition]
    if condition.logic is not Logic.AND or condition.negated:
        return []
    return [leaf for child in condition.children for leaf in _required(child)]
