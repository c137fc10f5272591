"""Condition expressions of Sigma: ``selection and not 1 of filter_*``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnout.conditions import Condition, all_of, any_of, leaves, not_
from turnout.conditions.pattern import pattern_matcher
from turnout.subscriptions.sigma.errors import InexpressibleError

MAX_LEAVES = 20_000
"""Leaves of one condition with those that several names repeat."""

_MAX_OPEN = 40
_TOKEN = re.compile(r"[()|]|[^\s()|]+")
_NAME = re.compile(r"[\w.*-]+")
_WORDS = ("and", "or", "not", "of")


def either(parts: list[Condition]) -> Condition:
    """Return the condition that at least one part holds, each distinct part once."""
    distinct = list(dict.fromkeys(parts))
    return distinct[0] if len(distinct) == 1 else any_of(*distinct)


def both(parts: list[Condition]) -> Condition:
    """Return the condition that all parts hold, each distinct part once."""
    distinct = list(dict.fromkeys(parts))
    return distinct[0] if len(distinct) == 1 else all_of(*distinct)


def parse_expression(text: str, searches: Mapping[str, Condition]) -> Condition:
    """Parse an expression over named searches.

    Raises:
        InexpressibleError: it is no expression, or one that conditions have no counterpart of.
    """
    reader = _ExpressionReader(text, searches)
    condition = reader.alternatives()
    if reader.tokens:
        raise reader.unexpected("'and', 'or' or the end")
    return condition


class _ExpressionReader:
    """Reads tokens from left to right; *tokens* are those that are left, the next one last."""

    def __init__(self, text: str, searches: Mapping[str, Condition]) -> None:
        self.tokens = _TOKEN.findall(text)[::-1]
        self._searches = searches
        self._sizes = {name: sum(1 for _ in leaves(condition)) for name, condition in searches.items()}
        self._size = 0
        self._open = 0

    def alternatives(self) -> Condition:
        parts = [self._conjunction()]
        while self._takes("or"):
            parts.append(self._conjunction())
        return either(parts)

    def _conjunction(self) -> Condition:
        parts = [self._negation()]
        while self._takes("and"):
            parts.append(self._negation())
        return both(parts)

    def _negation(self) -> Condition:
        negated = False
        while self._takes("not"):
            negated = not negated
        condition = self._parenthesis() if self._takes("(") else self._searched()
        return not_(condition) if negated else condition

    def _parenthesis(self) -> Condition:
        if self._open == _MAX_OPEN:
            raise InexpressibleError("condition", f"more than {_MAX_OPEN} open parentheses")
        self._open += 1
        condition = self.alternatives()
        if not self._takes(")"):
            raise self.unexpected("'and', 'or' or ')'")
        self._open -= 1
        return condition

    def _searched(self) -> Condition:
        token = self._next("the name of a search, '1 of', 'all of' or '('")
        if self._peek() == "of" and token not in self._searches:
            return self._several(token.lower())
        if token.lower() in _WORDS or not _NAME.fullmatch(token):
            self.tokens.append(token)
            raise self.unexpected("the name of a search, '1 of', 'all of' or '('")
        return self._of_names([token] if token in self._searches else [], token)[0]

    def _several(self, quantity: str) -> Condition:
        self.tokens.pop()
        what = self._next("'them' or names")
        if what.lower() == "them":
            names = [name for name in self._searches if not name.startswith("_")]
        else:
            if not _NAME.fullmatch(what):
                self.tokens.append(what)
                raise self.unexpected("'them' or names, as in selection_*")
            names = list(filter(pattern_matcher(what), self._searches))
        if quantity == "all":
            return both(self._of_names(names, what))
        if quantity in ("1", "any"):
            return either(self._of_names(names, what))
        raise InexpressibleError("condition", f"'{quantity} of' cannot be expressed; '1 of' and 'all of' can")

    def _of_names(self, names: list[str], written: str) -> list[Condition]:
        if not names:
            raise InexpressibleError("condition", f"no search has the name {written!r}")
        self._size += sum(self._sizes[name] for name in names)
        if self._size > MAX_LEAVES:
            raise InexpressibleError("condition", f"repeats searches beyond {MAX_LEAVES:,} leaves")
        return [self._searches[name] for name in names]

    def _peek(self) -> str:
        return self.tokens[-1].lower() if self.tokens else ""

    def _takes(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self.tokens.pop()
        return True

    def _next(self, expected: str) -> str:
        if not self.tokens:
            raise self.unexpected(expected)
        token: str = self.tokens.pop()
        return token

    def unexpected(self, expected: str) -> InexpressibleError:
        """Return the error of the next token."""
        if self._peek() == "|":
            return InexpressibleError("condition", "aggregates several events: a condition sees one")
        found = repr(self.tokens[-1]) if self.tokens else "the end"
        return InexpressibleError("condition", f"expected {expected}, found {found}")
