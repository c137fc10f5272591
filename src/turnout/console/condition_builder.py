"""Conditions from parts: a key, a test and a value are added to the text of a condition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal, TypeAlias

from turnout.conditions import Condition, format_condition, not_, parse
from turnout.conditions.model import Cidr, Compare, Exists, Group, Kiwi, Logic, Operator, Regex, SubjectMatch
from turnout.conditions.pattern import escape
from turnout.errors import ConditionError
from turnout.multivalued import ANY_KEY, leaf_key
from turnout.server.rest.dependencies import Parts

Join: TypeAlias = Literal["and", "or", "and not", "or not"]

_Leaf: TypeAlias = Callable[[str, str], Condition]


def _compared(op: Operator, key: str, value: str) -> Condition:
    try:
        return Compare(key, op, float(value))
    except ValueError:
        raise ConditionError(f"expected a number, found {value!r}", text=value, position=0) from None


TESTS: Final[dict[str, tuple[str, _Leaf]]] = {
    "is": ("is", lambda key, value: Kiwi(key, escape(value))),
    "begins": ("begins with", lambda key, value: Kiwi(key, f"{escape(value)}*")),
    "contains": ("contains", lambda key, value: Kiwi(key, f"*{escape(value)}*")),
    "word": ("has the word", lambda key, value: Kiwi(key, escape(value), partial=True)),
    "like": ("is like, with * and ?", Kiwi),
    **{str(op): (str(op), partial(_compared, op)) for op in Operator},
    "exists": ("exists", lambda key, _: Exists(key)),
    "network": ("is an address in", Cidr),
    "regex": ("matches the expression", Regex),
    "subject": ("is a subject of the filter, with * and >", SubjectMatch),
}
"""Title and leaf by name of a test."""


def extended(text: str, join: Join, key: str, test: str, value: str) -> str:
    """Return a condition with one more leaf as text.

    Args:
        text: the condition so far; blank for none.
        join: relation of the leaf to the others.
        key: name of a metadata key, or ``*`` for any value.
        test: one of `TESTS`.
        value: what the test compares with.

    Raises:
        ConditionError: the text or the value cannot be read.

    >>> extended("", "or", "city", "begins", "New York")
    'city:"New York*"'
    >>> extended("a:1 OR b:2", "and not", "total", ">", "5")
    '(a:1 OR b:2) AND NOT total>5'
    """
    leaf = TESTS[test][1](key if key == ANY_KEY else leaf_key(key), value)
    word, _, negation = join.partition(" ")
    logic = Logic(word.capitalize())
    leaf = not_(leaf) if negation else leaf
    if not text.strip():
        return format_condition(leaf)
    before = parse(text)
    is_open = isinstance(before, Group) and before.logic == logic and not before.negated
    children = before.children if isinstance(before, Group) and is_open else (before,)
    return format_condition(Group(logic, (*children, leaf)))


def offered_keys(parts: Parts) -> list[str]:
    """Return the keys that routes define for conditions, and those that every record has."""
    versions = [entry.version for entry in parts.routes.entries()]
    documents = [version.route.subscriptions for version in versions if version and version.route.subscriptions]
    names = {name for document in documents for name in document.metadata if "*" not in name}
    return ["topic", "key", *sorted(names - {"topic", "key"})]
