"""A transform made ready to run: its source as a test of tokens, its destination as a template and what fills it.

Everything that does not depend on the subject is done here, once: which tokens are compared, which are picked,
the names of partitions. Each subject then needs only a few calls into C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from turnout.subjects._fnv import fnv1a
from turnout.subjects.functions import Call, cut
from turnout.subjects.random_numbers import check_draw, random_below
from turnout.subjects.tokens import FULL, PARTIAL, encode

Matches = Callable[[Sequence[str]], bool]
"""Tests if the tokens of a literal subject match a source."""

Render = Callable[[str, Sequence[str], float | None], str]
"""Renders a destination from a subject, its tokens and, if needed, a draw."""

_Getter = Callable[[str, Sequence[str]], str]

_MAX_NAMED_BUCKETS = 1024
"""Up to this many partitions have their numbers written out beforehand."""


@dataclass(frozen=True, slots=True)
class TokenStep:
    """Token of a destination, prepared for rendering.

    Attributes:
        literal: the token itself; None where it is a placeholder.
        call: the placeholder; None where it is a literal.
        tokens: tokens of the subject that the call reads, from 0. A ``partition`` without any hashes the
            whole subject.
    """

    literal: str | None
    call: Call | None = None
    tokens: tuple[int, ...] = ()


def tokens_needed(steps: Sequence[TokenStep]) -> int:
    """Return the number of tokens that a subject needs for every step to find its own."""
    return max((index + 1 for step in steps for index in step.tokens), default=0)


def matcher(pattern: Sequence[str]) -> Matches:
    """Build a test of a literal subject's tokens; the common cases compare all literal tokens at once."""
    full = pattern[-1] == FULL
    fixed = [index for index, token in enumerate(pattern) if token not in (PARTIAL, FULL)]
    count = len(pattern)
    if not fixed:
        return (lambda tokens: len(tokens) >= count) if full else (lambda tokens: len(tokens) == count)
    values = pattern[fixed[0]] if len(fixed) == 1 else tuple(pattern[index] for index in fixed)
    pick = itemgetter(*fixed)
    if full:
        return lambda tokens: len(tokens) >= count and pick(tokens) == values
    return lambda tokens: len(tokens) == count and pick(tokens) == values


def renderer(steps: Sequence[TokenStep], tail: int | None) -> Render:
    """Return the function from a subject to the mapped subject.

    Args:
        steps: the destination's tokens, without a final ``>``.
        tail: number of tokens of the subject before those that ``>`` matches; None without ``>``.
    """
    template = ".".join("%s" if step.literal is None else step.literal.replace("%", "%%") for step in steps)
    if tail is not None:
        template += ".%s" if steps else "%s"
    calls = [(step.call, step.tokens, index) for index, step in enumerate(steps) if step.call is not None]
    if not calls and tail is None:
        text = template % ()
        return lambda _subject, _tokens, _draw: text
    if any(call.function == "random" for call, _, _ in calls):
        return _random_renderer(template, calls, tail)
    if all(call.function == "wildcard" for call, _, _ in calls) and tail is None:
        pick = itemgetter(*[read for _, (read,), _ in calls])
        return lambda _subject, tokens, _draw: template % pick(tokens)
    getters = [_getter(call, reads) for call, reads, _ in calls]
    if tail is not None:
        getters.append(_tail(tail))
    if len(getters) == 1:
        (only,) = getters
        return lambda subject, tokens, _draw: template % only(subject, tokens)
    if len(getters) == 2:
        first, second = getters
        return lambda subject, tokens, _draw: template % (first(subject, tokens), second(subject, tokens))
    return lambda subject, tokens, _draw: template % tuple([getter(subject, tokens) for getter in getters])


def _random_renderer(template: str, calls: Sequence[tuple[Call, tuple[int, ...], int]], tail: int | None) -> Render:
    """Build a renderer for destinations with a draw: each ``random(n)`` reads it with its own token index."""
    numbers = [call.number or 0 if call.function == "random" else None for call, _, _ in calls]
    getters = [_getter(call, reads) for call, reads, _ in calls]
    indices = [index for _, _, index in calls]
    if tail is not None:
        numbers, getters, indices = [*numbers, None], [*getters, _tail(tail)], [*indices, 0]
    parts = list(zip(numbers, getters, indices, strict=True))

    def render(subject: str, tokens: Sequence[str], draw: float | None) -> str:
        if draw is not None:
            check_draw(draw)
        return template % tuple(
            [
                getter(subject, tokens) if number is None else random_below(draw, index, number)
                for number, getter, index in parts
            ]
        )

    return render


def _tail(skipped: int) -> _Getter:
    return lambda _subject, tokens: ".".join(tokens[skipped:])


def _getter(call: Call, reads: tuple[int, ...]) -> _Getter:
    """Return the function from a subject and its tokens to what one placeholder gives."""
    if call.function == "random":
        return lambda _subject, _tokens: ""
    if call.function == "partition":
        return _partition(reads, call.number or 0)
    (index,) = reads
    if call.function == "wildcard":
        return lambda _subject, tokens: tokens[index]
    run = cut(call)
    return lambda _subject, tokens: run(tokens[index])


def buckets_of(number: int) -> int:
    """Return the number of partitions, unsigned with 32 bits as in the server; with none there is partition 0 alone."""
    return number % 2**32


@lru_cache(maxsize=16)
def bucket_namer(buckets: int) -> Callable[[int], str]:
    """Return the function from a partition to its text."""
    return tuple(map(str, range(buckets))).__getitem__ if buckets <= _MAX_NAMED_BUCKETS else str


def _partition(reads: tuple[int, ...], number: int) -> _Getter:
    buckets = buckets_of(number)
    if buckets == 0:
        return lambda _subject, _tokens: "0"
    name = bucket_namer(buckets)
    if not reads:
        return lambda subject, _tokens: name(fnv1a(encode(subject)) % buckets)
    if len(reads) == 1:
        (only,) = reads
        return lambda _subject, tokens: name(fnv1a(encode(tokens[only])) % buckets)
    pick = itemgetter(*reads)
    return lambda _subject, tokens: name(fnv1a(encode("".join(pick(tokens)))) % buckets)
