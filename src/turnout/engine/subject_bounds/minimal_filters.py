"""Reduction of many filters to few without overlaps, as nats-server requires for one consumer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import combinations

from turnout.subjects.pattern import FULL, PARTIAL, collide, is_subset


def minimal_filters(filters: Iterable[str], own: Collection[str], most: int) -> tuple[str, ...]:
    """Return at most *most* filters that cover *filters* and have no subject in common, in order.

    Args:
        filters: each within one of *own*.
        own: the source's filters, an upper bound, no two with a subject in common; more than *most* are unchanged.
        most: the number.
    """
    chosen_filters = set(filters)
    while len(chosen_filters) > most:
        chosen_filters = _without_a_token(chosen_filters)
    chosen = _disjoint(_widest(chosen_filters))
    # Two merged filters may exceed the source's own.
    uncovered = [filter_ for filter_ in chosen if not any(is_subset(filter_, of) for of in own)]
    if uncovered:
        instead = [of for of in own if any(collide(of, filter_) for filter_ in uncovered)]
        chosen = _widest({*instead, *chosen}.difference(uncovered))
    return tuple(sorted(chosen))


def _without_a_token(filters: set[str]) -> set[str]:
    """Return the filters with a wildcard at the position with the most distinct tokens."""
    split = [filter_.split(".") for filter_ in filters]
    tokens: dict[tuple[int, int], set[str]] = {}
    for parts in split:
        for position, token in enumerate(parts):
            if token not in (PARTIAL, FULL):
                tokens.setdefault((len(parts), position), set()).add(token)
    # Of several, the last: earlier tokens are more selective.
    length, at = max(tokens, key=lambda position: (len(tokens[position]), position), default=(0, 0))
    if not tokens or len(tokens[length, at]) < 2:
        return _merged(split)
    return {
        ".".join([*parts[:at], PARTIAL, *parts[at + 1 :]] if len(parts) == length and parts[at] != FULL else parts)
        for parts in split
    }


def _merged(split: list[list[str]]) -> set[str]:
    """Merge the two longest filters, which differ only in length and wildcards."""
    one, other, *rest = sorted(split, key=len, reverse=True)
    return {_union(one, other), *(".".join(tokens) for tokens in rest)}


def _disjoint(filters: Iterable[str]) -> list[str]:
    """Merge filters that have subjects in common, until no two overlap."""
    chosen = list(filters)
    while True:
        pair = next(((one, other) for one, other in combinations(chosen, 2) if collide(one, other)), None)
        if pair is None:
            return chosen
        chosen = _widest({*chosen, _union(pair[0].split("."), pair[1].split("."))})


def _union(one: list[str], other: list[str]) -> str:
    """Return the narrowest filter that covers both."""
    if len(one) == len(other) and (one[-1] == FULL) == (other[-1] == FULL):
        return ".".join(a if a == b else PARTIAL for a, b in zip(one, other, strict=True))
    shared = min(len(one), len(other)) - 1
    return ".".join([*(a if a == b else PARTIAL for a, b in zip(one[:shared], other[:shared], strict=True)), FULL])


def _widest(filters: Iterable[str]) -> list[str]:
    """Remove the filters that another filter covers."""
    widest: list[str] = []
    for filter_ in sorted(set(filters), key=lambda text: (text.count("."), text)):
        if not any(is_subset(filter_, of) for of in widest):
            widest = [other for other in widest if not is_subset(other, filter_)] + [filter_]
    return widest
