r"""Regular expressions in RE2's syntax: matched in time that grows with the value's length alone.

The engine is ``google-re2``, an optional dependency; it has neither back-references nor look-around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from turnout.errors import ConditionError, MissingExtraError

MAX_REGEX = 1_024
"""Characters of an expression."""

_MAX_MEMORY: Final = 1 << 18
"""Bytes of an expression's automata; what needs more of them than that at run time is matched more slowly."""

_MAX_SET_MEMORY: Final = 1 << 20
"""The same for several expressions in one automaton; with more states than that it begins again."""


@lru_cache(maxsize=1024)
def regex_searcher(pattern: str) -> Callable[[str], bool]:
    """Return the test whether a value has a match anywhere.

    Raises:
        ConditionError: the pattern is no expression of RE2, or beyond its bounds.
        MissingExtraError: ``google-re2`` is not installed.
    """
    if len(pattern) > MAX_REGEX:
        raise ConditionError(f"a regular expression of {len(pattern)} characters, at most {MAX_REGEX} are taken")
    re2 = _engine()
    try:
        compiled = re2.compile(pattern.encode(), _options(re2, _MAX_MEMORY))
    except (re2.error, UnicodeEncodeError) as failure:
        raise ConditionError(f"not a regular expression: {_reason(failure)}", text=pattern) from failure
    search = compiled.search

    def has_match(value: str) -> bool:
        try:
            return search(value.encode()) is not None
        except UnicodeEncodeError:
            # Half of a surrogate pair is no text.
            return False

    return has_match


def _engine() -> Any:
    try:
        import re2
    except ModuleNotFoundError as missing:
        raise MissingExtraError("regex", "re2") from missing
    return re2


def _options(re2: Any, memory: int) -> Any:
    options = re2.Options()
    options.max_mem = memory
    options.never_capture = True
    options.log_errors = False
    return options


class RegexSet:
    """Several expressions that are searched for in one pass; see `RegexSet.of`.

    Args:
        found: gives the numbers of the expressions with a match in a text, and 0 for the one that always has.
    """

    def __init__(self, found: Callable[[bytes], Sequence[int] | None]) -> None:
        self._found = found

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
        return cls(expressions.Match)

    def found(self, value: str) -> list[int] | None:
        """Return the indices of the expressions with a match in a value; None if they have to be tested one by one."""
        try:
            numbers = self._found(value.encode())
        except UnicodeEncodeError:
            return []
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
