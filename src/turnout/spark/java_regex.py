r"""Java regular expressions on columns: whole matches, and the first find replaced.

Spark's functions find anywhere and replace everywhere, so patterns are anchored: ``\A(?:…)\z``. The group keeps
an alternation together, and ``\z`` does not forgive a line break at the end as ``$`` would.
"""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.transforms.java_regex import groups_of

__all__ = ["ReplacementError", "first_replaced", "matches_whole"]

_GROUP_NAME = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}")


class ReplacementError(ValueError):
    """Raised for a replacement that names a group that is not there, or ends in the middle of something.

    Attributes:
        exception: the class that Java throws when it replaces.
    """

    def __init__(self, message: str, exception: str) -> None:
        super().__init__(message)
        self.exception = exception


def matches_whole(text: Column, pattern: str) -> Column:
    """Whether the whole of *text* matches the Java *pattern*; null where the text is."""
    # A pattern in comments mode may end in a comment; the line break ends it, and means nothing in that mode.
    closed = f"{pattern}\n" if "(?" in pattern and "x" in pattern and "#" in pattern else pattern
    return text.rlike(rf"\A(?:{closed})\z")


def first_replaced(text: Column, pattern: str, replacement: str) -> Column:
    """The text with the first find of *pattern* replaced, as ``Matcher.replaceFirst`` does it.

    Raises:
        ReplacementError: when Java could not use the replacement with this pattern.
    """
    parts = _parts(replacement, *groups_of(pattern))
    regex = F.lit(pattern)
    made = [F.lit(part) if isinstance(part, str) else F.regexp_extract(text, pattern, part) for part in parts]
    begin = F.regexp_instr(text, regex)
    found = F.char_length(F.regexp_extract(text, pattern, 0))
    return F.concat(
        F.substring(text, F.lit(1), begin - 1), *made, F.substring(text, begin + found, F.char_length(text))
    )


def _parts(replacement: str, count: int, names: dict[str, int]) -> list[str | int]:
    """The replacement as texts and group numbers."""
    parts: list[str | int] = []
    at = 0
    while at < len(replacement):
        char = replacement[at]
        if char == "\\":
            if at + 1 == len(replacement):
                raise ReplacementError("character to be escaped is missing", "java.lang.IllegalArgumentException")
            parts.append(replacement[at + 1])
            at += 2
        elif char == "$":
            group, at = _group(replacement, at + 1, count, names)
            parts.append(group)
        else:
            parts.append(char)
            at += 1
    return parts


def _group(replacement: str, at: int, count: int, names: dict[str, int]) -> tuple[int, int]:
    """The group number after a ``$``, and where it ends: as many digits as still name a group."""
    named = _GROUP_NAME.match(replacement, at)
    if named:
        if named.group(1) not in names:
            raise ReplacementError(f"No group with name {{{named.group(1)}}}", "java.lang.IllegalArgumentException")
        return names[named.group(1)], named.end()
    digit = replacement[at : at + 1]
    if not (digit.isascii() and digit.isdigit()):
        raise ReplacementError("Illegal group reference", "java.lang.IllegalArgumentException")
    group = int(digit)
    if group > count:
        raise ReplacementError(f"No group {group}", "java.lang.IndexOutOfBoundsException")
    at += 1
    while replacement[at : at + 1].isascii() and replacement[at : at + 1].isdigit():
        longer = group * 10 + int(replacement[at])
        if longer > count:
            break
        group = longer
        at += 1
    return group, at
