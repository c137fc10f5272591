r"""Regular expressions in RE2's syntax: matched in time that grows with the value's length alone.

The engine is ``google-re2``, an optional dependency; it has neither back-references nor look-around.

What RE2 cannot keep as an automaton, it runs instruction by instruction: for each byte of a value up to the size of the
expression's program. New subscriptions therefore take programs of a limited size (`expression_problem`), and a search
takes a limited product of size and length, also of expressions that were stored before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from types import ModuleType
from typing import Final, NamedTuple, Protocol

from turnout.errors import ConditionError, MissingExtraError

MAX_REGEX = 1_024
"""Characters of an expression."""

MAX_PROGRAM: Final = 1_000
"""Instructions of RE2 for an expression of a new subscription: a repetition takes some for each time that it counts."""

MAX_WORK: Final = 1 << 26
"""Instructions times bytes of a search: any expression up to `MAX_PROGRAM` in 64 KB, one of 60 in a megabyte."""

_logger = logging.getLogger(__name__)

_MAX_MEMORY: Final = 1 << 18
"""Bytes of an expression's automata; what needs more of them than that at run time is matched more slowly."""

_MAX_SET_MEMORY: Final = 1 << 20
"""The same for several expressions in one automaton; with more states than that it begins again."""


@lru_cache(maxsize=1024)
def regex_searcher(pattern: str) -> Callable[[str], bool]:
    """Return the test whether a value has a match anywhere.

    A value that is too long for the expression (`MAX_WORK`) has none; the first one is logged.

    Raises:
        ConditionError: the pattern is no expression of RE2, or beyond its bounds.
        MissingExtraError: ``google-re2`` is not installed.
    """
    compiled = _compiled(pattern)
    search, limit = compiled.search, _max_bytes(compiled)
    warned = False

    def has_match(value: str) -> bool:
        nonlocal warned
        try:
            content = value.encode()
        except UnicodeEncodeError:
            # Half of a surrogate pair is no text.
            return False
        if len(content) > limit:
            if not warned:
                warned = True
                _logger.warning(
                    "a value of %s bytes is not searched for the regular expression %.80r of %s instructions, which is "
                    "searched for in at most %s bytes: count up to less in its repetitions, or divide it",
                    f"{len(content):,}",
                    pattern,
                    f"{compiled.programsize:,}",
                    f"{limit:,}",
                )
            return False
        return search(content) is not None

    return has_match


def expression_problem(pattern: str) -> str | None:
    """Return why a new subscription cannot have a valid expression; None if it can."""
    size = _compiled(pattern).programsize
    if size <= MAX_PROGRAM:
        return None
    return (
        f"the regular expression {pattern[:40]!r} takes {size:,} instructions, at most {MAX_PROGRAM:,} are taken: "
        "count up to less in its repetitions, or divide it"
    )


class _Compiled(Protocol):
    """Compiled expression of the engine, as far as it is used."""

    programsize: int

    def search(self, text: bytes) -> object | None:
        """Return the first match in a text."""


def _max_bytes(compiled: _Compiled) -> int:
    return MAX_WORK // max(1, compiled.programsize)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> _Compiled:
    if len(pattern) > MAX_REGEX:
        raise ConditionError(f"a regular expression of {len(pattern)} characters, at most {MAX_REGEX} are taken")
    re2 = _engine()
    try:
        compiled: _Compiled = re2.compile(pattern.encode(), _options(re2, _MAX_MEMORY))
    except (re2.error, UnicodeEncodeError) as failure:
        raise ConditionError(f"not a regular expression: {_reason(failure)}", text=pattern) from failure
    return compiled


def _engine() -> ModuleType:
    try:
        import re2
    except ModuleNotFoundError as missing:
        raise MissingExtraError("regex", "re2") from missing
    engine: ModuleType = re2
    return engine


def _options(re2: ModuleType, memory: int) -> object:
    options = re2.Options()
    options.max_mem = memory
    options.never_capture = True
    options.log_errors = False
    return options


class RegexSet:
    """Several expressions that are searched for in one pass; see `RegexSet.of`.

    Args:
        found: gives the numbers of the expressions with a match in a text, and 0 for the one that always has.
        max_bytes: length of the values that each of the expressions is searched for in.
    """

    def __init__(self, found: Callable[[bytes], Sequence[int] | None], max_bytes: int) -> None:
        self._found, self._max_bytes = found, max_bytes

    @classmethod
    def of(cls, patterns: Sequence[str]) -> RegexSet | None:
        """Return the set of some valid expressions; None if they are too large for one automaton.

        Raises:
            MissingExtraError: ``google-re2`` is not installed.
        """
        re2 = _engine()
        expressions = re2.Set.SearchSet(_options(re2, _MAX_SET_MEMORY))
        try:
            # It is in every text: an answer without it is none, because the automaton had too little memory.
            expressions.Add(b"")
            for pattern in patterns:
                expressions.Add(pattern.encode())
            expressions.Compile()
        except (re2.error, UnicodeEncodeError):
            return None
        # Its first states are made now, which otherwise the first value waits for.
        expressions.Match(_COMMON)
        return cls(expressions.Match, min([_max_bytes(_compiled(pattern)) for pattern in patterns], default=MAX_WORK))

    def found(self, value: str) -> list[int] | None:
        """Return the indices of the expressions with a match in a value; None if they have to be tested one by one."""
        try:
            content = value.encode()
        except UnicodeEncodeError:
            return []
        if len(content) > self._max_bytes:
            return None
        numbers = self._found(content)
        if not numbers or 0 not in numbers:
            return None
        return [number - 1 for number in numbers if number]


_COMMON: Final = bytes(range(32, 127))


def _reason(failure: Exception) -> str:
    reason = failure.args[0] if failure.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(failure)


def check_regex(pattern: str) -> None:
    """Refuse invalid regular expressions, like `regex_searcher`."""
    if not pattern:
        raise ConditionError("a regular expression is empty: it would match every value")
    regex_searcher(pattern)


_MAX_OPEN: Final = 100
"""Nested groups; RE2 itself takes a thousand."""

_FLAGS = re.compile(r"\(\?([imsU]+)\)")
_QUANTIFIER = re.compile(r"[?*+]\??|\{(\d+)(,\d*)?\}\??")
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[pP](?:\{[^}]*\}|.)|[0-7]{1,3}|.)", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?::|P?<\w+>))?")
_MEMBER = re.compile(r"\\?.", re.DOTALL)
_SHORTHANDS: Final = {"\\s": "\t\n\f\r ", "\\d": "0123456789"}
_WIDTHLESS: Final = ("^", "$", "\\b", "\\B", "\\A", "\\z")
_UNFOLDED = frozenset("s")
"""Letters that RE2 also takes for another one without case, which `fold` keeps apart: ``ſ`` (U+017F)."""

_MOST_ALTERNATIVES: Final = 16
_MOST_TEXTS: Final = 128
"""Texts of which some contain others, before those are left out."""


class Required(NamedTuple):
    """Texts that values with a match contain.

    Attributes:
        texts: each such value contains all of these.
        alternatives: it contains one of these, each longer than all of the others; none if none are found.
        folded: True if they are in the folded value.
    """

    texts: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    folded: bool = False


@lru_cache(maxsize=4096)
def required_texts(pattern: str) -> Required:
    r"""Return texts that every value with a match contains.

    There may be more such texts than are found; unknown constructs are skipped.

    >>> required_texts("power(shell|cat)?[.]exe -e[nc]* secret+").texts
    ('power', 'exe -e', ' secret')
    >>> required_texts("(?i)Encode")
    Required(texts=('encode',), alternatives=(), folded=True)
    >>> required_texts("-(W|R)=?['\" ]\\w+").alternatives
    ("-W'", '-W"', '-W ', "-R'", '-R"', '-R ', "-W='", '-W="', '-W= ', "-R='", '-R="', '-R= ')
    """
    flags = _FLAGS.match(pattern)
    folded = flags is not None and "i" in flags[1]
    reader = _RequiredReader(pattern, flags.end() if flags else 0, folded)
    try:
        found = reader.alternatives(0)
    except (IndexError, ValueError):
        return Required(folded=folded)
    if reader.at != len(pattern):
        return Required(folded=folded)
    texts = tuple(dict.fromkeys(found.texts))
    longest = max(map(len, texts), default=0)
    groups = found.groups if found.whole is None else _groups([found.whole])
    best = max(groups, key=_least_length, default=())
    return Required(texts, best if _least_length(best) > longest else (), folded)


class _Part(NamedTuple):
    """Needs of a part of an expression.

    Attributes:
        texts: all of these.
        whole: all texts that it matches; None if they are too many.
        groups: one text of each.
    """

    texts: list[str]
    whole: tuple[str, ...] | None = None
    groups: Sequence[tuple[str, ...]] = ()


def _least_length(texts: Sequence[str]) -> int:
    return min(map(len, texts), default=0)


def _shortest(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts without those that contain another one; none if they are too many."""
    shortest: list[str] = []
    for text in sorted(dict.fromkeys(texts), key=len):
        if not any(other in text for other in shortest):
            shortest.append(text)
    return tuple(shortest) if len(shortest) <= _MOST_ALTERNATIVES else ()


def _groups(groups: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    return [shortest for group in groups if (shortest := _shortest(group))]


def _joined(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...] | None:
    """Return each of the first texts with each of the second ones behind it; None if that are too many."""
    if len(first) * len(second) > _MOST_TEXTS:
        return None
    joined = tuple(dict.fromkeys([one + other for one in first for other in second]))
    return joined if _shortest(joined) else None


class _RequiredReader:
    """Reads a valid expression from left to right; *at* is the next character."""

    def __init__(self, pattern: str, at: int, folded: bool) -> None:
        self._pattern = pattern
        self._folded = folded
        self.at = at

    def alternatives(self, depth: int) -> _Part:
        """Return what an expression needs, up to its end or a closing parenthesis."""
        if depth > _MAX_OPEN:
            raise ValueError
        parts = [self._sequence(depth)]
        while self._pattern.startswith("|", self.at):
            self.at += 1
            parts.append(self._sequence(depth))
        if len(parts) == 1:
            return parts[0]
        wholes = [text for part in parts for text in part.whole or ()]
        if all(part.whole is not None for part in parts) and _shortest(wholes):
            return _Part([], tuple(dict.fromkeys(wholes)))
        best = [max(part.groups, key=_least_length, default=part.whole or ("",)) for part in parts]
        return _Part([], None, _groups([chain.from_iterable(best)]))

    def _sequence(self, depth: int) -> _Part:
        """Return what a sequence of items needs."""
        texts: list[str] = []
        groups: list[tuple[str, ...]] = []
        runs: tuple[str, ...] = ("",)
        run, is_whole = "", True
        while self.at < len(self._pattern) and self._pattern[self.at] not in "|)":
            literal, part = self._item(depth)
            is_needed, is_single = self._repeats()
            if literal and is_needed and is_single:
                run += literal
            else:
                texts.append(run + literal if is_needed else run)
                run = ""
                texts += part.texts if is_needed else []
            own = part.whole if part.whole is None or is_needed else ("", *part.whole)
            longer = None if own is None or not (is_needed or is_single) else _joined(runs, own)
            if longer is not None and is_single:
                runs = longer
                continue
            is_whole = False
            groups.append(longer or runs)
            groups += part.groups if is_needed else []
            runs = own if own is not None and is_single else ("",)
        texts.append(run)
        texts = [text for text in texts if text]
        return _Part(texts, runs) if is_whole else _Part(texts, None, _groups([*groups, runs]))

    def _item(self, depth: int) -> tuple[str, _Part]:
        """Return the character that an item is, or "", and what it needs."""
        pattern, at = self._pattern, self.at
        character = pattern[at]
        if character == "(":
            return "", self._group(depth)
        for form in (_CLASS, _ESCAPE):
            match = form.match(pattern, at)
            if match:
                self.at = match.end()
                return self._escaped(match[0]), _Part([], self._members(match[0]))
        if character == "[":
            raise ValueError
        self.at += 1
        if character in ".^$":
            return "", _Part([], None if character == "." else ("",))
        literal = self._literal(character)
        return literal, _Part([], (literal,) if literal else None)

    def _group(self, depth: int) -> _Part:
        match = _GROUP.match(self._pattern, self.at)
        if match is None or self._pattern.startswith("?", match.end()):
            # Flags inside an expression change the part behind them.
            raise ValueError
        self.at = match.end()
        part = self.alternatives(depth + 1)
        if self._pattern[self.at] != ")":
            raise ValueError
        self.at += 1
        return part

    def _escaped(self, written: str) -> str:
        if written[0] == "\\" and len(written) == 2 and not written[1].isalnum():
            return self._literal(written[1])
        if written == "\\Q":
            raise ValueError
        return ""

    def _members(self, written: str) -> tuple[str, ...] | None:
        """Return the characters of an escape or of a class without ranges; None if they are not known."""
        if written in _WIDTHLESS:
            return ("",)
        is_class = written[0] == "["
        if is_class and (written[1] == "^" or "-" in written or "[:" in written):
            return None
        members: list[str] = []
        for one in _MEMBER.findall(written[1:-1] if is_class else written):
            members += _SHORTHANDS.get(one) or [self._escaped(one) if one[0] == "\\" else self._literal(one)]
        return tuple(members) if all(members) else None

    def _literal(self, character: str) -> str:
        if not self._folded:
            return character
        return character.lower() if character.isascii() and character.lower() not in _UNFOLDED else ""

    def _repeats(self) -> tuple[bool, bool]:
        """Skip a quantifier; return whether its item is needed, and whether it is there at most once."""
        match = _QUANTIFIER.match(self._pattern, self.at)
        if match is None:
            return True, True
        self.at = match.end()
        return (match[0][0] == "+" or int(match[1] or 0) > 0), match[0][0] == "?"
