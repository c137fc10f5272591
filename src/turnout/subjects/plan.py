"""A transform made ready to run: its source as a test of tokens, its destination as a template and what fills it.

Everything that does not depend on the subject is done here, once: which tokens are compared, which are picked,
the names of partitions. Each subject then needs only a few calls into C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from turnout.subjects._fnv import fnv1a
from turnout.subjects.functions import Call, cut
from turnout.subjects.random_numbers import random_below
from turnout.subjects.tokens import FULL, PARTIAL, encode

Matches = Callable[[Sequence[str]], bool]
"""Tests if the tokens of a literal subject match a source."""

Render = Callable[[str, Sequence[str], float | None], str]
"""Renders a destination from a subject, its tokens and, if needed, a draw."""


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
    getters = [_getter(step.call, step.tokens, index) for index, step in enumerate(steps) if step.call is not None]
    if tail is not None:
        getters.append(lambda _subject, tokens, _draw: ".".join(tokens[tail:]))
    return lambda subject, tokens, draw: template % tuple([getter(subject, tokens, draw) for getter in getters])


def _getter(call: Call, reads: tuple[int, ...], index: int) -> Render:
    """Return the function from a subject, its tokens and a draw to the text of the placeholder at token *index*."""
    number = call.number or 0
    if call.function == "random":
        return lambda _subject, _tokens, draw: str(random_below(draw, index, number))
    if call.function == "partition":
        return _partition(reads, buckets_of(number))
    (read,) = reads
    if call.function == "wildcard":
        return lambda _subject, tokens, _draw: tokens[read]
    run = cut(call)
    return lambda _subject, tokens, _draw: run(tokens[read])


def buckets_of(number: int) -> int:
    """Return the number of partitions, unsigned with 32 bits as in the server; with none there is partition 0 alone."""
    return number % 2**32


def _partition(reads: tuple[int, ...], buckets: int) -> Render:
    if buckets == 0:
        return lambda _subject, _tokens, _draw: "0"
    if not reads:
        return lambda subject, _tokens, _draw: str(fnv1a(encode(subject)) % buckets)
    return lambda _subject, tokens, _draw: str(fnv1a(encode("".join([tokens[read] for read in reads]))) % buckets)
