"""Condition of a subscription: a tree of groups over leaves, each of which can be negated.

Every node is a frozen value. Two conditions are equal when they mean the same thing in the same words:
ids are names given by a store and do not count, nor does the dialect that a pattern was written in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_network
from math import inf, isfinite
from typing import TypeAlias

from turnout.conditions.pattern import check_pattern
from turnout.conditions.regex import check_regex
from turnout.errors import ConditionError

MAX_DEPTH = 100
"""Maximum nesting of groups. Protobuf parsers stop at 100 nested messages, and a group takes two."""

MAX_ELEMENT_DEPTH = 30
"""Maximum nesting of conditions about elements."""


class Logic(StrEnum):
    """Operator of a group: all children, at least one, exactly one.

    >>> from turnout.conditions import parse
    >>> [parse(f"a:1 {word} b:2").logic for word in ("AND", "OR", "XOR")]
    [<Logic.AND: 'And'>, <Logic.OR: 'Or'>, <Logic.XOR: 'Xor'>]
    """

    AND = "And"
    OR = "Or"
    XOR = "Xor"


class Operator(StrEnum):
    """Comparison operator of a numeric leaf.

    >>> from turnout.conditions import parse
    >>> parse("total>=5").op, parse("total<5").op
    (<Operator.AT_LEAST: '>='>, <Operator.LESS: '<'>)
    """

    LESS = "<"
    AT_MOST = "<="
    EQUAL = "="
    AT_LEAST = ">="
    MORE = ">"


def _need_key(key: str) -> None:
    if not key:
        raise ConditionError("a leaf needs the key of the metadata to test")


@dataclass(frozen=True, slots=True)
class Kiwi:
    r"""True when the key's value matches a wildcard pattern: ``*`` any run, ``?`` one character, ``\`` escapes.

    Attributes:
        key: the metadata key to test.
        pattern: pattern of its whole value.
        partial: let the pattern match any single lexeme of the value instead of the whole.
        ignore_case: compare without regard to case.
        negated: true where the rest is false, so also where the key is missing.
        tree: written in the *kiwi tree* dialect, which has ``*`` only at the end. The meaning is the same.
        id: the leaf's name in a store.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(Kiwi("city", pattern), {"city": "Oulu"}) for pattern in ("O?lu", "O*", "ulu", "*")]
    [True, True, False, True]
    """

    key: str
    pattern: str
    partial: bool = False
    ignore_case: bool = False
    negated: bool = False
    tree: bool = field(default=False, compare=False)
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _need_key(self.key)
        check_pattern(self.pattern, tree=self.tree)


@dataclass(frozen=True, slots=True)
class Compare:
    """True when the key's value is a decimal number and ``value op number`` holds.

    Numbers are compared as IEEE doubles. A value that is not a number makes the leaf false.

    >>> from turnout.conditions import parse
    >>> parse("total>=10") == Compare("total", Operator(">="), 10.0)
    True
    """

    key: str
    op: Operator
    number: float
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _need_key(self.key)
        try:
            object.__setattr__(self, "op", Operator(self.op))
        except ValueError:
            operators = " ".join(Operator)
            raise ConditionError(
                f"no comparison is written {self.op!r}; there are {operators}", text=str(self.op)
            ) from None
        try:
            number = float(self.number)
        except OverflowError:
            # A whole number of more than 308 digits.
            number = inf
        if not isfinite(number):
            raise ConditionError(f"expected a finite number to compare with, found {number}", text=str(number))
        object.__setattr__(self, "number", number)


@dataclass(frozen=True, slots=True)
class Exists:
    """True when the key is present with any value, including the empty one.

    >>> from turnout.conditions import parse
    >>> parse("NOT urgent exists") == Exists("urgent", negated=True)
    True
    """

    key: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _need_key(self.key)


@dataclass(frozen=True, slots=True)
class Cidr:
    """True when the key's value is an IP address inside *network*, of IPv4 or IPv6.

    The network is kept in its canonical form; host bits that are set in it are refused.

    >>> Cidr("client", "2001:DB8::/32").network
    '2001:db8::/32'
    >>> Cidr("client", "10.1.2.3/16")
    Traceback (most recent call last):
        ...
    turnout.errors.ConditionError: not a network: 10.1.2.3/16 has host bits set
    """

    key: str
    network: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _need_key(self.key)
        try:
            object.__setattr__(self, "network", str(ip_network(self.network)))
        except ValueError as problem:
            raise ConditionError(f"not a network: {problem}", text=self.network) from None


@dataclass(frozen=True, slots=True)
class Regex:
    """True when a regular expression of RE2 has a match anywhere in the key's value.

    Case and lines are up to its flags, as in ``(?i)``. It takes ``google-re2``, the extra ``turnout[regex]``.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(Regex("cmd", "-e(nc)? [A-Z]"), {"cmd": text}) for text in ("sh -e A", "sh -enc B", "sh -en C")]
    [True, True, False]
    """

    key: str
    pattern: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _need_key(self.key)
        check_regex(self.pattern)


@dataclass(frozen=True, slots=True)
class SubjectMatch:
    """True when the key's value is a subject that a filter of NATS receives: ``*`` is one token, ``>`` all that follow.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(SubjectMatch("subject", "orders.*.new"), {"subject": s}) for s in ("orders.eu.new", "orders.a.b.new")]
    [True, False]
    >>> SubjectMatch("subject", "orders.>.new")
    Traceback (most recent call last):
        ...
    turnout.errors.ConditionError: not a filter of subjects: > is possible only at the end of orders.>.new
    """

    key: str
    subject: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _need_key(self.key)
        tokens = self.subject.split(".")
        if "" in tokens:
            problem = f"{self.subject!r} has an empty token" if self.subject else "it is empty"
            raise ConditionError(f"not a filter of subjects: {problem}", text=self.subject)
        if ">" in tokens[:-1]:
            at = self.subject.index(">")
            problem = f"> is possible only at the end of {self.subject}"
            raise ConditionError(f"not a filter of subjects: {problem}", text=self.subject, position=at)


@dataclass(frozen=True, slots=True)
class Element:
    """True when a condition is true of one element of the array under the key.

    The key's values, or the elements of a value that is an array, are read as JSON. Other than with leaves about
    ``items[].sku`` and ``items[].n``, it is one element that has to satisfy all. The condition may have such leaves in
    its turn, about arrays inside of the element.

    Attributes:
        key: key of the array.
        where: the condition about the fields of an element, as text in the form of `format_condition`.

    >>> from turnout.conditions import evaluate
    >>> items = {"items": ('{"sku": "A1", "n": 1}', '{"sku": "B2", "n": 5}')}
    >>> [evaluate(Element("items", where), items) for where in ("sku:A* AND n<2", "sku:A* AND n>2")]
    [True, False]
    """

    key: str
    where: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _need_key(self.key)
        if not self.where:
            raise ConditionError("any(…) needs a condition about the elements")
        where, depth = _element_condition(self.where)
        if depth >= MAX_ELEMENT_DEPTH:
            raise ConditionError(f"any(…) nests deeper than {MAX_ELEMENT_DEPTH}")
        object.__setattr__(self, "where", where)


@lru_cache(maxsize=4096)
def _element_condition(where: str) -> tuple[str, int]:
    """Return the normal form of an element's condition, and how deep ``any`` nests in it.

    It is cached because each ``any`` outside of another asks for it again.
    """
    # Text is written of this module's classes.
    from turnout.conditions.text import format_condition, parse

    inner = parse(where)
    depths = [_element_condition(leaf.where)[1] + 1 for leaf in leaves(inner) if isinstance(leaf, Element)]
    return format_condition(inner), max(depths, default=0)


Leaf: TypeAlias = Kiwi | Compare | Exists | Cidr | Regex | SubjectMatch | Element


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
    # Text is written of this module's classes.
    from turnout.conditions.text import parse

    for leaf in leaves(condition):
        yield leaf
        if isinstance(leaf, Element):
            yield from all_leaves(parse(leaf.where))


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
