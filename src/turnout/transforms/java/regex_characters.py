r"""Reader of single characters in a ``java.util.regex`` pattern: escapes, and classes in brackets.

Each is written as the members of a class of the package ``regex`` (V1), whose sets can be nested, cut and negated.
"""

from __future__ import annotations

import re
import unicodedata

from turnout.transforms.java.regex_classes import ESCAPES, UNICODE_ESCAPES, ranges, set_of_property


class JavaRegexError(ValueError):
    """Raised when Java would refuse the pattern; the message gives the reason and the position."""


_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}
_CODES = {
    "x": (re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\}"), "illegal hexadecimal escape", 16),
    "u": (re.compile(r"([0-9A-Fa-f]{4})()"), "illegal Unicode escape", 16),
    "0": (re.compile(r"([0-3]?[0-7]{1,2})()"), "illegal octal escape", 8),
}
_PROPERTY = re.compile(r"\{([^{}]+)\}|([A-Za-z])")
_CHARACTER_NAME = re.compile(r"\{([^}]+)\}")
_BLANKS = " \t\n\x0b\f\r"
_MAX_DEPTH = 200
"""Maximum nesting of groups and classes."""


class CharacterReader:
    """A place in a pattern, and the reading of one character or set from there.

    Args:
        text: the pattern, without quotes.

    Attributes:
        text: the same.
        at: the next character.
        flags: flags in effect at this position.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.flags: frozenset[str] = frozenset()
        self._depth = 0

    def error(self, reason: str) -> JavaRegexError:
        """Return the error for a mistake at the current offset."""
        return JavaRegexError(f"{reason} near index {self.at} of {self.text!r}")

    def peek(self, count: int = 1) -> str:
        """Return the next characters, fewer at the end."""
        return self.text[self.at : self.at + count]

    def deeper(self, construct: str) -> None:
        """Note that one more group or class is open.

        Raises:
            JavaRegexError: too many are.
        """
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error(f"{construct} nest deeper than {_MAX_DEPTH}")

    def shallower(self) -> None:
        """Note that a group or class is closed."""
        self._depth -= 1

    def skip_comments(self) -> None:
        """Pass over what means nothing under the flag ``x``: blanks, and ``#`` with the rest of its line."""
        if "x" not in self.flags:
            return
        ends = "\n" if "d" in self.flags else "\n\r\x85\u2028\u2029"
        while (char := self.peek()) and (char in _BLANKS or char == "#"):
            self.at += 1
            if char == "#":
                while self.peek() and self.peek() not in ends:
                    self.at += 1

    @property
    def sets(self) -> dict[str, str]:
        r"""The sets of ``\w`` and its like, as the flag ``U`` has them."""
        return UNICODE_ESCAPES if "U" in self.flags else ESCAPES

    def escaped(self) -> tuple[str | None, int]:
        """Return the set or the one character that an escape is, in a class or outside."""
        self.at += 1
        char = self.peek()
        if not char:
            raise self.error("unexpected end after a backslash")
        self.at += 1
        if char.lower() in ESCAPES and char.isascii():
            members = self.sets[char.lower()]
            return (members if char.islower() else f"^{members}"), 0
        if char in "pP":
            return self._property(negated=char == "P"), 0
        if char in _CONTROLS:
            return None, _CONTROLS[char]
        if char in _CODES:
            return None, self._code(char)
        if char == "c":
            if not self.peek():
                raise self.error("illegal control escape")
            self.at += 1
            return None, ord(self.text[self.at - 1]) ^ 64
        if char == "N":
            return None, self._named_character()
        if char.isascii() and char.isalnum():
            raise self.error(f"illegal escape \\{char}")
        return None, ord(char)

    def _need(self, pattern: re.Pattern[str], reason: str) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.error(reason)
        self.at = match.end()
        return match

    def _code(self, char: str) -> int:
        pattern, reason, base = _CODES[char]
        match = self._need(pattern, reason)
        point = int(match[1] or match[2], base)
        if point > 0x10FFFF:
            raise self.error(reason)
        low = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})").match(self.text, self.at)
        if char == "u" and 0xD800 <= point < 0xDC00 and low is not None:
            self.at = low.end()
            return 0x10000 + ((point - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        return point

    def _named_character(self) -> int:
        name = self._need(_CHARACTER_NAME, "illegal character name")[1]
        try:
            return ord(unicodedata.lookup(name))
        except (KeyError, TypeError):
            raise self.error(f"unknown character name {name!r}") from None

    def _property(self, *, negated: bool) -> str:
        match = self._need(_PROPERTY, "bad character property")
        name = match[1] or match[2]
        members = set_of_property(name, any_case="i" in self.flags, unicode="U" in self.flags)
        if members is None:
            raise self.error(f"unknown character property {name!r}")
        return f"^[{members}]" if negated else members

    # --- classes ------------------------------------------------------------------------------------------------------

    def character_class(self) -> str:
        """Return the set of a class, from its ``[`` to its ``]``."""
        begun = self.at
        self.at += 1
        negated = self.peek() == "^"
        self.at += negated
        self.deeper("classes")
        members = self._members(begun)
        self.shallower()
        self.at += 1
        return f"^[{members}]" if negated else members

    def _members(self, begun: int) -> str:
        """Return the members up to the ``]``, which is not consumed: unions, intersected by ``&&``."""
        united = ""
        first = True
        while True:
            self.skip_comments()
            char = self.peek()
            if not char:
                self.at = begun
                raise self.error("unclosed character class")
            if char == "]" and not first:
                return united
            first = False
            if char == "[":
                united += f"[{self.character_class()}]"
            elif self.peek(2) == "&&":
                self.at += 2
                right = self._right_side(begun)
                if not united and not right:
                    raise self.error("bad class syntax")
                # If one side is empty, the other is unchanged.
                united = f"[[{united}]&&[{right}]]" if united and right else united or right
            else:
                united += self._range()

    def _right_side(self, begun: int) -> str:
        """Return the right operand of ``&&``: up to the next ``&`` after a nested class, else the rest."""
        right = ""
        while True:
            self.skip_comments()
            char = self.peek()
            if char in ("]", "&"):
                return right
            if char == "[":
                right += f"[{self.character_class()}]"
            elif not char:
                self.at = begun
                raise self.error("unclosed character class")
            else:
                right += self._members(begun)

    def _range(self) -> str:
        members, low = self._member()
        if members is not None:
            return f"[{members}]"
        high = low
        self.skip_comments()
        if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", "[", ""):
            self.at += 1
            self.skip_comments()
            members, high = self._member()
            if members is not None or high < low:
                raise self.error("illegal character range")
        return ranges([(low, high)], any_case="i" in self.flags)

    def _member(self) -> tuple[str | None, int]:
        char = self.peek()
        if char == "\\":
            return self.escaped()
        self.at += 1
        return None, ord(char)
