"""The reference interpreter of conditions. Every other implementation has to agree with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, singledispatch
from ipaddress import ip_address, ip_network
from math import nan

from turnout.base.multivalued import Metadata, seen_texts
from turnout.conditions.model import (
    Cidr,
    Compare,
    Condition,
    Element,
    Exists,
    Group,
    Kiwi,
    Leaf,
    Logic,
    Operator,
    Regex,
    SubjectMatch,
)
from turnout.conditions.pattern import fold, lexemes, pattern_matcher
from turnout.conditions.regex import regex_searcher
from turnout.subjects.pattern import matches as subject_matches

NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
"""Pattern of a number in a value, in a syntax that Python and Java read alike."""

_NUMBER = re.compile(NUMBER)


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
        texts = seen_texts(metadata, condition.key)
        if isinstance(texts, tuple):
            return any(leaf_holds(condition, value) for value in texts) != condition.negated
        return (texts is not None and leaf_holds(condition, texts)) != condition.negated
    match condition.logic:
        case Logic.AND:
            holds = all(evaluate(child, metadata) for child in condition.children)
        case Logic.OR:
            holds = any(evaluate(child, metadata) for child in condition.children)
        case Logic.XOR:
            holds = sum(evaluate(child, metadata) for child in condition.children) == 1
    return holds != condition.negated


@singledispatch
def leaf_holds(leaf: Leaf, value: str) -> bool:
    """Return True if the leaf's test, without its negation, holds for a present value."""
    raise TypeError(f"not a leaf, for the value {value!r}: {leaf!r}")


@leaf_holds.register
def _(leaf: Kiwi, value: str) -> bool:
    matches = pattern_matcher(leaf.pattern, ignore_case=leaf.ignore_case)
    text = fold(value) if leaf.ignore_case else value
    if leaf.partial:
        return any(map(matches, lexemes(text)))
    return matches(text)


@leaf_holds.register
def _(leaf: Compare, value: str) -> bool:
    number = parsed_number(value)
    if number is None:
        return False
    match leaf.op:
        case Operator.LESS:
            return number < leaf.number
        case Operator.AT_MOST:
            return number <= leaf.number
        case Operator.EQUAL:
            return number == leaf.number
        case Operator.AT_LEAST:
            return number >= leaf.number
        case Operator.MORE:
            return number > leaf.number


@leaf_holds.register
def _(_leaf: Exists, _value: str) -> bool:
    return True


@leaf_holds.register
def _(leaf: Cidr, value: str) -> bool:
    address = address_text(value)
    if address is None:
        return False
    first, last = network_span(leaf.network)
    return first <= address <= last


@leaf_holds.register
def _(leaf: Regex, value: str) -> bool:
    return regex_searcher(leaf.pattern)(value)


@leaf_holds.register
def _(leaf: SubjectMatch, value: str) -> bool:
    return subject_matches(leaf.subject, value)


@leaf_holds.register
def _(leaf: Element, value: str) -> bool:
    # It evaluates a condition in its turn.
    from turnout.conditions.element import element_holds

    return element_holds(leaf.where, value)


def parsed_number(value: str) -> float | None:
    """Parse a number, without white space around it; None if the text is not one."""
    return float(value) if _NUMBER.fullmatch(value) else None


def parsed_numbers(values: Sequence[str]) -> list[float]:
    """Parse many numbers at once; NaN for a text that is not one.

    >>> parsed_numbers(["7", "-1e3", " 7", "nan"])
    [7.0, -1000.0, nan, nan]
    """
    is_number = _NUMBER.fullmatch
    if all(map(is_number, values)):
        return list(map(float, values))
    return [float(value) if is_number(value) else nan for value in values]


def address_text(value: str) -> str | None:
    """Return an IP address as text that sorts: the version, then its bits in hexadecimal; None for other texts."""
    # The standard library takes a zone ("fe80::1%eth0"); an address in a message has no interface.
    if "%" in value:
        return None
    try:
        address = ip_address(value)
    except ValueError:
        return None
    return f"{address.version}:{address.packed.hex()}"


@lru_cache(maxsize=4096)
def address_prefix(value: str, length: int) -> str:
    """Return the version and first *length* bits of an IP address as text; "" for other texts and shorter addresses.

    >>> address_prefix("10.1.2.3", 8), address_prefix("10.1.2.3", 0), address_prefix("10.1.2", 8)
    ('4:a', '4:0', '')
    """
    # Most values are no addresses, which is known from how they look.
    text = address_text(value) if 2 <= len(value) <= _LONGEST_ADDRESS and value[0] in _ADDRESS_BEGINS else None
    return "" if text is None else _prefix(text, length)


def _prefix(address: str, length: int) -> str:
    version, bits = address.split(":")
    rest = len(bits) * 4 - length
    return "" if rest < 0 else f"{version}:{int(bits, 16) >> rest:x}"


def span_prefix(first: str, last: str) -> tuple[int, str]:
    """Return the length of the prefix that all addresses of a `network_span` have, and the prefix as text.

    >>> span_prefix(*network_span("10.0.0.0/8"))
    (8, '4:a')
    """
    bits = first.partition(":")[2]
    length = len(bits) * 4 - (int(bits, 16) ^ int(last.partition(":")[2], 16)).bit_length()
    return length, _prefix(first, length)


_LONGEST_ADDRESS = 45
_ADDRESS_BEGINS = frozenset("0123456789abcdefABCDEF:")


@lru_cache(maxsize=4096)
def network_span(network: str) -> tuple[str, str]:
    """Return the first and the last address of a network, as `address_text` writes them."""
    net = ip_network(network)
    return (
        f"{net.version}:{net.network_address.packed.hex()}",
        f"{net.version}:{net.broadcast_address.packed.hex()}",
    )
