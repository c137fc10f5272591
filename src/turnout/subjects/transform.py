"""One subject transform (ADR-30): a source filter, a destination, and what it makes of a subject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Self

from turnout.errors import SubjectError
from turnout.subjects._fnv import fnv1a
from turnout.subjects.draws import check_draw, random_below
from turnout.subjects.errors import (
    IndexOutOfRangeError,
    InvalidDestinationError,
    InvalidSubjectError,
    NoMatchError,
    NotSupportedForImportError,
    NotUsingAllWildcardsError,
    UnknownFunctionError,
)
from turnout.subjects.functions import Call, cut, is_braced, is_call, parse_call
from turnout.subjects.pattern import covers_tokens
from turnout.subjects.tokens import BLANKS, FULL, PARTIAL, check_subject, encode, position_of

__all__ = ["Step", "SubjectTransform", "check_mapping", "placeholders", "with_placeholders"]

_NEEDS_NO_WILDCARD = ("partition", "random")

_Getter = Callable[[Sequence[str]], str]
_Render = Callable[[Sequence[str], float | None], str]


@dataclass(frozen=True, slots=True)
class Step:
    """One token of a destination, ready to run.

    Attributes:
        literal: the token itself; None where it is a placeholder.
        call: the placeholder; None where it is a literal.
        tokens: which tokens of the subject the call reads, from 0. A ``partition`` without any hashes the
            whole subject.
    """

    literal: str | None
    call: Call | None = None
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SubjectTransform:
    """A transform, valid as it stands: build one with `parse`.

    Attributes:
        source: the filter, never empty.
        destination: as it was written. Empty means no transform: every subject stays what it is.
        strict: whether it was held to the rules for imports.
        steps: the destination's tokens, without a final ``>``.
        tail: how many tokens of the subject come before what ``>`` stands for; None without ``>``.
    """

    source: str
    destination: str
    strict: bool = False
    steps: tuple[Step, ...] = field(default=(), repr=False, compare=False)
    tail: int | None = field(default=None, repr=False, compare=False)
    _matches: Callable[[list[str]], bool] = field(default=lambda _: True, repr=False, compare=False)
    _render: _Render = field(default=lambda tokens, _: ".".join(tokens), repr=False, compare=False)

    @classmethod
    def parse(cls, source: str, destination: str, strict: bool = False) -> Self:
        """The transform from *source* to *destination*.

        Args:
            source: a filter; empty stands for ``>``.
            destination: literals and mapping functions between dots; empty for no transform at all.
            strict: hold it to the rules for imports: only ``wildcard``, and as many placeholders as wildcards.
                The server builds no transform for an import with a literal source; that is the caller's to know.

        Raises:
            InvalidSubjectError: when source or destination is not a valid subject, the destination has a ``*``,
                or only one of them ends in ``>``.
            DestinationError: when a mapping function cannot be read or used; see its subclasses.
        """
        source = source or FULL
        if not destination:
            return cls(source, destination, strict)
        wanted = check_subject(source, blanks=False)
        tokens = check_subject(destination, blanks=False)
        if PARTIAL in tokens:
            position = position_of(tokens, tokens.index(PARTIAL))
            raise InvalidSubjectError("'*' in a destination", text=destination, position=position)
        full = wanted[-1] == FULL
        if full != (tokens[-1] == FULL):
            text, side = (destination, "source") if full else (source, "destination")
            raise InvalidSubjectError(f"'>' ends the {side} only", text=text)
        steps = _steps(wanted, destination, tokens[:-1] if full else tokens, strict=strict)
        tail = len(wanted) - 1 if full else None
        render = _renderer(steps, tail)
        return cls(source, destination, strict, steps, tail, _matcher(wanted), render)

    def apply(self, subject: str, draw: float | None = None) -> str:
        """What the transform makes of a published subject.

        Args:
            subject: literal. A subject that is not UTF-8 comes, and goes, with surrogate escapes.
            draw: decides ``random(n)``; a number in [0, 1), a new one each time if not given.

        Returns:
            The mapped subject. Not promised: that it is a valid one, since ``split`` can leave an empty token.

        Raises:
            InvalidSubjectError: when the subject has an empty token or a wildcard.
            NoMatchError: when the source does not match.
        """
        if not self.destination or (self.source == FULL and self.destination == FULL):
            return subject
        tokens = subject.split(".")
        if "" in tokens or PARTIAL in tokens or FULL in tokens:
            raise InvalidSubjectError("a published subject has no empty tokens and no wildcards", text=subject)
        if not self._matches(tokens):
            raise NoMatchError(subject, self.source)
        return self._render(tokens, draw)

    def apply_tokens(self, tokens: Sequence[str], draw: float | None = None) -> str:
        """What the destination makes of *tokens*, which are not matched first; a missing one counts as empty."""
        if not self.destination:
            return ".".join(tokens)
        needed = max((index + 1 for step in self.steps for index in step.tokens), default=0)
        missing = needed - len(tokens)
        return self._render([*tokens, *[""] * missing] if missing > 0 else tokens, draw)

    @property
    def is_identity(self) -> bool:
        """Whether there is no transform at all: the destination is empty."""
        return not self.destination

    @property
    def is_random(self) -> bool:
        """Whether the destination has a ``random(n)``, so that a draw decides."""
        return any(step.call is not None and step.call.function == "random" for step in self.steps)

    def reverse(self) -> SubjectTransform | None:
        """The server's reverse: source and destination swapped, placeholders in the order they stand.

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
        """The transform that gives the original subject back; None where the subject cannot be known again.

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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).parse, (self.source, self.destination, self.strict)

    def __str__(self) -> str:
        return f"{self.source} -> {self.destination or '(unchanged)'}"


def _strict_or_none(source: str, destination: str) -> SubjectTransform | None:
    try:
        return SubjectTransform.parse(source, destination, strict=True)
    except SubjectError:
        return None


def _steps(wanted: list[str], destination: str, tokens: list[str], *, strict: bool) -> tuple[Step, ...]:
    """The destination's tokens, checked against the source's, in the server's order of checks."""
    places = [index for index, token in enumerate(wanted) if token == PARTIAL]
    literal_source = not places and wanted[-1] != FULL
    steps: list[Step] = []
    used = 0
    for index, token in enumerate(tokens):
        position = position_of(tokens, index)
        call = parse_call(token, destination=destination, position=position)
        if call is None:
            steps.append(Step(token))
            continue
        if strict and not literal_source and call.function != "wildcard":
            raise NotSupportedForImportError(destination, token, position)
        if not places and call.function not in _NEEDS_NO_WILDCARD:
            raise IndexOutOfRangeError(destination, token, position, detail="the source has no '*'")
        if literal_source:
            # The server ignores the token arguments of partition here, and hashes the whole subject.
            steps.append(Step(None, call))
            continue
        for wildcard in call.wildcards:
            if wildcard > len(places):
                raise IndexOutOfRangeError(
                    destination, token, position, detail=f"{wildcard}, and the source has {len(places)} '*'"
                )
        used += len(call.wildcards)
        # 0 and less are not refused: they read the subject's first token, as in the server.
        steps.append(Step(None, call, tuple(places[n - 1] if n > 0 else 0 for n in call.wildcards)))
    if strict and used < len(places):
        raise NotUsingAllWildcardsError(
            destination, destination, 0, detail=f"{len(places)} in the source, {used} placeholders"
        )
    return tuple(steps)


def _matcher(wanted: list[str]) -> Callable[[list[str]], bool]:
    """Whether a literal subject's tokens match; the common cases compare all literal tokens at once."""
    if any(token != PARTIAL and token.startswith(PARTIAL) for token in wanted):
        return lambda tokens: covers_tokens(tokens, wanted)
    full = wanted[-1] == FULL
    fixed = [index for index, token in enumerate(wanted) if token not in (PARTIAL, FULL)]
    count = len(wanted)
    if not fixed:
        return (lambda tokens: len(tokens) >= count) if full else (lambda tokens: len(tokens) == count)
    values = wanted[fixed[0]] if len(fixed) == 1 else tuple(wanted[index] for index in fixed)
    pick = itemgetter(*fixed)
    if full:
        return lambda tokens: len(tokens) >= count and pick(tokens) == values
    return lambda tokens: len(tokens) == count and pick(tokens) == values


def _renderer(steps: tuple[Step, ...], tail: int | None) -> _Render:
    """The function from a subject's tokens to the mapped subject: a template and what fills it."""
    template = ".".join("%s" if step.literal is None else step.literal.replace("%", "%%") for step in steps)
    if tail is not None:
        template += ".%s" if steps else "%s"
    getters = [(_getter(step), step.call, place) for place, step in enumerate(steps) if step.call is not None]
    if tail is not None:
        getters.append((lambda tokens: ".".join(tokens[tail:]), Call("tail"), len(steps)))
    if not getters:
        text = template % ()
        return lambda _tokens, _draw: text
    if any(call.function == "random" for _, call, _ in getters):
        return _random_renderer(template, getters)
    if all(call.function == "wildcard" for _, call, _ in getters):
        pick = itemgetter(*[step.tokens[0] for step in steps if step.call is not None])
        return lambda tokens, _draw: template % pick(tokens)
    plain = [getter for getter, _, _ in getters]
    if len(plain) == 1:
        (only,) = plain
        return lambda tokens, _draw: template % only(tokens)
    return lambda tokens, _draw: template % tuple([getter(tokens) for getter in plain])


def _random_renderer(template: str, getters: list[tuple[_Getter, Call, int]]) -> _Render:
    def render(tokens: Sequence[str], draw: float | None) -> str:
        if draw is not None:
            check_draw(draw)
        return template % tuple(
            random_below(draw, place, call.number or 0) if call.function == "random" else getter(tokens)
            for getter, call, place in getters
        )

    return render


def _getter(step: Step) -> _Getter:
    """The function from a subject's tokens to what one placeholder gives."""
    call = step.call
    assert call is not None
    if call.function == "random":
        return lambda _tokens: ""
    if call.function == "partition":
        return _partition(step.tokens, call.number or 0)
    (index,) = step.tokens
    if call.function == "wildcard":
        return itemgetter(index)
    run = cut(call)
    return lambda tokens: run(tokens[index])


def _partition(indexes: tuple[int, ...], number: int) -> _Getter:
    # As an unsigned 32-bit number, as the server has it; none at all gives partition 0.
    buckets = number % 2**32
    if buckets == 0:
        return lambda _tokens: "0"
    if not indexes:
        return lambda tokens: str(fnv1a(encode(".".join(tokens))) % buckets)
    if len(indexes) == 1:
        (only,) = indexes
        return lambda tokens: str(fnv1a(encode(tokens[only])) % buckets)
    return lambda tokens: str(fnv1a(encode("".join([tokens[index] for index in indexes]))) % buckets)


def with_placeholders(subject: str) -> str:
    """A filter as a destination: each ``*`` becomes ``$1``, ``$2`` and so on."""
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
    """A destination as a filter, and the placeholders that became ``*``, in order.

    Follows the server, which takes ``$1x`` for a placeholder here although the transform has it as a literal.
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
    """The transform of an account mapping, after the checks that mappings add to those of a transform.

    Raises:
        InvalidDestinationError: when a token is empty, has a blank, or follows ``>``.
        UnknownFunctionError: when a token in braces names no mapping function.
        SubjectError: as `SubjectTransform.parse`.
    """
    tokens = destination.split(".") if destination else []
    for index, token in enumerate(tokens):
        position = position_of(tokens, index)
        if not token or FULL in tokens[:index]:
            raise InvalidDestinationError(destination, token, position)
        if is_braced(token):
            if not is_call(token):
                raise UnknownFunctionError(destination, token, position)
        elif any(blank in token for blank in BLANKS):
            raise InvalidDestinationError(destination, token, position, detail="a blank")
    return SubjectTransform.parse(source, destination)
