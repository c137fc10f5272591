r"""Reads a ``java.util.regex`` pattern and writes the one of the package ``regex`` (V1) that means the same.

What differs is written out: classes are sets of characters, anchors are assertions over Java's line terminators, flags
are applied while reading. So the result needs no flag, and what Java refuses is refused here.
"""

from __future__ import annotations

import re
import unicodedata

from turnout.transforms.java_regex_classes import ESCAPES, UNICODE_ESCAPES, code, ranges, set_of_property

__all__ = ["JavaRegexError", "JavaRegexReader"]


class JavaRegexError(ValueError):
    """Raised when Java would refuse the pattern; the message gives the reason and the position."""


_QUANTIFIER = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_FLAGS = re.compile(r"([idmsuxU]*)(?:-([idmsuxU]*))?")
_ENDS = r"\n\r\x85\u2028\u2029"
_NOT_BETWEEN = r"(?!(?<=\r)\n)"
_DOLLAR = rf"(?:(?=(?:\r\n|[{_ENDS}])?\Z){_NOT_BETWEEN})"
_ANCHORS = {"A": r"\A", "G": r"\A", "z": r"\Z", "Z": _DOLLAR}
_UNIX_ANCHORS = _ANCHORS | {"Z": r"(?=\n?\Z)"}
_LINEBREAK = r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])"
_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}
_CODES = {
    "x": (re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\}"), "illegal hexadecimal escape", 16),
    "u": (re.compile(r"([0-9A-Fa-f]{4})()"), "illegal Unicode escape", 16),
    "0": (re.compile(r"([0-3]?[0-7]{1,2})()"), "illegal octal escape", 8),
}
_REFERENCE = re.compile(r"<([A-Za-z][A-Za-z0-9]*)>")
_BACK_REFERENCE = re.compile(r"\(\?i?:\\(\d+)\)")
_PROPERTY = re.compile(r"\{([^{}]+)\}|([A-Za-z])")
_CHARACTER_NAME = re.compile(r"\{([^}]+)\}")
_BLANKS = " \t\n\x0b\f\r"
_LARGEST = 1 << 31
_HEADS = ("<=", "<!", ":", "=", "!", ">")
_DEEPEST = 200
"""How deep groups and classes nest at most."""


class JavaRegexReader:
    """One pass over a pattern, by recursive descent.

    Attributes:
        groups: how many capturing groups there are.
        names: the numbers of those that have a name.
        written: the pattern for ``regex``.

    Raises:
        JavaRegexError: when Java cannot compile the pattern.
    """

    def __init__(self, pattern: str) -> None:
        self.text = _without_quotes(pattern)
        self.at = 0
        self.groups = 0
        self.names: dict[str, int] = {}
        self._flags: frozenset[str] = frozenset()
        self._depth = 0
        written = self._alternatives()
        if self.at < len(self.text):
            raise self._error("unmatched closing ')'")
        self.written = _BACK_REFERENCE.sub(self._existing, written)

    def _error(self, reason: str) -> JavaRegexError:
        return JavaRegexError(f"{reason} near index {self.at} of {self.text!r}")

    def _peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def _skip_comments(self) -> None:
        """Pass over what means nothing under the flag ``x``: blanks, and ``#`` with the rest of its line."""
        if "x" not in self._flags:
            return
        ends = "\n" if "d" in self._flags else "\n\r\x85\u2028\u2029"
        while (char := self._peek()) and (char in _BLANKS or char == "#"):
            self.at += 1
            if char == "#":
                while self._peek() and self._peek() not in ends:
                    self.at += 1

    # --- sequences, groups, quantifiers -------------------------------------------------------------------------------

    def _alternatives(self) -> str:
        parts: list[str] = []
        # The place of what a quantifier repeats; None where there is nothing to repeat.
        last: int | None = None
        while True:
            self._skip_comments()
            char = self._peek()
            if not char or char == ")":
                return "".join(parts)
            if char == "|":
                self.at += 1
                parts.append("|")
                last = None
            elif char in "*+?{":
                quantifier = self._quantifier(dangling=last is None)
                if last is not None:
                    parts[last] = f"(?:{parts[last]}){quantifier}"
                last = None
            else:
                parts.append(self._atom(char))
                last = len(parts) - 1 if parts[-1] else None

    def _quantifier(self, *, dangling: bool) -> str:
        """The quantifier as it is; one with a number repeats nothing, and is nothing, where nothing is before it."""
        match = _QUANTIFIER.match(self.text, self.at)
        if match is None:
            raise self._error("illegal repetition")
        text = match.group()
        if dangling and not text.startswith("{"):
            raise self._error(f"dangling meta character {text!r}")
        if text.startswith("{"):
            low, _, high = text[1:-1].partition(",")
            if int(low) >= _LARGEST or (high and not int(low) <= int(high) < _LARGEST):
                raise self._error("illegal repetition range")
        self.at = match.end()
        self._skip_comments()
        if (mode := self._peek()) and mode in "?+":
            self.at += 1
            return text + mode
        return text

    def _atom(self, char: str) -> str:
        if char == "(":
            return self._group()
        if char == "[":
            return self._in_any_case(f"[{self._class()}]")
        if char == "\\":
            return self._escape()
        self.at += 1
        if char == ".":
            return self._dot()
        if char in "^$":
            return self._anchor(char)
        return self._literal(ord(char))

    def _dot(self) -> str:
        if "s" in self._flags:
            return r"[\x00-\U0010ffff]"
        return r"[^\n]" if "d" in self._flags else f"[^{_ENDS}]"

    def _anchor(self, char: str) -> str:
        unix, several = "d" in self._flags, "m" in self._flags
        if char == "$":
            if not several:
                return _UNIX_ANCHORS["Z"] if unix else _DOLLAR
            return r"(?=\n|\Z)" if unix else rf"(?:(?=[{_ENDS}]|\Z){_NOT_BETWEEN})"
        if not several:
            return r"\A"
        # Java has no line that begins at the end of the text.
        return r"(?:(?:\A|(?<=\n))(?!\Z))" if unix else rf"(?:(?:\A|(?<=[{_ENDS}]))(?!\Z){_NOT_BETWEEN})"

    def _literal(self, point: int) -> str:
        if "i" not in self._flags:
            return f"[{code(point)}]"
        return self._in_any_case(f"[{ranges([(point, point)], any_case=True)}]")

    def _in_any_case(self, written: str) -> str:
        """What is in ASCII's two cases already, in those of all of Unicode under the flag ``u``."""
        return f"(?i:{written})" if "i" in self._flags and "u" in self._flags else written

    def _group(self) -> str:
        self.at += 1
        outer = self._flags
        opening = "("
        if self._peek() == "?":
            self.at += 1
            head = self._group_head()
            if head is None:
                # Flags alone hold to the end of the group that they stand in.
                return ""
            opening = head
        else:
            self.groups += 1
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"groups nest deeper than {_DEEPEST}")
        inside = self._alternatives()
        self._depth -= 1
        self._flags = outer
        if self._peek() != ")":
            raise self._error("unclosed group")
        self.at += 1
        return f"{opening}{inside})"

    def _group_head(self) -> str | None:
        """What follows ``(?``; None if that was the whole group, as in ``(?i)``."""
        for head in _HEADS:
            if self.text.startswith(head, self.at):
                self.at += len(head)
                return f"(?{head}"
        if self._peek() == "<":
            self.at += 1
            self._name()
            return "("
        flags = _FLAGS.match(self.text, self.at)
        assert flags is not None
        self.at = flags.end()
        self._flags = (self._flags | _implied(flags[1])) - frozenset(flags[2] or "")
        if self._peek() == ")":
            self.at += 1
            return None
        if self._peek() != ":":
            raise self._error("unknown inline modifier or group type")
        self.at += 1
        return "(?:"

    def _name(self) -> None:
        match = _NAME.match(self.text, self.at)
        if match is None or not self.text.startswith(">", match.end()):
            raise self._error("bad group name")
        if match.group() in self.names:
            raise self._error(f"the group name {match.group()!r} is used twice")
        self.groups += 1
        self.names[match.group()] = self.groups
        self.at = match.end() + 1

    # --- escapes ------------------------------------------------------------------------------------------------------

    def _escape(self) -> str:
        char = self.text[self.at + 1 : self.at + 2]
        if char and char in "bBAGZzRXk123456789":
            self.at += 2
            return self._assertion(char)
        members, point = self._escaped()
        return self._literal(point) if members is None else f"[{members}]"

    def _assertion(self, char: str) -> str:
        """An escape that stands for more than one character, or for none."""
        if char in "bB":
            return self._boundary(inside=char == "B")
        if char == "R":
            return _LINEBREAK
        if char == "X":
            return r"\X"
        if char == "k":
            match = _REFERENCE.match(self.text, self.at)
            if match is None or match.group(1) not in self.names:
                raise self._error("a reference to a group that is not defined")
            self.at = match.end()
            return self._back_reference(self.names[match.group(1)])
        if char.isdigit():
            return self._numbered(int(char))
        return (_UNIX_ANCHORS if "d" in self._flags else _ANCHORS)[char]

    def _boundary(self, *, inside: bool) -> str:
        if self._peek(3) == "{g}":
            raise self._error(r"\b{g} is not supported")
        word = f"[{self._sets['w']}]"
        if inside:
            return f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))"
        return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"

    def _numbered(self, group: int) -> str:
        """A reference by number: as many digits as still name a group that has begun."""
        while (digit := self._peek()) and digit in "0123456789" and group * 10 + int(digit) <= self.groups:
            group = group * 10 + int(digit)
            self.at += 1
        return self._back_reference(group)

    def _existing(self, reference: re.Match[str]) -> str:
        """The reference itself; what never matches where there is no such group, now that all are counted."""
        return reference[0] if int(reference[1]) <= self.groups else "(?!)"

    def _back_reference(self, group: int) -> str:
        return f"(?i:\\{group})" if "i" in self._flags else f"(?:\\{group})"

    @property
    def _sets(self) -> dict[str, str]:
        return UNICODE_ESCAPES if "U" in self._flags else ESCAPES

    def _escaped(self) -> tuple[str | None, int]:
        """The set or the one character that an escape is, in a class or outside."""
        self.at += 1
        char = self._peek()
        if not char:
            raise self._error("unexpected end after a backslash")
        self.at += 1
        if char.lower() in ESCAPES and char.isascii():
            members = self._sets[char.lower()]
            return (members if char.islower() else f"^{members}"), 0
        if char in "pP":
            return self._property(negated=char == "P"), 0
        if char in _CONTROLS:
            return None, _CONTROLS[char]
        if char in _CODES:
            return None, self._code(char)
        if char == "c":
            if not self._peek():
                raise self._error("illegal control escape")
            self.at += 1
            return None, ord(self.text[self.at - 1]) ^ 64
        if char == "N":
            return None, self._named_character()
        if char.isascii() and char.isalnum():
            raise self._error(f"illegal escape \\{char}")
        return None, ord(char)

    def _need(self, pattern: re.Pattern[str], reason: str) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self._error(reason)
        self.at = match.end()
        return match

    def _code(self, char: str) -> int:
        pattern, reason, base = _CODES[char]
        match = self._need(pattern, reason)
        point = int(match[1] or match[2], base)
        if point > 0x10FFFF:
            raise self._error(reason)
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
            raise self._error(f"unknown character name {name!r}") from None

    def _property(self, *, negated: bool) -> str:
        match = self._need(_PROPERTY, "bad character property")
        name = match[1] or match[2]
        members = set_of_property(name, any_case="i" in self._flags, unicode="U" in self._flags)
        if members is None:
            raise self._error(f"unknown character property {name!r}")
        return f"^[{members}]" if negated else members

    # --- classes ------------------------------------------------------------------------------------------------------

    def _class(self) -> str:
        """The set of a class, from its ``[`` to its ``]``."""
        begun = self.at
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"classes nest deeper than {_DEEPEST}")
        members = self._members(begun)
        self._depth -= 1
        self.at += 1
        return f"^[{members}]" if negated else members

    def _members(self, begun: int) -> str:
        """The members up to the ``]``, which is not taken: unions of what stands side by side, cut by ``&&``."""
        united = ""
        first = True
        while True:
            self._skip_comments()
            char = self._peek()
            if not char:
                self.at = begun
                raise self._error("unclosed character class")
            if char == "]" and not first:
                return united
            first = False
            if char == "[":
                united += f"[{self._class()}]"
            elif self._peek(2) == "&&":
                self.at += 2
                right = self._right_side(begun)
                if not united and not right:
                    raise self._error("bad class syntax")
                # Without anything on one side the other stays as it is.
                united = f"[[{united}]&&[{right}]]" if united and right else united or right
            else:
                united += self._range()

    def _right_side(self, begun: int) -> str:
        """What ``&&`` cuts with: up to the next ``&`` after a class of its own, else all that follows."""
        right = ""
        while True:
            self._skip_comments()
            char = self._peek()
            if char in ("]", "&"):
                return right
            if char == "[":
                right += f"[{self._class()}]"
            elif not char:
                self.at = begun
                raise self._error("unclosed character class")
            else:
                right += self._members(begun)

    def _range(self) -> str:
        members, low = self._member()
        if members is not None:
            return f"[{members}]"
        high = low
        self._skip_comments()
        if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", "[", ""):
            self.at += 1
            self._skip_comments()
            members, high = self._member()
            if members is not None or high < low:
                raise self._error("illegal character range")
        return ranges([(low, high)], any_case="i" in self._flags)

    def _member(self) -> tuple[str | None, int]:
        char = self._peek()
        if char == "\\":
            return self._escaped()
        self.at += 1
        return None, ord(char)


def _implied(flags: str) -> frozenset[str]:
    """The flags, and with ``U`` the ``u`` that it means too."""
    return frozenset(flags + "u" if "U" in flags else flags)


def _without_quotes(pattern: str) -> str:
    r"""The pattern with ``\Q…\E`` written as escapes, as Java does before it reads a pattern."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern[at] != "\\" or at + 1 == len(pattern):
            parts.append(pattern[at])
            at += 1
        elif pattern[at + 1] != "Q":
            parts.append(pattern[at : at + 2])
            at += 2
        else:
            end = pattern.find("\\E", at + 2)
            quoted = pattern[at + 2 :] if end < 0 else pattern[at + 2 : end]
            parts += [f"\\x{{{ord(char):x}}}" if char.isascii() else char for char in quoted]
            at = len(pattern) if end < 0 else end + 2
    return "".join(parts)
