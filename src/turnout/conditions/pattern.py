r"""The kiwi pattern syntax: ``*`` any run of characters, ``?`` exactly one, ``\`` takes the next one as it is.

A character is a Unicode code point. *Kiwi bird* is the whole syntax; *kiwi tree* is the part of it that
the seed's index could hold: ``?`` anywhere, ``*`` only at the end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from turnout.errors import ConditionError


class Wildcard(Enum):
    """The two characters with a meaning."""

    ANY = "*"
    ONE = "?"


ANY, ONE = Wildcard.ANY, Wildcard.ONE

Piece: TypeAlias = str | Wildcard
"""A stretch of literal text, or a wildcard."""


def check_pattern(pattern: str, *, tree: bool = False) -> None:
    """Refuse invalid patterns.

    Raises:
        ConditionError: for a backslash with nothing after it, and in the *tree* dialect for a ``*`` before
            the end.
    """
    if "\\" in pattern or (tree and "*" in pattern[:-1]):
        parse_pattern(pattern, tree=tree)


@lru_cache(maxsize=8192)
def parse_pattern(pattern: str, *, tree: bool = False) -> tuple[Piece, ...]:
    """Return the pattern's pieces: no two texts in a row, and no two ``*`` in a row."""
    return pieces_of(pattern, tree=tree)


def pieces_of(pattern: str, *, tree: bool = False) -> tuple[Piece, ...]:
    """Parse a pattern like `parse_pattern`, without a cache; for patterns that are used once."""
    if not tree and "\\" not in pattern:
        return tuple([_PIECES.get(piece[0], piece) for piece in _wildcards(pattern) if piece])
    return _parse_by_character(pattern, tree=tree)


def _parse_by_character(pattern: str, *, tree: bool) -> tuple[Piece, ...]:
    """Return the pieces of a pattern with escapes, or of the kiwi tree dialect."""
    pieces: list[Piece] = []
    text: list[str] = []

    def end_text() -> None:
        if text:
            pieces.append("".join(text))
            text.clear()

    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            position += 1
            if position == len(pattern):
                problem = "ends in a backslash: it escapes the character after it"
                raise ConditionError(f"the pattern {pattern!r} {problem}", text=pattern, position=position - 1)
            text.append(pattern[position])
        elif character == "?":
            end_text()
            pieces.append(ONE)
        elif character == "*":
            if tree and position != len(pattern) - 1:
                problem = f"has a '*' at {position}: kiwi tree takes one only at the end; kiwi bird takes it anywhere"
                raise ConditionError(f"the pattern {pattern!r} {problem}", text=pattern, position=position)
            end_text()
            if not pieces or pieces[-1] is not ANY:
                pieces.append(ANY)
        else:
            text.append(character)
        position += 1
    end_text()
    return tuple(pieces)


_wildcards = re.compile(r"(\*+|\?)").split

_PIECES: dict[str, Piece] = {"*": ANY, "?": ONE}


def subject_pattern(subject: str) -> str:
    """Return a pattern that all subjects of a NATS filter match, and some others: a star here passes dots.

    >>> subject_pattern("orders.*.new"), subject_pattern("orders.>")
    ('orders.?*.new', 'orders.?*')
    """
    return ".".join("?*" if token in ("*", ">") else escape(token) for token in subject.split("."))


def escape(text: str) -> str:
    """Return the pattern that matches *text* and nothing else."""
    return re.sub(r"([\\*?])", r"\\\1", text)


def fold(text: str) -> str:
    """Return the text as it is compared where case does not matter.

    Lower case, with the final sigma as any other: Python and Java agree on this for every character.
    """
    return text.lower().replace("ς", "σ")


@lru_cache(maxsize=65536)
def pattern_matcher(pattern: str, *, ignore_case: bool = False) -> Callable[[str], bool]:
    """Return the test of a whole value against the pattern; with *ignore_case*, of a folded value.

    One pass over the value: the text between two ``*`` is searched for from the end of the part before it. The first
    match is as good as any other, so there is no backtracking.
    """
    parts: list[list[Piece]] = [[]]
    for piece in parse_pattern(pattern):
        if piece is ANY:
            parts.append([])
        else:
            parts[-1].append(fold(piece) if ignore_case and isinstance(piece, str) else piece)
    first, last = _Part(parts[0]), _Part(parts[-1])
    if len(parts) == 1:
        return first.text.__eq__ if first.text is not None else lambda value: first.is_all(value)
    if len(parts) == 2 and not parts[1] and (text := first.text) is not None:
        return lambda value: value.startswith(text)
    middle = [_Part(part).find for part in parts[1:-1]]

    def matches_all(value: str) -> bool:
        start_at, end = first.length, len(value) - last.length
        if end < start_at or not first.is_at(value, 0) or not last.is_at(value, end):
            return False
        for find in middle:
            start_at = find(value, start_at, end)
            if start_at < 0:
                return False
        return True

    return matches_all


_MOST_FINDS = 32
"""Failed matches of a part's text in one value, after which a regular expression takes less time."""


class _Part:
    """Part of a pattern without ``*``, which so has a fixed length.

    It is compared without a regular expression: a thousand of these take a tenth of a second to compile.

    Attributes:
        length: characters of a value that it takes.
        text: the part if it has no wildcard, else None.
    """

    __slots__ = ("_longest", "_pieces", "_texts", "length", "text")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = tuple(pieces)
        self._texts: list[tuple[int, str]] = []
        self.length = 0
        for piece in pieces:
            if isinstance(piece, str):
                self._texts.append((self.length, piece))
            self.length += len(piece) if isinstance(piece, str) else 1
        whole = self._texts or [(0, "")]
        self.text = whole[0][1] if len(whole[0][1]) == self.length else None
        # It is looked for by its longest text.
        self._longest = max(whole, key=lambda own: len(own[1]))

    def is_all(self, value: str) -> bool:
        """Return True if it is the whole value."""
        return len(value) == self.length and self.is_at(value, 0)

    def is_at(self, value: str, start: int) -> bool:
        """Return True if its texts are in the value, from an offset with enough characters behind it."""
        for offset, text in self._texts:  # noqa: SIM110 - a generator takes longer
            if not value.startswith(text, start + offset):
                return False
        return True

    def find(self, value: str, start_at: int, end: int) -> int:
        """Return where its first find between two offsets ends; -1 for none."""
        length = self.length
        if end - start_at < length:
            return -1
        offset, longest = self._longest
        last = end - length + offset + len(longest)
        found = value.find(longest, start_at + offset, last)
        if self.text is None:
            finds = 0
            while found >= 0 and not self.is_at(value, found - offset):
                finds += 1
                if finds > _MOST_FINDS:
                    match = _regex_of(self._pieces).search(value, found - offset, end)
                    return -1 if match is None else match.end()
                found = value.find(longest, found + 1, last)
        return found - offset + length if found >= 0 else -1


@lru_cache(maxsize=256)
def _regex_of(part: tuple[Piece, ...]) -> re.Pattern[str]:
    """Compile a part as a regular expression, with at most one possible match at a position."""
    return re.compile("".join(re.escape(piece) if isinstance(piece, str) else "." for piece in part), re.DOTALL)


def lexemes(value: str) -> list[str]:
    r"""Return the value's words: maximal runs of letters, marks, decimal digits and ``_`` in Unicode's sense.

    That is Java's ``[\p{L}\p{M}\p{Nd}_]+``. Python's ``\w`` would split words at combining marks.
    """
    return _ASCII_WORDS.findall(value) if value.isascii() else value.translate(_only_words).split()


_ASCII_WORDS = re.compile(r"[A-Za-z0-9_]+")


class _OnlyWords(dict[int, int | str]):
    """Translation table that keeps characters of words and replaces others by spaces; filled on first use."""

    _LIMIT = 1 << 16

    def __missing__(self, code: int) -> int | str:
        if len(self) >= self._LIMIT:
            self.clear()
        in_words = code == ord("_") or unicodedata.category(chr(code)).startswith(("L", "M", "Nd"))
        translated = self[code] = code if in_words else " "
        return translated


_only_words = _OnlyWords()


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
