r"""Java's regular expressions in Python: what ``java.util.regex`` answers, without a JVM.

Python's ``re`` differs in much (nested classes, possessive quantifiers, ``\Q…\E``, ``\p{…}``, what ends a line). A
pattern is translated for the package ``regex``, which has all needed features, and a time limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

from turnout.base.startup import regex
from turnout.base.untrusted import decimal
from turnout.errors import RecordError
from turnout.subjects.pattern import has_wildcard
from turnout.transforms.java.regex_characters import CharacterReader, JavaRegexError, code, ranges

_QUANTIFIER = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_FLAGS = re.compile(r"([idmsuxU]*)(?:-([idmsuxU]*))?")
_ENDS = r"\n\r\x85\u2028\u2029"
_NOT_BETWEEN = r"(?!(?<=\r)\n)"
_DOLLAR = rf"(?:(?=(?:\r\n|[{_ENDS}])?\Z){_NOT_BETWEEN})"
_ANCHORS = {"A": r"\A", "G": r"\A", "z": r"\Z", "Z": _DOLLAR}
_UNIX_ANCHORS = _ANCHORS | {"Z": r"(?=\n?\Z)"}
_LINEBREAK = r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])"
_REFERENCE = re.compile(r"<([A-Za-z][A-Za-z0-9]*)>")
_BACK_REFERENCE = re.compile(r"\(\?i?:\\(\d+)\)")
_INT_BOUND = 1 << 31
_HEADS = ("<=", "<!", ":", "=", "!", ">")


class JavaRegexReader(CharacterReader):
    """Recursive-descent parser that translates a pattern in one pass.

    Attributes:
        groups: how many capturing groups there are.
        names: the numbers of those that have a name.
        written: the pattern for ``regex``.

    Raises:
        JavaRegexError: when Java cannot compile the pattern.
    """

    def __init__(self, pattern: str) -> None:
        super().__init__(_without_quotes(pattern))
        self.groups = 0
        self.names: dict[str, int] = {}
        written = self._alternatives()
        if self.at < len(self.text):
            raise self.error("unmatched closing ')'")
        self.written = _BACK_REFERENCE.sub(self._existing, written)

    # --- sequences, groups, quantifiers -------------------------------------------------------------------------------

    def _alternatives(self) -> str:
        parts: list[str] = []
        # Offset of the item that a quantifier repeats; None if there is none.
        last: int | None = None
        while True:
            self.skip_comments()
            char = self.peek()
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
        """Return the quantifier; empty for one with numbers that follows nothing and so repeats nothing."""
        match = _QUANTIFIER.match(self.text, self.at)
        if match is None:
            raise self.error("illegal repetition")
        text = match.group()
        if dangling and not text.startswith("{"):
            raise self.error(f"dangling meta character {text!r}")
        if text.startswith("{"):
            low, _, high = text[1:-1].partition(",")
            least, most = decimal(low, _INT_BOUND - 1), decimal(high or low, _INT_BOUND - 1)
            if least is None or most is None or most < least:
                raise self.error("illegal repetition range")
        self.at = match.end()
        self.skip_comments()
        if (mode := self.peek()) and mode in "?+":
            self.at += 1
            return text + mode
        return text

    def _atom(self, char: str) -> str:
        if char == "(":
            return self._group()
        if char == "[":
            return self._in_any_case(f"[{self.character_class()}]")
        if char == "\\":
            return self._escape()
        self.at += 1
        if char == ".":
            return self._dot()
        if char in "^$":
            return self._anchor(char)
        return self._literal(ord(char))

    def _dot(self) -> str:
        if "s" in self.flags:
            return r"[\x00-\U0010ffff]"
        return r"[^\n]" if "d" in self.flags else f"[^{_ENDS}]"

    def _anchor(self, char: str) -> str:
        unix, several = "d" in self.flags, "m" in self.flags
        if char == "$":
            if not several:
                return _UNIX_ANCHORS["Z"] if unix else _DOLLAR
            return r"(?=\n|\Z)" if unix else rf"(?:(?=[{_ENDS}]|\Z){_NOT_BETWEEN})"
        if not several:
            return r"\A"
        # Java has no line that begins at the end of the text.
        return r"(?:(?:\A|(?<=\n))(?!\Z))" if unix else rf"(?:(?:\A|(?<=[{_ENDS}]))(?!\Z){_NOT_BETWEEN})"

    def _literal(self, point: int) -> str:
        if "i" not in self.flags:
            return f"[{code(point)}]"
        return self._in_any_case(f"[{ranges([(point, point)], any_case=True)}]")

    def _in_any_case(self, written: str) -> str:
        """Extend a class with both ASCII cases to all Unicode cases under the flag ``u``."""
        return f"(?i:{written})" if "i" in self.flags and "u" in self.flags else written

    def _group(self) -> str:
        self.at += 1
        outer = self.flags
        opening = "("
        if self.peek() == "?":
            self.at += 1
            head = self._group_head()
            if head is None:
                # Flags alone hold to the end of the group that they are in.
                return ""
            opening = head
        else:
            self.groups += 1
        self.deeper("groups")
        inside = self._alternatives()
        self.shallower()
        self.flags = outer
        if self.peek() != ")":
            raise self.error("unclosed group")
        self.at += 1
        return f"{opening}{inside})"

    def _group_head(self) -> str | None:
        """Parse the text after ``(?``; None if that was the whole group, as in ``(?i)``."""
        for head in _HEADS:
            if self.text.startswith(head, self.at):
                self.at += len(head)
                return f"(?{head}"
        if self.peek() == "<":
            self.at += 1
            self._name()
            return "("
        flags = _FLAGS.match(self.text, self.at)
        assert flags is not None
        self.at = flags.end()
        self.flags = (self.flags | _implied(flags[1])) - frozenset(flags[2] or "")
        if self.peek() == ")":
            self.at += 1
            return None
        if self.peek() != ":":
            raise self.error("unknown inline modifier or group type")
        self.at += 1
        return "(?:"

    def _name(self) -> None:
        match = _NAME.match(self.text, self.at)
        if match is None or not self.text.startswith(">", match.end()):
            raise self.error("bad group name")
        if match.group() in self.names:
            raise self.error(f"the group name {match.group()!r} is used twice")
        self.groups += 1
        self.names[match.group()] = self.groups
        self.at = match.end() + 1

    # --- escapes ------------------------------------------------------------------------------------------------------

    def _escape(self) -> str:
        char = self.text[self.at + 1 : self.at + 2]
        if char and char in "bBAGZzRXk123456789":
            self.at += 2
            return self._assertion(char)
        members, point = self.escaped()
        return self._literal(point) if members is None else f"[{members}]"

    def _assertion(self, char: str) -> str:
        """Return the translation of an escape that matches several characters, or none."""
        if char in "bB":
            return self._boundary(inside=char == "B")
        if char == "R":
            return _LINEBREAK
        if char == "X":
            return r"\X"
        if char == "k":
            match = _REFERENCE.match(self.text, self.at)
            if match is None or match.group(1) not in self.names:
                raise self.error("a reference to a group that is not defined")
            self.at = match.end()
            return self._back_reference(self.names[match.group(1)])
        if char.isdigit():
            return self._numbered(int(char))
        return (_UNIX_ANCHORS if "d" in self.flags else _ANCHORS)[char]

    def _boundary(self, *, inside: bool) -> str:
        if self.peek(3) == "{g}":
            raise self.error(r"\b{g} is not supported")
        word = f"[{self.sets['w']}]"
        if inside:
            return f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))"
        return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"

    def _numbered(self, group: int) -> str:
        """Return a reference by number: as many digits as still name a group that has begun."""
        while (digit := self.peek()) and digit in "0123456789" and group * 10 + int(digit) <= self.groups:
            group = group * 10 + int(digit)
            self.at += 1
        return self._back_reference(group)

    def _existing(self, reference: re.Match[str]) -> str:
        """Return the reference, or a group that never matches if its group does not exist."""
        return reference[0] if int(reference[1]) <= self.groups else "(?!)"

    def _back_reference(self, group: int) -> str:
        return f"(?i:\\{group})" if "i" in self.flags else f"(?:\\{group})"


def _implied(flags: str) -> frozenset[str]:
    """Return the flags, and with ``U`` the ``u`` that it means too."""
    return frozenset(flags + "u" if "U" in flags else flags)


def _without_quotes(pattern: str) -> str:
    r"""Return the pattern with ``\Q…\E`` written as escapes, as Java does before it reads a pattern."""
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

    def matches_some(self, topics: Iterable[str]) -> bool:
        """Return False if it matches none of these topics; a filter of subjects among them stands for unknown ones."""
        try:
            return any(has_wildcard(topic) or self.matches(topic) for topic in topics)
        except RecordError:
            return True

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


def _compiled(written: str, pattern: str) -> regex.Pattern[str]:
    try:
        return regex.compile(written, regex.V1)
    except (regex.error, RecursionError) as error:
        raise JavaRegexError(f"{pattern!r} cannot be run here: {error}") from None
