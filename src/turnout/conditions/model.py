"""Condition of a subscription: a tree of groups over leaves, each of which can be negated.

Every node is a frozen value. Two conditions are equal when they mean the same thing in the same words:
ids are names given by a store and do not count, nor does the dialect that a pattern was written in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from turnout.base.multivalued import Metadata
from turnout.conditions.leaf import Leaf
from turnout.errors import ConditionError

MAX_DEPTH = 100
"""Maximum nesting of groups. Protobuf parsers stop at 100 nested messages, and a group takes two."""


class Logic(StrEnum):
    """Operator of a group: all children, at least one, exactly one.

    >>> from turnout.conditions import parse
    >>> [parse(f"a:1 {word} b:2").logic for word in ("AND", "OR", "XOR")]
    [<Logic.AND: 'And'>, <Logic.OR: 'Or'>, <Logic.XOR: 'Xor'>]
    """

    AND = "And"
    OR = "Or"
    XOR = "Xor"


@dataclass(frozen=True, slots=True)
class Group:
    """Children coupled by a logic. ``Xor`` is true when exactly one child is.

    >>> from turnout.conditions import parse
    >>> parse("a:1 XOR b:2").logic, len(parse("a:1 AND b:2 AND c:3").children)
    (<Logic.XOR: 'Xor'>, 3)
    """

    logic: Logic
    children: tuple[Condition, ...]
    negated: bool = False
    id: str = field(default="", compare=False)
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.logic) is not Logic:
            object.__setattr__(self, "logic", Logic(self.logic))
        if type(self.children) is not tuple:
            object.__setattr__(self, "children", tuple(self.children))
        if not self.children:
            raise ConditionError(f"the {self.logic} group is empty: it needs children")
        depth = 1 + max([child.depth if isinstance(child, Group) else 0 for child in self.children])
        if depth > MAX_DEPTH:
            raise ConditionError(f"groups nest deeper than {MAX_DEPTH}")
        object.__setattr__(self, "depth", depth)


Condition: TypeAlias = Group | Leaf


def nodes(condition: Condition) -> Iterator[Condition]:
    """Yield every node of the tree, parents before their children, left to right.

    >>> from turnout.conditions import parse
    >>> [type(node).__name__ for node in nodes(parse("city:Oulu AND (total>5 OR urgent exists)"))]
    ['Group', 'Kiwi', 'Group', 'Compare', 'Exists']
    """
    yield condition
    if isinstance(condition, Group):
        for child in condition.children:
            yield from nodes(child)


def all_leaves(condition: Condition) -> Iterator[Leaf]:
    """Yield every leaf of the tree, each followed by those of the condition about its elements.

    >>> from turnout.conditions import parse
    >>> [leaf.key for leaf in all_leaves(parse("city:Oulu AND any(items, sku:A1 AND any(parts, n>2))"))]
    ['city', 'items', 'sku', 'parts', 'n']
    """
    for leaf in leaves(condition):
        yield leaf
        if leaf.inner is not None:
            yield from all_leaves(leaf.inner)


def leaves(condition: Condition) -> Iterator[Leaf]:
    """Yield every leaf of the tree, left to right.

    >>> from turnout.conditions import parse
    >>> [leaf.key for leaf in leaves(parse("city:Oulu AND (total>5 OR NOT urgent exists)"))]
    ['city', 'total', 'urgent']
    """
    if not isinstance(condition, Group):
        yield condition
        return
    for child in condition.children:
        # Most groups hold leaves, which need no generator of their own.
        if isinstance(child, Group):
            yield from leaves(child)
        else:
            yield child


def keys_of(condition: Condition) -> dict[str, None]:
    """Return the keys that the condition tests, each once, in their order.

    >>> from turnout.conditions import parse
    >>> list(keys_of(parse("paid<field(total) AND (city:Oulu OR total exists)")))
    ['paid', 'total', 'city']
    """
    return dict.fromkeys(key for leaf in leaves(condition) for key in leaf.keys)


def inverse(condition: Condition) -> Condition:
    """Return the negation of the condition."""
    return replace(condition, negated=not condition.negated)


def with_ids(condition: Condition, new_id: Callable[[], str]) -> Condition:
    """Return the same condition with an id on each node that had none.

    >>> from itertools import count
    >>> from turnout.conditions import parse
    >>> numbers = count(1)
    >>> [node.id for node in nodes(with_ids(parse("city:Oulu AND total>5"), lambda: f"n{next(numbers)}"))]
    ['n3', 'n1', 'n2']
    """
    if isinstance(condition, Group):
        children = tuple(with_ids(child, new_id) for child in condition.children)
        return Group(condition.logic, children, condition.negated, condition.id or new_id())
    return condition if condition.id else replace(condition, id=new_id())


def all_of(*children: Condition) -> Group:
    """True when every child is.

    >>> from turnout.conditions import compare, exists, format_condition, kiwi
    >>> format_condition(all_of(kiwi("city", "Ou*"), any_of(exists("urgent"), compare("total", ">=", 500))))
    'city:Ou* AND (urgent exists OR total>=500)'
    """
    return Group(Logic.AND, children)


def any_of(*children: Condition) -> Group:
    """True when at least one child is.

    >>> from turnout.conditions import evaluate, exists, kiwi
    >>> evaluate(any_of(kiwi("city", "Oulu"), kiwi("city", "Turku")), {"city": "Turku"})
    True
    >>> any_of()
    Traceback (most recent call last):
        ...
    turnout.errors.ConditionError: the Or group is empty: it needs children
    """
    return Group(Logic.OR, children)


def either(parts: Iterable[Condition]) -> Condition:
    """Return the condition that at least one part holds, each distinct part once; the only one alone."""
    distinct = list(dict.fromkeys(parts))
    return distinct[0] if len(distinct) == 1 else any_of(*distinct)


def both(parts: Iterable[Condition]) -> Condition:
    """Return the condition that all parts hold, each distinct part once; the only one alone."""
    distinct = list(dict.fromkeys(parts))
    return distinct[0] if len(distinct) == 1 else all_of(*distinct)


def one_of(*children: Condition) -> Group:
    """True when exactly one child is.

    >>> from turnout.conditions import evaluate, exists, kiwi
    >>> either = one_of(exists("phone"), exists("mail"))
    >>> [evaluate(either, metadata) for metadata in ({}, {"mail": "a@b"}, {"mail": "a@b", "phone": "1"})]
    [False, True, False]
    """
    return Group(Logic.XOR, children)


def not_(condition: Condition) -> Condition:
    """True when the condition is false.

    >>> from turnout.conditions import evaluate, exists, kiwi
    >>> elsewhere = not_(kiwi("city", "Oulu"))
    >>> [evaluate(elsewhere, metadata) for metadata in ({"city": "Turku"}, {"city": "Oulu"}, {})]
    [True, False, True]
    """
    return inverse(condition)


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
