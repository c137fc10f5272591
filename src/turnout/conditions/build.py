"""Short names to write conditions with in Python."""

from __future__ import annotations

from dataclasses import replace

from turnout.conditions.model import Cidr, Compare, Condition, Exists, Group, Kiwi, Logic, Operator

__all__ = ["all_of", "any_of", "between", "cidr", "compare", "exists", "kiwi", "not_", "one_of"]


def all_of(*children: Condition) -> Group:
    """True when every child is."""
    return Group(Logic.AND, children)


def any_of(*children: Condition) -> Group:
    """True when at least one child is."""
    return Group(Logic.OR, children)


def one_of(*children: Condition) -> Group:
    """True when exactly one child is."""
    return Group(Logic.XOR, children)


def not_(condition: Condition) -> Condition:
    """True when the condition is false."""
    return replace(condition, negated=not condition.negated)


def kiwi(key: str, pattern: str, *, partial: bool = False, ignore_case: bool = False, tree: bool = False) -> Kiwi:
    """True when the key's value matches a wildcard pattern; see `Kiwi`."""
    return Kiwi(key, pattern, partial=partial, ignore_case=ignore_case, tree=tree)


def compare(key: str, op: str, number: float) -> Compare:
    """True when the key's value is a number and ``value op number`` holds."""
    return Compare(key, op, number)  # type: ignore[arg-type]  # the node makes an Operator of it


def between(key: str, low: float, high: float) -> Group:
    """True when the key's value is a number from *low* to *high*, both included."""
    return all_of(Compare(key, Operator.AT_LEAST, low), Compare(key, Operator.AT_MOST, high))


def exists(key: str) -> Exists:
    """True when the key is present."""
    return Exists(key)


def cidr(key: str, network: str) -> Cidr:
    """True when the key's value is an IP address inside *network*."""
    return Cidr(key, network)
