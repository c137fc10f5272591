"""What the service accepts: the original's rules for a new subscription, one function each.

The model knows what can be said at all; these say what makes sense to store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from turnout.conditions import Condition, Group, leaves
from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions.destinations import problems_of
from turnout.subscriptions.model import Subscription

__all__ = ["MAX_LEAVES", "MAX_NESTING", "RULES", "check"]

MAX_LEAVES = 1_000
"""Leaves of one condition. The original has no bound; a message's verification must have one."""

MAX_NESTING = 40
"""Groups inside groups. Protobuf parsers stop at 100 nested messages, and an answer needs two for each group."""


def _destinations(subscription: Subscription) -> Iterator[str]:
    if not subscription.destinations:
        yield "route.destinations: at least one destination is needed"
    yield from problems_of(subscription)


def _is_unicode(subscription: Subscription) -> Iterator[str]:
    """JSON can say half of a surrogate pair; no store and no wire takes it. Conditions, destinations refuse it too."""
    texts = [subscription.id, *subscription.metadata, *subscription.metadata.values()]
    # Nearly all text is ASCII, which is known without looking at it.
    for text in texts:
        if not text.isascii() and _SURROGATE.search(text):
            yield f"{text!r} has half of a surrogate pair: that is no Unicode text"


_SURROGATE = re.compile("[\ud800-\udfff]")


def _root_is_not_negated(subscription: Subscription) -> Iterator[str]:
    if subscription.condition.negated:
        yield "route.condition: the root cannot be negated (LIM-1): negate something inside a group"


def _size(subscription: Subscription) -> Iterator[str]:
    condition = subscription.condition
    if not isinstance(condition, Group):
        return
    if condition.depth > MAX_NESTING:
        yield f"route.condition: groups nest {condition.depth} deep, at most {MAX_NESTING} are taken"
    count = sum(1 for _ in leaves(condition))
    if count > MAX_LEAVES:
        yield f"route.condition: {count} leaves, at most {MAX_LEAVES} are taken"


def _groups(subscription: Subscription) -> Iterator[str]:
    for place, group in _places(subscription.condition, "route.condition"):
        if len(group.children) < 2:
            yield f"{place}: a group needs two children or more, found {len(group.children)}"
        if len(set(group.children)) == len(group.children):
            continue
        seen: dict[Condition, int] = {}
        for number, child in enumerate(group.children):
            first = seen.setdefault(child, number)
            if first != number:
                yield f"{place}.group[{number}]: the same as group[{first}]"


def _root_is_not_all_negations(subscription: Subscription) -> Iterator[str]:
    root = subscription.condition
    if isinstance(root, Group) and all(child.negated for child in root.children):
        yield "route.condition: every child of the root is negated; at least one has to be a proposition"


def _places(condition: Condition, place: str) -> Iterator[tuple[str, Group]]:
    """Every group with its place as its author would name it."""
    if isinstance(condition, Group):
        yield place, condition
        for number, child in enumerate(condition.children):
            # Imports check millions of leaves, which need no place.
            if isinstance(child, Group):
                yield from _places(child, f"{place}.group[{number}]")


RULES: tuple[Callable[[Subscription], Iterator[str]], ...] = (
    _destinations,
    _is_unicode,
    _root_is_not_negated,
    _size,
    _groups,
    _root_is_not_all_negations,
)


def check(subscription: Subscription) -> None:
    """Refuse a subscription that breaks a rule.

    Raises:
        SubscriptionInvalidError: the message has every broken rule, each with its place.
    """
    problems = [problem for rule in RULES for problem in rule(subscription)]
    if problems:
        raise SubscriptionInvalidError("; ".join(problems))
