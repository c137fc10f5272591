"""Short names to write conditions with in Python."""

from __future__ import annotations

from dataclasses import replace

from turnout.conditions.model import (
    Cidr,
    Compare,
    Condition,
    Element,
    Exists,
    Group,
    Kiwi,
    Logic,
    Operator,
    Regex,
    SubjectMatch,
)


def all_of(*children: Condition) -> Group:
    """True when every child is.

    >>> from turnout.conditions import format_condition
    >>> format_condition(all_of(kiwi("city", "Ou*"), any_of(exists("urgent"), compare("total", ">=", 500))))
    'city:Ou* AND (urgent exists OR total>=500)'
    """
    return Group(Logic.AND, children)


def any_of(*children: Condition) -> Group:
    """True when at least one child is.

    >>> from turnout.conditions import evaluate
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

    >>> from turnout.conditions import evaluate
    >>> either = one_of(exists("phone"), exists("mail"))
    >>> [evaluate(either, metadata) for metadata in ({}, {"mail": "a@b"}, {"mail": "a@b", "phone": "1"})]
    [False, True, False]
    """
    return Group(Logic.XOR, children)


def not_(condition: Condition) -> Condition:
    """True when the condition is false.

    >>> from turnout.conditions import evaluate
    >>> elsewhere = not_(kiwi("city", "Oulu"))
    >>> [evaluate(elsewhere, metadata) for metadata in ({"city": "Turku"}, {"city": "Oulu"}, {})]
    [True, False, True]
    """
    return replace(condition, negated=not condition.negated)


def kiwi(key: str, pattern: str, *, partial: bool = False, ignore_case: bool = False, tree: bool = False) -> Kiwi:
    """True when the key's value matches a wildcard pattern; see `Kiwi`.

    >>> from turnout.conditions import evaluate
    >>> title = {"title": "night trains"}
    >>> evaluate(kiwi("title", "tr*"), title), evaluate(kiwi("title", "tr*", partial=True), title)
    (False, True)
    >>> evaluate(kiwi("title", "Night*"), title), evaluate(kiwi("title", "Night*", ignore_case=True), title)
    (False, True)
    """
    return Kiwi(key, pattern, partial=partial, ignore_case=ignore_case, tree=tree)


def compare(key: str, op: str, number: float) -> Compare:
    """True when the key's value is a number and ``value op number`` holds.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(compare("total", ">=", 10), {"total": text}) for text in ("9", "1e1", "ten")]
    [False, True, False]
    """
    return Compare(key, op, number)  # type: ignore[arg-type]  # the node makes an Operator of it


def between(key: str, low: float, high: float) -> Group:
    """True when the key's value is a number from *low* to *high*, both included.

    >>> from turnout.conditions import evaluate, format_condition
    >>> format_condition(between("total", 10, 20)), evaluate(between("total", 10, 20), {"total": "20"})
    ('total>=10 AND total<=20', True)
    """
    return all_of(Compare(key, Operator.AT_LEAST, low), Compare(key, Operator.AT_MOST, high))


def exists(key: str) -> Exists:
    """True when the key is present.

    >>> from turnout.conditions import evaluate
    >>> evaluate(exists("note"), {"note": ""}), evaluate(exists("note"), {})
    (True, False)
    """
    return Exists(key)


def cidr(key: str, network: str) -> Cidr:
    """True when the key's value is an IP address inside *network*.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(cidr("client", "10.1.0.0/16"), {"client": text}) for text in ("10.1.2.3", "10.2.0.1", "host")]
    [True, False, False]
    """
    return Cidr(key, network)


def any_element(key: str, where: str) -> Element:
    """True when a condition is true of one element of the array under the key; see `Element`.

    >>> from turnout.conditions import format_condition
    >>> format_condition(any_element("items", "sku:A* and n>2"))
    'any(items, sku:A* AND n>2)'
    """
    return Element(key, where)


def subject_match(key: str, subject: str) -> SubjectMatch:
    """True when the key's value is a subject that a filter of NATS receives; see `SubjectMatch`.

    >>> from turnout.conditions import format_condition
    >>> format_condition(subject_match("subject", "orders.*.>"))
    'subject matches orders.*.>'
    """
    return SubjectMatch(key, subject)


def regex(key: str, pattern: str) -> Regex:
    """True when a regular expression of RE2 has a match anywhere in the key's value; see `Regex`.

    >>> from turnout.conditions import evaluate
    >>> evaluate(regex("path", "(?i)[.](exe|dll)$"), {"path": "C:/A.EXE"})
    True
    """
    return Regex(key, pattern)
