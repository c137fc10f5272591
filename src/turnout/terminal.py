"""Text output for terminals, without the characters that control a terminal or reorder what it shows."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Unicode's Bidi_Control: U+202E reverses the text behind it, also that of the next line."""

_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}\u2028\u2029\ud800-\udfff]")
"""Controls of both ranges (a terminal takes U+009B for ESC [), line separators, and surrogates, which UTF-8 lacks."""

_UNSAFE_IN_LINE = re.compile(f"\n|{_UNSAFE.pattern}")


def printable(text: str) -> str:
    r"""Escape the characters that control a terminal; line breaks and tabs stay.

    >>> printable("\x1b]0;title\x07 of \u202eabc\n")
    '\\x1b]0;title\\x07 of \\u202eabc\n'
    """
    return _UNSAFE.sub(_escaped, text)


def printable_lines(lines: Iterable[str]) -> str:
    r"""Join lines; a line break within one of them is escaped, so that no value can forge a line.

    >>> printable_lines(["topic a", "reason: b\ntopic c"])
    'topic a\nreason: b\\ntopic c'
    """
    return "\n".join(_UNSAFE_IN_LINE.sub(_escaped, line) for line in lines)


def json_text(value: object, *, indent: int | None = None, default: Callable[[object], object] | None = None) -> str:
    r"""Return JSON with readable letters, in which the same characters are escaped.

    >>> json_text({"name": "Größe\x9b31m"})
    '{"name": "Größe\\u009b31m"}'
    """
    return escaped_json(json.dumps(value, indent=indent, default=default, ensure_ascii=False))


def escaped_json(text: str) -> str:
    """Escape the same characters in JSON; outside of its strings there are none."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_on_terminal(text: str) -> str:
    """Return a text as it is for a program that reads standard output, and printable on a terminal."""
    return printable(text) if sys.stdout.isatty() else text


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
