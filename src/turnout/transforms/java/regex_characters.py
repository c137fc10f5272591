r"""Reader of single characters in a ``java.util.regex`` pattern: escapes, and classes in brackets.

Each is written as the members of a class of the package ``regex`` (V1), whose sets can be nested, cut and negated.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from turnout.base.startup import regex

_WORD = "0-9A-Z_a-z"
_UNICODE_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d"
_VERTICAL = r"\n\x0b\f\r\x85\u2028\u2029"
_HORIZONTAL = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_SPACE = r" \t\n\x0b\f\r"

ESCAPES = {"d": "0-9", "w": _WORD, "s": _SPACE, "h": _HORIZONTAL, "v": _VERTICAL}
"""The sets of the escapes in lower case; those in upper case are everything else."""

UNICODE_ESCAPES = ESCAPES | {"d": r"\p{Nd}", "w": _UNICODE_WORD, "s": r"\p{White_Space}"}
"""The same under the flag ``U``."""

_LETTERS = r"\p{Lu}\p{Ll}\p{Lt}"
_POSIX = {
    "ASCII": r"\x00-\x7f",
    "Alnum": "0-9A-Za-z",
    "Alpha": "A-Za-z",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "Digit": "0-9",
    "Graph": r"\x21-\x7e",
    "Lower": "a-z",
    "Print": r"\x20-\x7e",
    "Punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "Space": _SPACE,
    "Upper": "A-Z",
    "XDigit": "0-9A-Fa-f",
}
_UNICODE_POSIX = {
    "ALPHA": r"\p{Alphabetic}",
    "LOWER": r"\p{Lowercase}",
    "UPPER": r"\p{Uppercase}",
    "SPACE": r"\p{White_Space}",
    "PUNCT": r"\p{P}",
    "XDIGIT": r"\p{Nd}\p{Hex_Digit}",
    "ALNUM": r"\p{Alphabetic}\p{Nd}",
    "DIGIT": r"\p{Nd}",
    "CNTRL": r"\p{Cc}",
    "BLANK": r"\p{Zs}\t",
    "GRAPH": r"^\p{Z}\s\p{Cc}\p{Cs}\p{Cn}",
    "PRINT": r"^\p{Zl}\p{Zp}\p{Cc}\p{Cs}\p{Cn}",
}
"""POSIX classes under the flag ``U``."""

_BINARY = {
    "ALPHABETIC": r"\p{Alphabetic}",
    "LETTER": r"\p{L}",
    "IDEOGRAPHIC": r"\p{Ideographic}",
    "LOWERCASE": r"\p{Lowercase}",
    "UPPERCASE": r"\p{Uppercase}",
    "TITLECASE": r"\p{Lt}",
    "WHITE_SPACE": r"\p{White_Space}",
    "WHITESPACE": r"\p{White_Space}",
    "CONTROL": r"\p{Cc}",
    "PUNCTUATION": r"\p{P}",
    "HEX_DIGIT": r"\p{Nd}\p{Hex_Digit}",
    "HEXDIGIT": r"\p{Nd}\p{Hex_Digit}",
    "ASSIGNED": r"^\p{Cn}",
    "NONCHARACTER_CODE_POINT": r"\p{Noncharacter_Code_Point}",
    "NONCHARACTERCODEPOINT": r"\p{Noncharacter_Code_Point}",
    "DIGIT": r"\p{Nd}",
    "ALNUM": r"\p{Alphabetic}\p{Nd}",
    "BLANK": r"\p{Zs}\t",
    "GRAPH": _UNICODE_POSIX["GRAPH"],
    "PRINT": _UNICODE_POSIX["PRINT"],
    "WORD": _UNICODE_WORD,
    "JOIN_CONTROL": r"\u200c\u200d",
    "JOINCONTROL": r"\u200c\u200d",
    "EMOJI": r"\p{Emoji}",
    "EMOJI_PRESENTATION": r"\p{Emoji_Presentation}",
    "EMOJI_MODIFIER": r"\p{Emoji_Modifier}",
    "EMOJI_MODIFIER_BASE": r"\p{Emoji_Modifier_Base}",
    "EMOJI_COMPONENT": r"\p{Emoji_Component}",
    "EXTENDED_PICTOGRAPHIC": r"\p{Extended_Pictographic}",
}
"""Names after ``Is``, in any case, that are neither a category nor a script."""

_IGNORABLE = r"\x00-\x08\x0e-\x1b\x7f-\x9f\p{Cf}"
_NAMED = {
    "L1": r"\x00-\xff",
    "all": r"\x00-\U0010ffff",
    "LC": _LETTERS,
    "LD": r"\p{L}\p{Nd}",
    "javaLowerCase": r"\p{Lowercase}",
    "javaUpperCase": r"\p{Uppercase}",
    "javaAlphabetic": r"\p{Alphabetic}",
    "javaIdeographic": r"\p{Ideographic}",
    "javaTitleCase": r"\p{Lt}",
    "javaDigit": r"\p{Nd}",
    "javaDefined": r"^\p{Cn}",
    "javaLetter": r"\p{L}",
    "javaLetterOrDigit": r"\p{L}\p{Nd}",
    "javaJavaIdentifierStart": r"\p{L}\p{Nl}\p{Sc}\p{Pc}",
    "javaJavaIdentifierPart": r"\p{L}\p{Nl}\p{Sc}\p{Pc}\p{Nd}\p{Mc}\p{Mn}" + _IGNORABLE,
    "javaUnicodeIdentifierStart": r"\p{L}\p{Nl}\p{Other_ID_Start}",
    "javaUnicodeIdentifierPart": r"\p{L}\p{Nl}\p{Pc}\p{Nd}\p{Mc}\p{Mn}\p{Other_ID_Start}\p{Other_ID_Continue}"
    + _IGNORABLE,
    "javaIdentifierIgnorable": _IGNORABLE,
    "javaSpaceChar": r"\p{Z}",
    "javaWhitespace": r"\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000",
    "javaISOControl": r"\x00-\x1f\x7f-\x9f",
    "javaMirrored": r"\p{Bidi_Mirrored}",
}
_ANY_CASE = {
    "Lower": "A-Za-z",
    "Upper": "A-Za-z",
    "javaLowerCase": r"\p{Lowercase}\p{Uppercase}\p{Lt}",
    "javaUpperCase": r"\p{Lowercase}\p{Uppercase}\p{Lt}",
    "javaTitleCase": r"\p{Lowercase}\p{Uppercase}\p{Lt}",
    "Lu": _LETTERS,
    "Ll": _LETTERS,
    "Lt": _LETTERS,
}
"""Classes whose set differs if case is ignored."""

_UNICODE_ANY_CASE = frozenset(("LOWER", "UPPER", "LOWERCASE", "UPPERCASE", "TITLECASE"))
_SUBCATEGORIES = {"L": "ultmo", "M": "nec", "N": "dlo", "Z": "slp", "C": "cfosn", "P": "dsecoif", "S": "mcko"}
_CATEGORIES = frozenset(category + sub for category, subs in _SUBCATEGORIES.items() for sub in ("", *subs))


def set_of_property(name: str, *, any_case: bool, unicode: bool) -> str | None:
    r"""Return the set of ``\p{name}``; None if Java does not have the property.

    Args:
        name: the text between the braces.
        any_case: whether case does not matter.
        unicode: whether the POSIX names mean what Unicode says (the flag ``U``).
    """
    attribute, equals, value = name.partition("=")
    if equals:
        match attribute.lower():
            case "sc" | "script":
                return _named_set("Script", value)
            case "blk" | "block":
                return _named_set("Block", value)
            case "gc" | "general_category":
                return _property(value, any_case=any_case)
        return None
    if name.startswith("In"):
        return _named_set("Block", name[2:])
    if name.startswith("Is"):
        short = name[2:]
        binary = _binary(short, _BINARY, any_case=any_case)
        return binary or _property(short, any_case=any_case) or _named_set("Script", short)
    posix = _binary(name, _UNICODE_POSIX, any_case=any_case) if unicode else None
    return posix or _property(name, any_case=any_case)


def _binary(name: str, names: dict[str, str], *, any_case: bool) -> str | None:
    upper = name.upper()
    if upper in names and any_case and upper in _UNICODE_ANY_CASE:
        return r"\p{Lowercase}\p{Uppercase}\p{Lt}"
    return names.get(upper)


def _property(name: str, *, any_case: bool) -> str | None:
    if any_case and name in _ANY_CASE:
        return _ANY_CASE[name]
    if name in _CATEGORIES:
        return rf"\p{{{name}}}"
    return _POSIX.get(name) or _NAMED.get(name)


def _named_set(attribute: str, value: str) -> str | None:
    """Return the set of a script or a block; None if the name is unknown."""
    written = rf"\p{{{attribute}={value}}}"
    try:
        regex.compile(written, regex.V1)
    except regex.error:
        return None
    return written


def code(point: int) -> str:
    """Return a character in the notation of a set."""
    return rf"\U{point:08x}"


def ranges(spans: Iterable[tuple[int, int]], *, any_case: bool) -> str:
    """The set of some ranges of characters; *any_case* takes in the other case of ASCII letters, as Java does."""
    members: list[str] = []
    for low, high in spans:
        members.append(f"{code(low)}-{code(high)}")
        if any_case:
            for first, last, other in ((65, 90, 32), (97, 122, -32)):
                begin, end = max(low, first), min(high, last)
                if begin <= end:
                    members.append(f"{code(begin + other)}-{code(end + other)}")
    return "".join(members)


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
