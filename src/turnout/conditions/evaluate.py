"""The reference interpreter of conditions. Every other implementation has to agree with it."""

from __future__ import annotations

from turnout.base.multivalued import Metadata
from turnout.conditions.model import Condition, Group, Logic


def evaluate(condition: Condition, metadata: Metadata) -> bool:
    """Return True if the condition is true of a message with this metadata.

    A leaf is true when its key is present and its test holds. A missing key makes a leaf false, and so its
    negation true: a negation is the plain inverse everywhere. Of a key with several values, each leaf by itself looks
    for one that its test holds for; its negation is true if there is none. Under the key ``*`` a leaf tests the
    values of all keys.

    >>> from turnout.conditions import parse
    >>> condition = parse("city:Ou* AND NOT status:cancelled")
    >>> [evaluate(condition, seen) for seen in ({"city": "Oulu"}, {"city": "Oulu", "status": "cancelled"}, {})]
    [True, False, False]
    >>> [evaluate(parse(text), {"sku": ("A1", "B2")}) for text in ("sku:A1 AND sku:B2", "NOT sku:A1")]
    [True, False]
    >>> [evaluate(parse(text), {"cmd": "sh -e", "user": "root"}) for text in ("*:root", "*:*sh*", "*:*bash*")]
    [True, True, False]
    """
    if not isinstance(condition, Group):
        return condition.is_met(metadata) != condition.negated
    match condition.logic:
        case Logic.AND:
            holds = all(evaluate(child, metadata) for child in condition.children)
        case Logic.OR:
            holds = any(evaluate(child, metadata) for child in condition.children)
        case Logic.XOR:
            holds = sum(evaluate(child, metadata) for child in condition.children) == 1
    return holds != condition.negated
