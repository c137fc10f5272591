"""Tokens of subjects, and patterns with wildcards.

A subject is tokens between dots. nats-server compares bytes; here a subject is a ``str`` in which a byte that is not
UTF-8 is its surrogate escape (PEP 383), so that every subject of the server has exactly one ``str`` and back: see
`encode` and `decode`.

Patterns follow nats-server from 2.15.3 on: a token that only *starts* with ``*`` (``*foo``) is a plain token. Its older
releases match the source of a transform with such a token to any one token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from turnout.errors import ConfigError, Mistake
from turnout.subjects.errors import InvalidSubjectError

PARTIAL = "*"
"""The token that matches any one token."""

FULL = ">"
"""The last token that matches one or more tokens."""

BLANKS = "\t\n\f\r "
"""Characters that no token of a stream's, a mapping's or a subscription's subject may hold."""

MAX_BYTES = 2_048
"""The longest subject in UTF-8 that is published on. nats-server reads protocol lines of 4,096 bytes, with a reply
subject and sizes, and closes the connection at a longer one."""

_NAME = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+")


def encode(subject: str) -> bytes:
    """Return the bytes that a server sees.

    Raises:
        InvalidSubjectError: the text has a surrogate that denotes no byte.
    """
    try:
        return subject.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as failure:
        token = subject[failure.start : failure.end]
        raise InvalidSubjectError("a lone surrogate", text=subject, position=failure.start, token=token) from None


def decode(subject: bytes) -> str:
    """Decode a server's subject to ``str``; bytes that are not UTF-8 become surrogate escapes."""
    return subject.decode("utf-8", "surrogateescape")


def position_of(tokens: Sequence[str], index: int) -> int:
    """Return the start of token *index* in the joined subject, in characters from 0."""
    return sum(len(token) + 1 for token in tokens[:index])


def positioned(tokens: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield each token with where it starts in the joined subject."""
    position = 0
    for token in tokens:
        yield position, token
        position += len(token) + 1


def _problem(tokens: Sequence[str], *, blanks: bool) -> tuple[int, str] | None:
    """Return the first token that breaks a rule, and the rule."""
    last = len(tokens) - 1
    for index, token in enumerate(tokens):
        if not token:
            return index, "an empty token"
        if token == FULL and index != last:
            return index, "'>' before the last token"
        if blanks and any(blank in token for blank in BLANKS):
            return index, "a blank"
    return None


def check_subject(subject: str, *, blanks: bool = True) -> list[str]:
    """Return the tokens of a valid subject or filter.

    Args:
        subject: the text.
        blanks: whether blanks are refused too, as for a stream's or a mapping's subjects. A transform by
            itself lets them pass.

    Raises:
        InvalidSubjectError: with the rule and the position of the token that breaks it.
    """
    tokens = subject.split(".")
    problem = _problem(tokens, blanks=blanks)
    if problem is not None:
        index, rule = problem
        raise InvalidSubjectError(rule, text=subject, position=position_of(tokens, index), token=tokens[index])
    return tokens


def not_literal(subject: str, tokens: Sequence[str]) -> InvalidSubjectError:
    """Return the error for a subject that has an empty token or a wildcard: nothing can be published there."""
    index, token = next((n, token) for n, token in enumerate(tokens) if token in ("", PARTIAL, FULL))
    rule = f"the wildcard {token!r} in a published subject" if token else "an empty token"
    return InvalidSubjectError(rule, text=subject, position=position_of(tokens, index), token=token)


def is_valid(subject: str) -> bool:
    """Return True if a stream or a subscription may use this subject; wildcards are allowed.

    >>> [is_valid(subject) for subject in ("orders.>", "orders..new", "orders.>.new")]
    [True, False, False]
    """
    return _problem(subject.split("."), blanks=True) is None


def is_valid_literal(subject: str) -> bool:
    """Return True if no token is empty or a wildcard. Blanks are not checked, see `is_publishable`.

    >>> [is_valid_literal(subject) for subject in ("orders.new", "orders new", "orders.*")]
    [True, True, False]
    """
    tokens = subject.split(".")
    return "" not in tokens and PARTIAL not in tokens and FULL not in tokens


def is_publishable(subject: str) -> bool:
    """Return True if a message can be published on this subject: literal, no empty token, no blank.

    >>> [is_publishable(subject) for subject in ("orders.new", "orders new", "orders..new", "orders.*")]
    [True, False, False, False]
    """
    return is_valid_literal(subject) and is_valid(subject)


def is_name(text: str) -> bool:
    """Return True if a stream, consumer or queue may have this name: one token that is also a file's name.

    >>> [is_name(text) for text in ("ORDERS", "orders.new", "a*", "a b", "a/b", "")]
    [True, False, False, False, False, False]
    """
    return _NAME.fullmatch(text) is not None


def has_wildcard(subject: str) -> bool:
    """Return True if a token is exactly ``*`` or ``>``; inside a longer token they are plain characters.

    >>> has_wildcard("orders.*"), has_wildcard("orders.a*")
    (True, False)
    """
    tokens = subject.split(".")
    return PARTIAL in tokens or FULL in tokens


def is_literal(subject: str) -> bool:
    """Return True if no token is exactly ``*`` or ``>``.

    >>> is_literal("orders.new*"), is_literal("orders.>")
    (True, False)
    """
    return not has_wildcard(subject)


def token_at(subject: str, index: int) -> str:
    """Return token *index*, counted from 1; empty if the index is out of range.

    >>> token_at("orders.eu.new", 2), token_at("orders.eu.new", 4)
    ('eu', '')
    """
    tokens = subject.split(".")
    return tokens[index - 1] if 1 <= index <= len(tokens) else ""


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


FIXED, STAR = "fixed", "*"


@dataclass(frozen=True, slots=True)
class SourceShape:
    """Common shape of the sources in one dictionary.

    Attributes:
        kinds: per token, not counting a final ``>``: "fixed"; "*", a wildcard.
        full: whether ``>`` follows.
    """

    kinds: tuple[str, ...]
    full: bool

    @property
    def fixed(self) -> tuple[int, ...]:
        """Indices of the fixed tokens."""
        return tuple(index for index, kind in enumerate(self.kinds) if kind == FIXED)

    @property
    def is_literal(self) -> bool:
        """True if every token is fixed: the sources match subjects equal to them."""
        return not self.full and all(kind == FIXED for kind in self.kinds)

    def takes(self, count: int) -> bool:
        """Return True if a subject of *count* tokens can match."""
        return count > len(self.kinds) if self.full else count == len(self.kinds)

    def key(self, tokens: Sequence[str]) -> str:
        """Return the fixed tokens of a source or a subject, joined."""
        return ".".join(tokens[index] for index in self.fixed)


def shape_of(source: str) -> SourceShape:
    """Return the shape of a source."""
    tokens = source.split(".")
    full = tokens[-1] == FULL
    kinds = (STAR if token == PARTIAL else FIXED for token in (tokens[:-1] if full else tokens))
    return SourceShape(tuple(kinds), full)


_Probe = tuple[int, Callable[[Sequence[str]], object], dict[object, int]]
"""The smallest number in a shape's dictionary, what picks its key from a subject's tokens, and the dictionary."""


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """Index of mapping sources that finds the first match of a subject.

    Attributes:
        literals: subject to the number of its source.
        shapes: for each shape of a source with wildcards, its fixed tokens to the number of the first source.
    """

    sources: tuple[str, ...]
    literals: dict[str, int]
    shapes: dict[SourceShape, dict[str, int]]
    # By the number of a subject's tokens, the last entry for all that have more.
    _probes: tuple[tuple[_Probe, ...], ...] = field(default=((),), repr=False, compare=False)

    @classmethod
    def build(cls, sources: Iterable[str]) -> SourceIndex:
        """Index *sources*; an earlier one wins over a later one."""
        ordered = tuple(sources)
        literals: dict[str, int] = {}
        shapes: dict[SourceShape, dict[str, int]] = {}
        for number, source in enumerate(ordered):
            shape = shape_of(source)
            if shape.is_literal:
                literals.setdefault(source, number)
            else:
                shapes.setdefault(shape, {}).setdefault(shape.key(source.split(".")), number)
        probes = [(shape, _probe(ordered, shape, numbers)) for shape, numbers in shapes.items()]
        # A search that finds a number smaller than all that follow can stop.
        probes.sort(key=lambda item: item[1][0])
        longest = max((len(shape.kinds) for shape in shapes), default=0)
        by_count = [tuple(probe for shape, probe in probes if shape.takes(count)) for count in range(longest + 2)]
        return cls(ordered, literals, shapes, tuple(by_count))

    def first(self, subject: str, tokens: Sequence[str]) -> int | None:
        """Return the number of the first source that matches; None where none does."""
        lowest = self.literals.get(subject)
        literal: bool | None = None
        by_count = self._probes
        count = len(tokens)
        for smallest, pick, numbers in by_count[count] if count < len(by_count) else by_count[-1]:
            if lowest is not None and lowest < smallest:
                return lowest
            number = numbers.get(pick(tokens))
            if number is None or (lowest is not None and lowest < number):
                continue
            if literal is None:
                literal = "" not in tokens and PARTIAL not in tokens and FULL not in tokens
            # The fixed tokens are equal; only a subject that is not literal can still fail at a wildcard.
            if literal or covers_tokens(tokens, self.sources[number].split(".")):
                lowest = number
        return lowest


def _probe(sources: tuple[str, ...], shape: SourceShape, numbers: dict[str, int]) -> _Probe:
    """Build the probe of a shape: its dictionary keyed by the fixed tokens that an itemgetter picks."""
    fixed = shape.fixed
    if not fixed:
        (only,) = numbers.values()
        return only, lambda _tokens: None, {None: only}
    pick = itemgetter(*fixed)
    return min(numbers.values()), pick, {pick(sources[n].split(".")): n for n in numbers.values()}


_ANSWERS: Final = ("_INBOX.", "_R_.", "_GR_.")
"""Subjects of answers: of clients, of services of other accounts, of other clusters."""


def check_pattern(pattern: str) -> str:
    """Return a pattern of subjects as it was given.

    Raises:
        ValueError: it is no subject, with or without wildcards.
    """
    if not pattern or not is_valid(pattern):
        raise ValueError(f"expected subjects, wildcards allowed (deliver.>), found {pattern!r}")
    return pattern


@dataclass(frozen=True, slots=True)
class Rights:
    """Subjects that may be published on.

    The server's own subjects (``$JS.``, ``$SYS.``, ``$KV.``, all that begin with ``$``), inboxes and subjects that lead
    back to the source are reached only where a pattern names their first token: ``>`` does not open them.

    Attributes:
        allow: patterns of subjects; None allows everything that is not protected.
        own: whether a subject is one that the route itself reads.
        prefixes: the connection's own prefixes of API requests and of inboxes.
    """

    allow: Sequence[str] | None = None
    own: Callable[[str], bool] | None = None
    prefixes: Sequence[str] = ()

    @classmethod
    def of(cls, patterns: Sequence[str]) -> Rights:
        """Return the rights by patterns; without any, everything that is not protected is allowed.

        Raises:
            ConfigError: a pattern is no subject.
        """
        mistakes = []
        for number, pattern in enumerate(patterns):
            try:
                check_pattern(pattern)
            except ValueError as problem:
                mistakes.append(Mistake(f"allow[{number}]", str(problem)))
        if mistakes:
            raise ConfigError(mistakes, what="destinations")
        return cls(tuple(patterns) or None)

    def refusal(self, subject: str) -> str | None:
        """Return the reason that a subject is not allowed; None if it is allowed.

        >>> Rights().refusal("$JS.API.STREAM.DELETE.ORDERS")
        "is not allowed: subjects that begin with '$' are the server's own"
        >>> Rights(("deliver.>",)).refusal("orders.new")
        'is not allowed: only deliver.> is'
        """
        protected = self.protection(subject)
        patterns = self.allow or ()
        if protected is not None:
            named = any(pattern[0] not in "*>" and matches(pattern, subject) for pattern in patterns)
            return None if named else f"is not allowed: {protected}"
        if self.allow is None or any(matches(pattern, subject) for pattern in patterns):
            return None
        if not patterns:
            return "is not allowed: nothing is"
        return f"is not allowed: only {', '.join(patterns)} {'is' if len(patterns) == 1 else 'are'}"

    def protection(self, subject: str) -> str | None:
        """Return the reason that a subject is protected; None if it is not."""
        if subject.startswith("$"):
            return "subjects that begin with '$' are the server's own"
        if subject.startswith(_ANSWERS):
            return "it is an inbox, where answers to requests go"
        for prefix in self.prefixes:
            if subject.startswith(f"{prefix}."):
                return f"subjects that begin with '{prefix}.' are the connection's own requests and answers"
        if self.own is not None and self.own(subject):
            return "the route reads it, and would read its own messages again: send to another one"
        return None
