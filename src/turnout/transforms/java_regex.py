r"""Whether a text is a regular expression to Java; it is never run here, only checked.

``java.util.regex.Pattern`` and Python's ``re`` differ (nested classes, possessive quantifiers, ``\Q…\E``,
``\p{…}``), so a chain that is checked without a JVM needs its own reader of the syntax.
"""

from __future__ import annotations

import re

__all__ = ["JavaRegexError", "check_java_regex", "groups_of"]


class JavaRegexError(ValueError):
    """Raised when Java would refuse the pattern; the message gives the reason and the position."""


_QUANTIFIER = re.compile(r"[*+?]|\{\d+(,\d*)?\}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_FLAGS = re.compile(r"[idmsuxU]*(-[idmsuxU]*)?")
_LETTER_ESCAPES = frozenset("tnrfaedDhHsSvVwWbBAGZzRXQENpPxu0ckN")
_PROPERTY = re.compile(r"\{\^?(?:(?:Is|In|is|in)?[A-Za-z0-9_ -]+|[A-Za-z_]+=[A-Za-z0-9_ -]+)\}|[A-Za-z]")


def check_java_regex(pattern: str) -> None:
    """Do nothing if Java can compile *pattern*.

    Raises:
        JavaRegexError: when it cannot.
    """
    _Reader(pattern).read()


def groups_of(pattern: str) -> tuple[int, dict[str, int]]:
    """How many capturing groups *pattern* has, and the numbers of those that have a name."""
    reader = _Reader(pattern)
    reader.read()
    return reader.groups, reader.names


class _Reader:
    """One pass over a pattern, by recursive descent, that keeps nothing but groups and names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.groups = 0
        self.names: dict[str, int] = {}

    def read(self) -> None:
        self._alternatives()
        if self.at < len(self.text):
            raise self._error("unmatched closing ')'")

    def _error(self, reason: str) -> JavaRegexError:
        return JavaRegexError(f"{reason} near index {self.at} of {self.text!r}")

    def _peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def _alternatives(self) -> None:
        can_repeat = False
        while self.at < len(self.text):
            char = self._peek()
            if char == ")":
                return
            if char == "|":
                self.at += 1
                can_repeat = False
            elif char in "*+?":
                if not can_repeat:
                    raise self._error(f"dangling meta character {char!r}")
                self._quantifier()
                can_repeat = False
            elif char == "{":
                if not can_repeat and self.text[self.at - 1 : self.at] != "}":
                    raise self._error("illegal repetition")
                self._quantifier()
            else:
                self._atom(char)
                can_repeat = True

    def _quantifier(self) -> None:
        found = _QUANTIFIER.match(self.text, self.at)
        if found is None:
            raise self._error("illegal repetition")
        if found.group().startswith("{"):
            low, _, high = found.group()[1:-1].partition(",")
            if int(low) >= 1 << 31 or (high and not int(low) <= int(high) < 1 << 31):
                raise self._error("illegal repetition range")
        self.at = found.end()
        if self._peek() in ("?", "+") and self._peek():
            self.at += 1

    def _atom(self, char: str) -> None:
        if char == "(":
            self._group()
        elif char == "[":
            self._class()
        elif char == "\\":
            self._escape(in_class=False)
        else:
            self.at += 1

    def _group(self) -> None:
        self.at += 1
        if self._peek() == "?":
            self.at += 1
            if self._group_head():
                return
        else:
            self.groups += 1
        self._alternatives()
        if self._peek() != ")":
            raise self._error("unclosed group")
        self.at += 1

    def _group_head(self) -> bool:
        """Read what follows ``(?``; true if that was the whole group, as in ``(?i)``."""
        for head in ("<=", "<!", ":", "=", "!", ">"):
            if self.text.startswith(head, self.at):
                self.at += len(head)
                return False
        if self._peek() == "<":
            self.at += 1
            self._name()
            return False
        flags = _FLAGS.match(self.text, self.at)
        self.at = flags.end() if flags else self.at
        if self._peek() == ")":
            self.at += 1
            return True
        if self._peek() != ":":
            raise self._error("unknown inline modifier or group type")
        self.at += 1
        return False

    def _name(self) -> None:
        found = _NAME.match(self.text, self.at)
        if found is None or not self.text.startswith(">", found.end()):
            raise self._error("bad group name")
        if found.group() in self.names:
            raise self._error(f"the group name {found.group()!r} is used twice")
        self.groups += 1
        self.names[found.group()] = self.groups
        self.at = found.end() + 1

    def _escape(self, *, in_class: bool) -> None:
        self.at += 1
        char = self._peek()
        if not char:
            raise self._error("unexpected end after a backslash")
        self.at += 1
        if char == "Q":
            end = self.text.find("\\E", self.at)
            self.at = len(self.text) if end < 0 else end + 2
        elif char in "pP":
            self._need(_PROPERTY, "bad character property")
        elif char == "x":
            self._need(re.compile(r"[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]+\}"), "illegal hexadecimal escape")
        elif char == "u":
            self._need(re.compile(r"[0-9A-Fa-f]{4}"), "illegal Unicode escape")
        elif char == "0":
            self._need(re.compile(r"[0-3]?[0-7]{1,2}"), "illegal octal escape")
        elif char == "c":
            self._need(re.compile(r"(?s)."), "illegal control escape")
        elif char == "N":
            self._need(re.compile(r"\{[^}]+\}"), "illegal character name")
        elif char == "k":
            self._reference()
        elif char.isascii() and char.isalpha() and char not in _LETTER_ESCAPES:
            raise self._error(f"illegal escape \\{char}")
        elif in_class and char in "bBAGZzRX":
            raise self._error(f"illegal escape \\{char} in a character class")

    def _reference(self) -> None:
        found = re.compile(r"<([A-Za-z][A-Za-z0-9]*)>").match(self.text, self.at)
        if found is None or found.group(1) not in self.names:
            raise self._error("a reference to a group that is not defined")
        self.at = found.end()

    def _need(self, wanted: re.Pattern[str], reason: str) -> None:
        found = wanted.match(self.text, self.at)
        if found is None:
            raise self._error(reason)
        self.at = found.end()

    def _class(self) -> None:
        begun = self.at
        self.at += 1
        if self._peek() == "^":
            self.at += 1
        first = True
        while True:
            char = self._peek()
            if not char:
                self.at = begun
                raise self._error("unclosed character class")
            if char == "]" and not first:
                self.at += 1
                return
            if char == "[":
                self._class()
            elif self._peek(2) == "&&":
                self.at += 2
            else:
                self._class_range(char)
            first = False

    def _class_range(self, char: str) -> None:
        self._class_member(char)
        if self._peek() != "-" or self.text[self.at + 1 : self.at + 2] in ("]", "[", ""):
            return
        self.at += 1
        high = self._peek()
        self._class_member(high)
        if "\\" not in (char, high) and high < char:
            raise self._error("illegal character range")

    def _class_member(self, char: str) -> None:
        if char == "\\":
            self._escape(in_class=True)
        else:
            self.at += 1
