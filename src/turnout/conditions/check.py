"""Leaves as plain data for testing a value, used by the in-process index and by Spark.

A pattern that is only a text, a prefix, a suffix or an infix needs no regular expression; most are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, singledispatch
from operator import eq, ge, gt, le, lt
from typing import NamedTuple

from turnout.base.multivalued import Metadata, seen_texts
from turnout.conditions.element import element_holds
from turnout.conditions.evaluate import address_text, network_span, parsed_number
from turnout.conditions.model import Cidr, Compare, Element, Exists, Kiwi, Leaf, Operator, Regex, SubjectMatch
from turnout.conditions.pattern import ANY, Piece, fold, lexemes, parse_pattern, pattern_matcher
from turnout.conditions.regex import regex_searcher
from turnout.subjects.pattern import matches as subject_matches


class Check(NamedTuple):
    """Test of a key's value.

    Attributes:
        key: key of the value.
        op: ``=`` equals, ``^`` begins with, ``$`` ends with, ``~`` contains, ``glob``, ``has``, ``cidr``, ``re``,
            ``subject``, ``any`` (of elements), or a comparison: ``n<`` ``n<=`` ``n=`` ``n>=`` ``n>``.
        text: text to compare with; the pattern for ``glob``, ``re`` and ``subject``, the condition for ``any``; the
            first address for ``cidr``.
        last: the last address for ``cidr``.
        number: number to compare with.
        partial: any lexeme will do.
        fold: fold the value first; *text* is folded already, but for a pattern.
        negated: the other way round, also for a missing key.
    """

    key: str
    op: str
    text: str = ""
    last: str = ""
    number: float = 0.0
    partial: bool = False
    fold: bool = False
    negated: bool = False


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    f"n{op}": function
    for op, function in {
        Operator.LESS: lt,
        Operator.AT_MOST: le,
        Operator.EQUAL: eq,
        Operator.AT_LEAST: ge,
        Operator.MORE: gt,
    }.items()
}


@singledispatch
def check_of(leaf: Leaf) -> Check:
    """Return the leaf as data."""
    raise TypeError(f"not a leaf: {leaf!r}")


@check_of.register
def _(leaf: Kiwi) -> Check:
    op, text = shape(leaf.pattern)
    if leaf.ignore_case and op != "glob":
        text = fold(text)
    return Check(leaf.key, op, text, partial=leaf.partial, fold=leaf.ignore_case, negated=leaf.negated)


@check_of.register
def _(leaf: Compare) -> Check:
    return Check(leaf.key, f"n{leaf.op}", number=leaf.number, negated=leaf.negated)


@check_of.register
def _(leaf: Exists) -> Check:
    return Check(leaf.key, "has", negated=leaf.negated)


@check_of.register
def _(leaf: Cidr) -> Check:
    first, last = network_span(leaf.network)
    return Check(leaf.key, "cidr", first, last, negated=leaf.negated)


@check_of.register
def _(leaf: Regex) -> Check:
    return Check(leaf.key, "re", leaf.pattern, negated=leaf.negated)


@check_of.register
def _(leaf: SubjectMatch) -> Check:
    return Check(leaf.key, "subject", leaf.subject, negated=leaf.negated)


@check_of.register
def _(leaf: Element) -> Check:
    return Check(leaf.key, "any", leaf.where, negated=leaf.negated)


def shape(pattern: str) -> tuple[str, str]:
    """Return the cheapest operation that decides the pattern, and the text it needs."""
    if "*" not in pattern and "?" not in pattern and "\\" not in pattern:
        return "=", pattern
    return shape_of(parse_pattern(pattern), pattern)


def shape_of(pieces: tuple[Piece, ...], pattern: str) -> tuple[str, str]:
    """Return the cheapest operation and its text for a pattern that is parsed into pieces."""
    match pieces:
        case ():
            return "=", ""
        case (str(text),):
            return "=", text
        case (str(text), last) if last is ANY:
            return "^", text
        case (first, str(text)) if first is ANY:
            return "$", text
        case (first, str(text), last) if first is ANY and last is ANY:
            return "~", text
    return "glob", pattern


def holds(check: Check, metadata: Metadata) -> bool:
    """Return True if the check, its negation included, is true of a message's metadata."""
    texts = seen_texts(metadata, check[0])
    if isinstance(texts, tuple):
        return any(passes(check, value) for value in texts) != check[7]
    return (texts is not None and passes(check, texts)) != check[7]


def passes(check: Check, value: str) -> bool:
    """Return True if the check, without its negation, is true of a present value."""
    _, op, text, last, number, partial, folded, _ = check
    if folded:
        value = fold(value)
    if op in _TEXT_TESTS:
        test = _TEXT_TESTS[op]
        return any(test(lexeme, text) for lexeme in lexemes(value)) if partial else test(value, text)
    if op == "glob":
        matches = pattern_matcher(text, ignore_case=folded)
        return any(map(matches, lexemes(value))) if partial else matches(value)
    if op == "has":
        return True
    if op == "re":
        return regex_searcher(text)(value)
    if op == "subject":
        return subject_matches(text, value)
    if op == "any":
        return element_holds(text, value)
    if op == "cidr":
        address = address_text(value)
        return address is not None and text <= address <= last
    actual = _number_read(value)
    return actual is not None and COMPARISONS[op](actual, number)


_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "=": str.__eq__,
    "^": str.startswith,
    "$": str.endswith,
    "~": str.__contains__,
}

_number_read = lru_cache(maxsize=4096)(parsed_number)
"""One message's price is compared with many subscriptions' limits."""
