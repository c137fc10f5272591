"""Regular expressions of RE2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from turnout.conditions.anchor import Anchor, Lookups, lookups_of_pieces
from turnout.conditions.leaf import (
    PATTERN,
    TEXT,
    Atom,
    AtomKind,
    Check,
    Choice,
    Leaf,
    LeafField,
    LeafKind,
    LeafSpec,
    Literal,
    Sign,
    ValueTest,
    key_text,
    need_key,
    pattern_text,
    unquoted,
)
from turnout.conditions.pattern import ANY, Piece
from turnout.conditions.regex import check_regex, regex_searcher, required_texts

if TYPE_CHECKING:
    from turnout.conditions.text import ConditionReader

REGEX: Final = 5
"""Rank of the atom that a regular expression has a match."""


@dataclass(frozen=True, slots=True)
class Regex(Leaf):
    """True when a regular expression of RE2 has a match anywhere in the key's value.

    Case and lines are up to its flags, as in ``(?i)``. It takes ``google-re2``, the extra ``turnout[regex]``.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(Regex("cmd", "-e(nc)? [A-Z]"), {"cmd": text}) for text in ("sh -e A", "sh -enc B", "sh -en C")]
    [True, True, False]
    """

    key: str
    pattern: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        need_key(self.key)
        check_regex(self.pattern)

    def holds(self, value: str) -> bool:
        """Return True if the expression has a match in a value."""
        return regex_searcher(self.pattern)(value)

    def text(self) -> str:
        """Return the leaf as text."""
        return f"{key_text(self.key)}=~{pattern_text(self.pattern)}"

    def check(self) -> Check:
        """Return the leaf as data."""
        return Check(self.key, "re", self.pattern, negated=self.negated)

    def anchors(self) -> Iterator[Anchor]:
        """Yield the runs of characters that each match has."""
        return (Anchor(self.key, kind, text) for kind, texts in _lookups(self.check(), None) for text in texts)

    def literals(self) -> tuple[Literal, ...]:
        """Return the atom that the expression has a match."""
        return ((Atom(self.key, REGEX, text=self.pattern), True),)


def regex(key: str, pattern: str) -> Regex:
    """True when a regular expression of RE2 has a match anywhere in the key's value; see `Regex`.

    >>> from turnout.conditions import evaluate
    >>> evaluate(regex("path", "(?i)[.](exe|dll)$"), {"path": "C:/A.EXE"})
    True
    """
    return Regex(key, pattern)


def _between_any(texts: Iterable[str]) -> tuple[Piece, ...]:
    """Return the pieces of a pattern that is true where all texts are, wherever in the value."""
    return (ANY, *(piece for text in texts for piece in (text, ANY)))


def _lookups(check: Check, _pieces: tuple[Piece, ...] | None) -> Lookups:
    required = required_texts(check.text)
    return lookups_of_pieces(_between_any(required.texts), False, required.folded)


def _read(reader: ConditionReader, key: str, _sign: str) -> Regex:
    return Regex(key, unquoted(reader.require(PATTERN, "a regular expression")))


REGEX_LEAF: Final = LeafSpec(
    Regex,
    (LeafKind("regexCondition", Regex, (LeafField("regex", "pattern", TEXT, ""),)),),
    signs=(Sign("=~", _read),),
    tests=(ValueTest("re", 12, lambda check, value: regex_searcher(check.text)(value), _lookups),),
    atoms=(AtomKind(REGEX, lambda atom, value: regex_searcher(atom.text)(value)),),
    choices={"regex": Choice("matches the expression", Regex)},
)
