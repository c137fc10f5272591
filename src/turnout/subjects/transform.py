"""Subject transform (ADR-30): a source filter, a destination, and the rewriting of subjects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from typing import Self

from turnout.errors import SubjectError
from turnout.subjects.errors import DestinationError, InvalidSubjectError, NoMatchError, Reason
from turnout.subjects.functions import Call, cut, fnv1a, is_braced, is_call, parse_call, random_below
from turnout.subjects.pattern import BLANKS, FULL, PARTIAL, check_subject, encode, not_literal, position_of, positioned

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


_NEEDS_NO_WILDCARD = ("partition", "random")


@dataclass(frozen=True, slots=True)
class SubjectTransform:
    """Valid transform; build one with `parse`.

    Attributes:
        source: the filter, never empty.
        destination: as it was written. Empty means no transform: every subject is unchanged.
        strict: whether it was held to the rules for imports.
        steps: the destination's tokens, without a final ``>``.
        tail: number of tokens of the subject before those that ``>`` matches; None without ``>``.
        render: renders the destination for a subject that the source is known to match, given with its
            tokens and a draw: `apply` without its checks.

    >>> transform = SubjectTransform.parse("orders.*.*", "{{wildcard(2)}}.orders.{{partition(3,1)}}")
    >>> transform.apply("orders.17.eu")
    'eu.orders.1'
    >>> SubjectTransform.parse("*", "{{left(1,3)}}.{{split(1,-)}}").apply("2026-11-22")
    '202.2026.11.22'
    """

    source: str
    destination: str
    strict: bool = False
    steps: tuple[TokenStep, ...] = field(default=(), repr=False, compare=False)
    tail: int | None = field(default=None, repr=False, compare=False)
    render: Render = field(default=lambda subject, _tokens, _draw: subject, repr=False, compare=False)
    _matches: Matches = field(default=lambda _: True, repr=False, compare=False)
    _is_unchanging: bool = field(default=True, repr=False, compare=False)

    @classmethod
    def parse(cls, source: str, destination: str, strict: bool = False) -> Self:
        """Return the transform from *source* to *destination*.

        Args:
            source: a filter; empty means ``>``.
            destination: literals and mapping functions between dots; empty for no transform at all.
            strict: hold it to the rules for imports: only ``wildcard``, and as many placeholders as wildcards.
                The server builds no transform for an import with a literal source; that is the caller's to know.

        Raises:
            InvalidSubjectError: when source or destination is not a valid subject, the destination has a ``*``,
                or only one of them ends in ``>``.
            DestinationError: when a mapping function cannot be read or used.
        """
        source = source or FULL
        if not destination:
            return cls(source, destination, strict)
        source_tokens = check_subject(source, blanks=False)
        tokens = check_subject(destination, blanks=False)
        if PARTIAL in tokens:
            position = position_of(tokens, tokens.index(PARTIAL))
            raise InvalidSubjectError("'*' in a destination", text=destination, position=position, token=PARTIAL)
        full = source_tokens[-1] == FULL
        if full != (tokens[-1] == FULL):
            text, side, position = (
                (source, "source", position_of(source_tokens, len(source_tokens) - 1))
                if full
                else (destination, "destination", position_of(tokens, len(tokens) - 1))
            )
            raise InvalidSubjectError(f"'>' ends the {side} only", text=text, position=position, token=FULL)
        steps = _steps(source_tokens, destination, tokens[:-1] if full else tokens, strict=strict)
        tail = len(source_tokens) - 1 if full else None
        render, matches = renderer(steps, tail), matcher(source_tokens)
        return cls(source, destination, strict, steps, tail, render, matches, source == destination == FULL)

    def apply(self, subject: str, draw: float | None = None) -> str:
        """Transform a published subject.

        Args:
            subject: literal. Bytes that are not UTF-8 are surrogate escapes, in arguments and results.
            draw: decides ``random(n)``; a number in [0, 1), a new one each time if not given.

        Returns:
            The mapped subject. Not promised: that it is a valid one, since ``split`` can leave an empty token.

        Raises:
            InvalidSubjectError: when the subject has an empty token or a wildcard.
            NoMatchError: when the source does not match.
        """
        if self._is_unchanging:
            return subject
        tokens = subject.split(".")
        if "" in tokens or PARTIAL in tokens or FULL in tokens:
            raise not_literal(subject, tokens)
        if not self._matches(tokens):
            raise NoMatchError(subject, self.source)
        return self.render(subject, tokens, draw)

    def apply_many(self, subjects: Sequence[str], draws: Sequence[float] | None = None) -> list[str | None]:
        """Transform many published subjects: several times as fast as one by one, once loops are compiled.

        Args:
            subjects: literal, as in `apply`.
            draws: one for each subject, which decides ``random(n)``; new ones if not given.

        Returns:
            For each subject what `apply` returns; None where it raises InvalidSubjectError or NoMatchError.

        Raises:
            ValueError: when *draws* has another length than *subjects*, or a draw is not in [0, 1).

        >>> SubjectTransform.parse("orders.*", "eu.{{left(1,2)}}").apply_many(["orders.new", "stock.17", "orders.*"])
        ['eu.ne', None, None]
        """
        # NumPy's import takes longer than most uses of a transform.
        from turnout.loops import loops_are_compiled

        if draws is not None and len(draws) != len(subjects):
            raise ValueError(f"{len(draws)} draws for {len(subjects)} subjects")
        if self._is_unchanging or not loops_are_compiled():
            return self.apply_each(subjects, draws)
        from turnout.subjects.arrays import transform_many

        return transform_many(self, subjects, draws)

    def apply_each(self, subjects: Sequence[str], draws: Sequence[float] | None) -> list[str | None]:
        """Return what `apply_many` returns, one by one."""
        return list(map(self._apply_or_none, subjects, repeat(None) if draws is None else draws))

    def _apply_or_none(self, subject: str, draw: float | None) -> str | None:
        try:
            return self.apply(subject, draw)
        except SubjectError:
            return None

    def apply_tokens(self, tokens: Sequence[str], draw: float | None = None) -> str:
        """Render the destination for *tokens*, which are not matched first; a missing one counts as empty."""
        missing = tokens_needed(self.steps) - len(tokens)
        padded = [*tokens, *[""] * missing] if missing > 0 else tokens
        return self.render(".".join(tokens), padded, draw)

    @property
    def is_identity(self) -> bool:
        """True if the destination is empty, so that nothing is transformed."""
        return not self.destination

    @property
    def is_random(self) -> bool:
        """True if the destination has a ``random(n)``, so that the result depends on a draw."""
        return any(step.call is not None and step.call.function == "random" for step in self.steps)

    def reverse(self) -> SubjectTransform | None:
        """Return the server's reverse: source and destination swapped, placeholders in order of appearance.

        None where the server has none: a wildcard dropped or used twice, or a function other than ``wildcard``.
        The result undoes this transform only where the reordering is its own inverse (``$2.$1``, not
        ``$3.$1.$2``); that is how the server behaves. For a true inverse see `inverse`.
        """
        if not self.destination:
            return self
        if PARTIAL not in self.source.split(".") and FULL not in self.source.split("."):
            return _strict_or_none(self.destination, self.source)
        source, holders = placeholders(self.destination)
        rest = iter(holders)
        tokens = [next(rest, None) if token == PARTIAL else token for token in self.source.split(".")]
        if None in tokens:
            return None
        return _strict_or_none(source, ".".join(token for token in tokens if token is not None))

    def inverse(self) -> SubjectTransform | None:
        """Return the transform that gives the original subject back; None where the subject cannot be known again.

        This is not the server's `reverse`: it is right for every reordering.
        """
        if not self.destination:
            return self
        reads: list[int] = []
        filters: list[str] = []
        for step in self.steps:
            if step.literal is not None:
                filters.append(step.literal)
            elif step.call is not None and step.call.function == "wildcard" and step.call.wildcards[0] > 0:
                filters.append(PARTIAL)
                reads.append(step.call.wildcards[0])
            else:
                return None
        wildcards = self.source.split(".").count(PARTIAL)
        if sorted(reads) != list(range(1, wildcards + 1)):
            return None
        number = 0
        back: list[str] = []
        for token in self.source.split("."):
            if token == PARTIAL:
                number += 1
                back.append(f"${reads.index(number) + 1}")
            else:
                back.append(token)
        return _strict_or_none(".".join(filters + ([FULL] if self.tail is not None else [])), ".".join(back))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).parse, (self.source, self.destination, self.strict)

    def __str__(self) -> str:
        return f"{self.source} -> {self.destination or '(unchanged)'}"


def _strict_or_none(source: str, destination: str) -> SubjectTransform | None:
    try:
        return SubjectTransform.parse(source, destination, strict=True)
    except SubjectError:
        return None


def _steps(source_tokens: list[str], destination: str, tokens: list[str], *, strict: bool) -> tuple[TokenStep, ...]:
    """Return the destination's tokens, checked against the source's, in the server's order of checks."""
    star_indices = [index for index, token in enumerate(source_tokens) if token == PARTIAL]
    literal_source = not star_indices and source_tokens[-1] != FULL
    steps: list[TokenStep] = []
    used = 0
    for position, token in positioned(tokens):
        call = parse_call(token, destination=destination, position=position)
        if call is None:
            steps.append(TokenStep(token))
            continue
        if strict and not literal_source and call.function != "wildcard":
            raise DestinationError(Reason.NOT_SUPPORTED_FOR_IMPORT, destination, token, position)
        if literal_source and call.function not in _NEEDS_NO_WILDCARD:
            raise DestinationError(
                Reason.INDEX_OUT_OF_RANGE, destination, token, position, detail="the source has no '*'"
            )
        if literal_source:
            # The server ignores the token arguments of partition here, and hashes the whole subject.
            steps.append(TokenStep(None, call))
            continue
        for wildcard in call.wildcards:
            if wildcard > len(star_indices):
                raise DestinationError(
                    Reason.INDEX_OUT_OF_RANGE,
                    destination,
                    token,
                    position,
                    detail=f"{wildcard}, and the source has {len(star_indices)} '*'",
                )
        used += len(call.wildcards)
        # 0 and less are not refused, also where the source has only a ">": they read the subject's first token, as
        # in the server.
        steps.append(TokenStep(None, call, tuple(star_indices[n - 1] if n > 0 else 0 for n in call.wildcards)))
    if strict and used < len(star_indices):
        raise DestinationError(
            Reason.NOT_USING_ALL_WILDCARDS,
            destination,
            destination,
            0,
            detail=f"{len(star_indices)} in the source, {used} placeholders",
        )
    return tuple(steps)


def with_placeholders(subject: str) -> str:
    """Convert a filter to a destination: each ``*`` becomes ``$1``, ``$2`` and so on.

    >>> with_placeholders("orders.*.items.*")
    'orders.$1.items.$2'
    """
    number = 0
    tokens: list[str] = []
    for token in subject.split("."):
        if token == PARTIAL:
            number += 1
            tokens.append(f"${number}")
        else:
            tokens.append(token)
    return ".".join(tokens)


def placeholders(destination: str) -> tuple[str, list[str]]:
    """Convert a destination to a filter; also return the placeholders that became ``*``, in order.

    Follows the server, which takes ``$1x`` for a placeholder here although the transform has it as a literal.

    >>> placeholders("eu.{{wildcard(2)}}.$1")
    ('eu.*.*', ['{{wildcard(2)}}', '$1'])
    """
    holders: list[str] = []
    tokens: list[str] = []
    for token in destination.split("."):
        numbered = len(token) > 1 and token[0] == "$" and "1" <= token[1] <= "9"
        if numbered or _is_wildcard_call(token):
            holders.append(token)
            tokens.append(PARTIAL)
        else:
            tokens.append(token)
    return ".".join(tokens), holders


def _is_wildcard_call(token: str) -> bool:
    try:
        call = parse_call(token) if is_braced(token) else None
    except SubjectError:
        return False
    return call is not None and call.function == "wildcard"


def check_mapping(source: str, destination: str) -> SubjectTransform:
    """Return the transform of an account mapping, after the additional checks of mappings.

    Raises:
        DestinationError: when a token is empty, has a blank, or follows ``>``, or is a call of no mapping function.
        SubjectError: as `SubjectTransform.parse`.
    """
    tokens = destination.split(".") if destination else []
    ended = False
    for position, token in positioned(tokens):
        if not token or ended:
            raise DestinationError(Reason.INVALID_DESTINATION, destination, token, position)
        if is_braced(token):
            if not is_call(token):
                raise DestinationError(Reason.UNKNOWN_FUNCTION, destination, token, position)
        elif any(blank in token for blank in BLANKS):
            raise DestinationError(Reason.INVALID_DESTINATION, destination, token, position, detail="a blank")
        ended = token == FULL
    return SubjectTransform.parse(source, destination)
