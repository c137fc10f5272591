"""Texts that every value with a match of a regular expression contains: messages are looked up by them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_MAX_OPEN: Final = 100
"""Nested groups; RE2 itself takes a thousand."""

_FLAGS = re.compile(r"\(\?([imsU]+)\)")
_QUANTIFIER = re.compile(r"[?*+]\??|\{(\d+)(,\d*)?\}\??")
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[pP](?:\{[^}]*\}|.)|[0-7]{1,3}|.)", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?::|P?<\w+>))?")
_UNFOLDED = frozenset("s")
"""Letters that RE2 also takes for another one without case, which `fold` keeps apart: ``ſ`` (U+017F)."""


@lru_cache(maxsize=4096)
def required_texts(pattern: str) -> tuple[tuple[str, ...], bool]:
    """Return texts that every value with a match contains, and whether they are in the folded value.

    There may be more such texts than are found; unknown constructs are skipped.

    >>> required_texts("power(shell|cat)?[.]exe -e[nc]* secret+")
    (('power', 'exe -e', ' secret'), False)
    >>> required_texts("(?i)Encode")
    (('encode',), True)
    >>> required_texts("one|other")
    ((), False)
    """
    flags = _FLAGS.match(pattern)
    folded = flags is not None and "i" in flags[1]
    reader = _RequiredReader(pattern, flags.end() if flags else 0, folded)
    try:
        texts = reader.sequence(0)
    except (IndexError, ValueError):
        return (), folded
    return (tuple(dict.fromkeys(texts)), folded) if reader.at == len(pattern) else ((), folded)


class _RequiredReader:
    """Reads a valid expression from left to right; *at* is the next character."""

    def __init__(self, pattern: str, at: int, folded: bool) -> None:
        self._pattern = pattern
        self._folded = folded
        self.at = at

    def sequence(self, depth: int) -> list[str]:
        """Return the texts that an expression needs, up to its end or a closing parenthesis; none of alternatives."""
        if depth > _MAX_OPEN:
            raise ValueError
        texts: list[str] = []
        run, several = "", False
        while self.at < len(self._pattern) and self._pattern[self.at] != ")":
            if self._pattern[self.at] == "|":
                several = True
                self.at += 1
                texts, run = [*texts, run], ""
                continue
            literal, inner = self._item(depth)
            least, once = self._repeats()
            if literal and once:
                run += literal
                continue
            texts.append(run + literal if least else run)
            run = ""
            texts += inner if least else []
        texts.append(run)
        return [] if several else [text for text in texts if text]

    def _item(self, depth: int) -> tuple[str, list[str]]:
        """Return the character that an item is, or "", and the texts that it needs otherwise."""
        pattern, at = self._pattern, self.at
        character = pattern[at]
        if character == "(":
            return "", self._group(depth)
        for form in (_CLASS, _ESCAPE):
            match = form.match(pattern, at)
            if match:
                self.at = match.end()
                return self._escaped(match[0]), []
        if character == "[":
            raise ValueError
        self.at += 1
        return ("" if character in ".^$" else self._literal(character)), []

    def _group(self, depth: int) -> list[str]:
        match = _GROUP.match(self._pattern, self.at)
        if match is None or self._pattern.startswith("?", match.end()):
            # Flags inside an expression change the part behind them.
            raise ValueError
        self.at = match.end()
        texts = self.sequence(depth + 1)
        if self._pattern[self.at] != ")":
            raise ValueError
        self.at += 1
        return texts

    def _escaped(self, written: str) -> str:
        if written[0] == "\\" and len(written) == 2 and not written[1].isalnum():
            return self._literal(written[1])
        if written == "\\Q":
            raise ValueError
        return ""

    def _literal(self, character: str) -> str:
        if not self._folded:
            return character
        return character.lower() if character.isascii() and character.lower() not in _UNFOLDED else ""

    def _repeats(self) -> tuple[bool, bool]:
        """Skip a quantifier; return whether its item is needed at all, and whether exactly once."""
        match = _QUANTIFIER.match(self._pattern, self.at)
        if match is None:
            return True, True
        self.at = match.end()
        return (match[0][0] == "+" or int(match[1] or 0) > 0), False
