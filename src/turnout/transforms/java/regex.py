r"""Java's regular expressions in Python: what ``java.util.regex`` answers, without a JVM.

Python's ``re`` differs in much (nested classes, possessive quantifiers, ``\Q…\E``, ``\p{…}``, what ends a line). A
pattern is translated for the package ``regex``, which has all needed features, and a time limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from turnout.base.deferred import regex
from turnout.errors import RecordError
from turnout.transforms.java.regex_characters import JavaRegexError
from turnout.transforms.java.regex_translator import JavaRegexReader

SECONDS = 1.0
"""Maximum seconds for matching one text; a pattern that needs longer fails the record."""

LONGEST = 65_536
"""Maximum length of a text in characters: NATS and Kafka have no longer topics."""

_GROUP_NAME = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}")
_ILLEGAL = "java.lang.IllegalArgumentException"


def check_java_regex(pattern: str) -> None:
    """Do nothing if Java can compile *pattern*.

    Raises:
        JavaRegexError: when it cannot.
    """
    JavaRegex.of(pattern)


Found = TypeVar("Found")


class JavaRegex:
    """A Java pattern, ready to run.

    Args:
        pattern: as ``java.util.regex`` takes it.

    Raises:
        JavaRegexError: when Java cannot compile it.
    """

    def __init__(self, pattern: str) -> None:
        reader = JavaRegexReader(pattern)
        self.pattern = pattern
        self.groups = reader.groups
        self.names = reader.names
        self._compiled = _compiled(reader.written, pattern)

    @classmethod
    def of(cls, pattern: str) -> JavaRegex:
        """Return the pattern, compiled once."""
        return _cached(pattern)

    def matches(self, text: str) -> bool:
        """Return True if the whole of *text* matches (``Matcher.matches``).

        Raises:
            RecordError: when it takes too long.
        """
        return self._bounded(self._compiled.fullmatch, text) is not None

    def replaced(self, text: str, replacement: str) -> str:
        """Return the text with the first find replaced (``Matcher.replaceFirst``).

        Raises:
            RecordError: when it takes too long, or Java cannot use the replacement with this pattern.
        """
        match = self._bounded(self._compiled.search, text)
        if match is None:
            return text
        parts = [part if isinstance(part, str) else match.group(part) or "" for part in self._parts(replacement)]
        return "".join([text[: match.start()], *parts, text[match.end() :]])

    def check_replacement(self, replacement: str) -> None:
        """Do nothing if `replaced` can use the replacement.

        Raises:
            RecordError: when it names a group that the pattern does not have, or ends in the middle of something.
        """
        self._parts(replacement)

    def _bounded(self, find: Callable[..., Found], text: str) -> Found:
        if len(text) > LONGEST:
            raise RecordError(f"a text of {len(text)} characters is too long to be matched: more than {LONGEST}")
        try:
            return find(text, timeout=SECONDS)
        except TimeoutError:
            raise RecordError(f"{self.pattern!r} was matched for more than {SECONDS:g} s") from None

    def _parts(self, replacement: str) -> list[str | int]:
        """Return the replacement as texts and group numbers."""
        parts: list[str | int] = []
        at = 0
        while at < len(replacement):
            char = replacement[at]
            at += 1
            if char == "\\":
                if at == len(replacement):
                    raise RecordError("character to be escaped is missing", _ILLEGAL)
                parts.append(replacement[at])
                at += 1
            elif char == "$":
                group, at = self._group(replacement, at)
                parts.append(group)
            else:
                parts.append(char)
        return parts

    def _group(self, replacement: str, at: int) -> tuple[int, int]:
        """Return the group number after a ``$``, and where it ends: as many digits as still name a group."""
        named = _GROUP_NAME.match(replacement, at)
        if named:
            if named[1] not in self.names:
                raise RecordError(f"No group with name {{{named[1]}}}", _ILLEGAL)
            return self.names[named[1]], named.end()
        digits = re.compile(r"[0-9]+").match(replacement, at)
        if digits is None:
            raise RecordError("Illegal group reference", _ILLEGAL)
        group = int(digits[0][0])
        if group > self.groups:
            raise RecordError(f"No group {group}", "java.lang.IndexOutOfBoundsException")
        at += 1
        for digit in digits[0][1:]:
            if group * 10 + int(digit) > self.groups:
                break
            group = group * 10 + int(digit)
            at += 1
        return group, at


_cached = lru_cache(maxsize=1024)(JavaRegex)


def _compiled(written: str, pattern: str) -> Any:
    try:
        return regex.compile(written, regex.V1)
    except (regex.error, RecursionError) as error:
        raise JavaRegexError(f"{pattern!r} cannot be run here: {error}") from None
