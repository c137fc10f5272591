r"""Upper bound of a Java regular expression's matches, as patterns with ``*`` and ``?``.

Only what topics are matched by is understood: texts, ``.``, classes, groups, alternatives and repetitions. Where there
is anything else, the answer is that anything may match.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Final

from turnout.conditions.pattern import ANY, ONE, Wildcard
from turnout.engine.subject_bounds.narrow import Glob

_MAX_ALTERNATIVES: Final = 32
"""This many alternatives are followed."""

_REPEATED: Final = re.compile(r"(?:([*+?])|\{\d+(?:,\d*)?\})[?+]?")
_OPENED: Final = re.compile(r"\((?:\?:|\?<[A-Za-z][A-Za-z0-9]*>|(?!\?))")
_CLASS: Final = re.compile(r"\[\^?(?:\\[^QEpPxuc0-9]|\\[0-9]|[^\[\]\\&])+\]")
_GROUP: Final = re.compile(r"\$(?:\d+|\{[A-Za-z][A-Za-z0-9]*\})")


class _UnknownError(Exception):
    """Raised at regular expression syntax that is not supported."""


def regex_globs(pattern: str) -> list[Glob]:
    """Return patterns such that one of them matches each text that *pattern* matches as a whole."""
    reader = _RegexReader(pattern)
    try:
        globs = reader.alternatives()
        return globs if reader.at == len(pattern) else [(ANY,)]
    except _UnknownError:
        return [(ANY,)]


def replacement_glob(replacement: str) -> Glob:
    """Return a pattern for the results of a replacement, followed by any text: ``find`` may match only a prefix."""
    glob: list[str | Wildcard] = []
    at = 0
    while at < len(replacement):
        group = _GROUP.match(replacement, at)
        if group is not None:
            glob.append(ANY)
            at = group.end()
        else:
            at += replacement[at] == "\\" and at + 1 < len(replacement)
            glob.append(replacement[at])
            at += 1
    return (*glob, ANY)


class _RegexReader:
    """Reads an expression from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0

    def alternatives(self) -> list[Glob]:
        """Read alternatives up to the end or a closing bracket."""
        globs = self._sequence()
        while self._peek() == "|":
            self.at += 1
            globs += self._sequence()
        return _limited(globs)

    def _peek(self) -> str:
        return self._pattern[self.at : self.at + 1]

    def _sequence(self) -> list[Glob]:
        globs: list[Glob] = [()]
        while self._peek() not in ("", "|", ")"):
            globs = _limited([before + after for before, after in product(globs, self._repeated())])
        return globs

    def _repeated(self) -> list[Glob]:
        if self._peek() in ("^", "$"):
            # They match places, and no characters.
            self.at += 1
            atom: list[Glob] = [()]
        else:
            atom = self._atom()
        repeated = _REPEATED.match(self._pattern, self.at)
        if repeated is None:
            return atom
        self.at = repeated.end()
        if _REPEATED.match(self._pattern, self.at):
            raise _UnknownError
        return [(ONE, ANY)] if repeated[1] == "+" and atom == [(ONE,)] else [(ANY,)]

    def _atom(self) -> list[Glob]:
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "[":
            class_ = _CLASS.match(self._pattern, self.at)
            if class_ is None:
                raise _UnknownError
            self.at = class_.end()
            return [(ONE,)]
        self.at += 1
        if character == "\\":
            return [self._escaped()]
        if character in "*+?{}":
            raise _UnknownError
        return [(ONE,)] if character == "." else [(character,)]

    def _group(self) -> list[Glob]:
        opened = _OPENED.match(self._pattern, self.at)
        if opened is None:
            raise _UnknownError
        self.at = opened.end()
        globs = self.alternatives()
        if self._peek() != ")":
            raise _UnknownError
        self.at += 1
        return globs

    def _escaped(self) -> Glob:
        character = self._peek()
        self.at += 1
        if character and character in "dDwWsS":
            return (ONE,)
        if not character or character.isalnum() or not character.isascii():
            raise _UnknownError
        return (character,)


def _limited(globs: list[Glob]) -> list[Glob]:
    if len(globs) > _MAX_ALTERNATIVES:
        raise _UnknownError
    return globs
