"""Topic requirements of a condition: a small tree of patterns that many conditions share."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from turnout.conditions import Condition, Group, Logic

TopicRequirement: TypeAlias = str | tuple[str, tuple["TopicRequirement", ...]]
"""A pattern that the whole topic has to match; ("all", …) or ("any", …) of such questions."""


def asked_of(condition: Condition, keys: Collection[str]) -> TopicRequirement | None:
    """Return the requirement on topics that each topic meets for which the condition can be true; None if any can.

    Args:
        condition: condition of a subscription.
        keys: under which a condition sees the topic.
    """
    if not isinstance(condition, Group):
        return condition.value_pattern() if condition.key in keys else None
    if condition.negated:
        return None
    parts = [asked_of(child, keys) for child in condition.children]
    patterns = tuple(dict.fromkeys(part for part in parts if part is not None))
    # In a group that requires one or exactly one, one is true.
    if not patterns or (condition.logic is not Logic.AND and len(patterns) < len(set(parts))):
        return None
    if len(patterns) == 1:
        return patterns[0]
    return ("all" if condition.logic is Logic.AND else "any", patterns)
