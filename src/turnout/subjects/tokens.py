"""Tokens of a subject: splitting, access and validation.

A subject is tokens between dots. nats-server compares bytes; here a subject is a ``str`` in which a byte that is not
UTF-8 is its surrogate escape (PEP 383), so that every subject of the server has exactly one ``str`` and back: see
`encode` and `decode`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

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
