"""Comparison of patterns: inclusion of one in another, and existence of a value that both match."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

from turnout.conditions.pattern import ANY, ONE, Piece, Wildcard, fold

Token: TypeAlias = str | Wildcard
Tokens: TypeAlias = tuple[Token, ...]
"""A pattern as single characters and wildcards."""

_MOST_CELLS = 40_000
"""Two patterns are compared in at most this many steps; longer ones are left undecided."""


def tokens_of(pieces: Iterable[Piece]) -> Tokens:
    """Return the pattern's tokens; in a run of wildcards, each ``?`` precedes at most one ``*``.

    >>> from turnout.conditions.pattern import parse_pattern
    >>> tokens_of(parse_pattern("a*?*")) == tokens_of(parse_pattern("a?*"))
    True
    """
    tokens: list[Token] = []
    open_end = False
    for piece in pieces:
        if piece is ANY:
            open_end = True
        elif piece is ONE:
            tokens.append(ONE)
        else:
            if open_end:
                tokens.append(ANY)
                open_end = False
            assert isinstance(piece, str)
            tokens.extend(piece)
    return (*tokens, ANY) if open_end else tuple(tokens)


def folded(tokens: Tokens) -> Tokens:
    """Return a pattern of the folded forms of all values that *tokens* match, and possibly of more.

    One character can fold to several, so ``?`` becomes ``*``.
    """
    return tokens_of(fold(token) if isinstance(token, str) else ANY for token in tokens)


def includes(general: Tokens, special: Tokens) -> bool:
    """Return True if *general* matches everything that *special* matches; False also if that is unknown."""
    shortest = _shortest_text(special)
    if any(run not in shortest for run in _runs(general)) or len(general) * len(special) > _MOST_CELLS:
        return False
    return included_by_rows(general, special)


@lru_cache(maxsize=1 << 14)
def _runs(pattern: Tokens) -> tuple[str, ...]:
    """Return the texts between wildcards, each of which is in everything that the pattern matches."""
    texts = "".join(token if isinstance(token, str) else "\0" for token in pattern).split("\0")
    return tuple(text for text in texts if text)


@lru_cache(maxsize=1 << 14)
def _shortest_text(pattern: Tokens) -> str:
    """Return one of the shortest texts that the pattern matches, with a zero for each ``?``."""
    return "".join(token if isinstance(token, str) else "\0" for token in pattern if token is not ANY)


def included_by_rows(general: Tokens, special: Tokens) -> bool:
    """Return what `includes` does, for patterns that it compares step by step."""
    # Row by row: after which prefixes of *general* one can be when so much of *special* has been read.
    reached = _after_any(general, {0})
    for token in special:
        following: set[int] = set()
        for position in reached:
            if position == len(general):
                continue
            own = general[position]
            if own is ANY:
                following.add(position)
            elif token is not ANY and (own is ONE or own == token):
                following.add(position + 1)
        reached = _after_any(general, following)
        if not reached:
            return False
    return len(general) in reached


def _after_any(pattern: Tokens, positions: set[int]) -> set[int]:
    """Return the positions, and the positions after each ``*`` that matches the empty text."""
    closed = set(positions)
    for position in positions:
        while position < len(pattern) and pattern[position] is ANY:
            position += 1
            closed.add(position)
    return closed


def meet(one: Tokens, other: Tokens) -> bool:
    """Return True if some text may match both patterns; True also if that is unknown."""
    if len(one) * len(other) > _MOST_CELLS:
        return True
    if one and other and ((one[0] is ANY and other[-1] is ANY) or (other[0] is ANY and one[-1] is ANY)):
        # A text of one behind a text of the other.
        return True
    return met_by_rows(one, other)


def met_by_rows(one: Tokens, other: Tokens) -> bool:
    """Return what `meet` does, for patterns that it compares step by step."""
    row = _closed_row(other, one[:1], {0})
    for at, token in enumerate(one):
        following: set[int] = set()
        for position in row:
            if token is ANY:
                following.add(position)
            elif position < len(other):
                own = other[position]
                if own is ANY:
                    following.add(position)
                elif ONE in (own, token) or own == token:
                    following.add(position + 1)
        row = _closed_row(other, one[at + 1 : at + 2], following)
        if not row:
            return False
    return len(other) in row


def _closed_row(other: Tokens, following: Sequence[Token], positions: set[int]) -> set[int]:
    """Return the places in *other* that can be reached without reading on in the first pattern."""
    if following and following[0] is ANY:
        # The star matches any text.
        return set(range(min(positions, default=len(other) + 1), len(other) + 1))
    return _after_any(other, positions)
