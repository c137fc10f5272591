"""Filters with wildcards: matching, cover and intersection.

They follow nats-server from 2.15.3 on: a token that only *starts* with ``*`` (``*foo``) is a plain token. Its older
releases match the source of a transform with such a token to any one token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.subjects.tokens import FULL, PARTIAL, has_wildcard


def matches(pattern: str, subject: str) -> bool:
    """Return True if a subscription on *pattern* receives a message published on *subject*.

    A pattern or a subject with an empty token matches nothing.

    >>> [matches("orders.*", subject) for subject in ("orders.new", "orders", "orders.eu.new")]
    [True, False, False]
    >>> matches("orders.>", "orders.eu.new"), matches("orders.*x", "orders.ax")
    (True, False)
    """
    pattern_tokens = pattern.split(".")
    tokens = subject.split(".")
    if "" in tokens or "" in pattern_tokens:
        return False
    if pattern_tokens[-1] == FULL:
        pattern_tokens.pop()
        if len(tokens) <= len(pattern_tokens):
            return False
    elif len(tokens) != len(pattern_tokens):
        return False
    if FULL in pattern_tokens:
        return False
    return all(pattern_token in (PARTIAL, token) for pattern_token, token in zip(pattern_tokens, tokens, strict=False))


def covers_tokens(tokens: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if every subject of the filter *tokens* also matches the filter *pattern*, both given as tokens.

    This is how the server matches the source of a transform or mapping.
    """
    for index, pattern_token in enumerate(pattern):
        if index >= len(tokens) or not pattern_token:
            return False
        if pattern_token == FULL:
            return True
        token = tokens[index]
        if not token or token == FULL:
            return False
        if token == PARTIAL:
            if pattern_token != PARTIAL:
                return False
        elif pattern_token not in (PARTIAL, token):
            return False
    return len(tokens) == len(pattern)


def is_subset(subject: str, of: str) -> bool:
    """Return True if every subject that *subject* (with or without wildcards) matches is also matched by *of*.

    >>> is_subset("orders.*", "orders.>"), is_subset("orders.>", "orders.*")
    (True, False)
    """
    return covers_tokens(subject.split("."), of.split("."))


def _could_be_equal(one: str, other: str) -> bool:
    if not one or not other:
        return False
    return one == other or any(token in (PARTIAL, FULL) for token in (one, other))


def collide(one: str, other: str) -> bool:
    """Return True if some literal subject matches both filters, as two streams of one account must not.

    >>> collide("orders.*", "*.new"), collide("orders.*", "orders.*.new")
    (True, False)
    """
    if one == other:
        return True
    first, second = one.split("."), other.split(".")
    first_wild, second_wild = has_wildcard(one), has_wildcard(other)
    if not first_wild and not second_wild:
        return False
    if not first_wild:
        return covers_tokens(first, second)
    if not second_wild:
        return covers_tokens(second, first)
    shorter, longer = sorted((first, second), key=len)
    if len(shorter) < len(longer) and FULL not in shorter:
        return False
    return all(_could_be_equal(a, b) for a, b in zip(first, second, strict=False))


def common(one: str, other: str) -> str | None:
    """Return the filter of exactly the subjects that match both filters; None if no subject does.

    >>> common("in.*.a", "in.b.>")
    'in.b.a'
    """
    first, second = one.split("."), other.split(".")
    tokens: list[str] = []
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a == FULL:
            return ".".join([*tokens, *second[index:]])
        if b == FULL:
            return ".".join([*tokens, *first[index:]])
        if PARTIAL not in (a, b) and a != b:
            return None
        tokens.append(b if a == PARTIAL else a)
    return ".".join(tokens) if len(first) == len(second) else None


def subscriptions_under(subscriptions: Iterable[str], subject: str) -> list[str]:
    """Return the *subscriptions* that share subjects with a wildcard *subject*, in their order.

    >>> subscriptions_under(["stock.>", "*.new", "orders.eu"], "orders.*")
    ['*.new', 'orders.eu']
    """
    return [subscription for subscription in subscriptions if collide(subscription, subject)]
