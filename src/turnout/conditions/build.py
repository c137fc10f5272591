"""Groups and negations of conditions in Python; the leaves have functions of their own beside their classes."""

from __future__ import annotations

from turnout.conditions.model import Condition, Group, Logic, inverse


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
