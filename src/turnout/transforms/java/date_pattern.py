"""The pattern language of ``java.text.SimpleDateFormat``, read into tokens."""

from __future__ import annotations

from dataclasses import dataclass

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

NUMERIC = frozenset("yYdDFwWuHkKhmsS")
"""Letters that are numbers however often they are repeated; ``M`` and ``L`` are up to twice."""

_LETTERS = frozenset("GyYMLdDFwWEuaHkKhmsSzZX")


class JavaTimeError(ValueError):
    """Raised when Java would refuse the pattern."""


@dataclass(frozen=True, slots=True)
class Letters:
    """A run of one pattern letter, as ``yyyy``."""

    letter: str
    count: int

    @property
    def is_number(self) -> bool:
        """True if the field is printed and parsed as a number."""
        return self.letter in NUMERIC or (self.letter in "ML" and self.count < 3)


Token = Letters | str
"""A run of letters, or text that stands for itself."""


def parse_java_time(pattern: str) -> tuple[Token, ...]:
    """Return the tokens of *pattern*; neighbouring literal texts are one token.

    Raises:
        JavaTimeError: for a letter without meaning, a quote that is not closed, or ``XXXX``.
    """
    tokens: list[Token] = []
    literal: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            text, at = _quoted(pattern, at)
            literal.append(text)
        elif char.isascii() and char.isalpha():
            end = at
            while end < len(pattern) and pattern[end] == char:
                end += 1
            _flush(tokens, literal)
            tokens.append(_letters(char, end - at))
            at = end
        else:
            literal.append(char)
            at += 1
    _flush(tokens, literal)
    return tuple(tokens)


def _flush(tokens: list[Token], literal: list[str]) -> None:
    text = "".join(literal)
    if text:
        tokens.append(text)
    literal.clear()


def _letters(char: str, count: int) -> Letters:
    if char not in _LETTERS:
        raise JavaTimeError(f"illegal pattern character {char!r}")
    if char == "X" and count > 3:
        raise JavaTimeError(f"invalid ISO 8601 zone: {'X' * count}")
    return Letters(char, count)


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """Return the text of the quotes that open at *at*, and where they end; two quotes in a row are one quote."""
    if pattern.startswith("''", at):
        return "'", at + 2
    text: list[str] = []
    at += 1
    while at < len(pattern):
        if pattern.startswith("''", at):
            text.append("'")
            at += 2
        elif pattern[at] == "'":
            return "".join(text), at + 1
        else:
            text.append(pattern[at])
            at += 1
    raise JavaTimeError("unterminated quote")
