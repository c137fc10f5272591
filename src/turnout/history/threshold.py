"""A condition over the totals of a comparison, by which a build fails: ``lost > 0 or values >= 100``."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from turnout.errors import ConfigError, Mistake
from turnout.suggestions import did_you_mean

_MAX_CHARACTERS: Final = 1000
"""Maximum length of a condition in characters, as the parser's stack is limited."""

_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition over numbers that have names.

    Python's parser reads it, and only the constructs listed here are evaluated: names, numbers, comparisons, ``and``,
    ``or``, ``not`` and parentheses. A name alone is true where its number is not 0.

    >>> threshold = Threshold.parse("lost > 0 or not (values < 100)", ["lost", "values"])
    >>> threshold.holds({"lost": 0, "values": 99}), threshold.holds({"lost": 1, "values": 0})
    (False, True)

    Attributes:
        text: as it was written.
    """

    text: str
    _node: ast.expr

    @classmethod
    def parse(cls, text: str, names: Iterable[str]) -> Self:
        """Read a condition.

        Args:
            text: the condition.
            names: the names that there are.

        Raises:
            ConfigError: it cannot be read, or has something in it that is not known.
        """
        if len(text) > _MAX_CHARACTERS:
            raise _wrong(text[:40] + "…", f"has {len(text):,} characters, expected at most {_MAX_CHARACTERS:,}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                node = ast.parse(text.strip(), mode="eval").body
            _check(node, tuple(names), text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            if isinstance(problem, ConfigError):
                raise
            raise _wrong(text, "cannot be read; expected something like: lost > 0 or values >= 100") from None
        return cls(text, node)

    def holds(self, totals: Mapping[str, float]) -> bool:
        """Return True if the condition is true of the totals."""
        return bool(_value(self._node, totals))


def _wrong(text: str, problem: str) -> ConfigError:
    return ConfigError([Mistake(repr(text), problem)], what="bad condition")


def _check(node: ast.expr, names: tuple[str, ...], text: str) -> None:
    match node:
        case ast.BoolOp(values=parts):
            for part in parts:
                _check(part, names, text)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            _check(part, names, text)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(operator) in _COMPARISONS for operator in ops
        ):
            for part in (left, *others):
                _check(part, names, text)
        case ast.Name(id=name):
            if name not in names:
                names_text = ", ".join(names)
                raise _wrong(text, f"there is no total {name!r}{did_you_mean(name, names)} (there are {names_text})")
        case ast.Constant(value=value) if type(value) in (int, float):
            pass
        case _:
            raise _wrong(text, f"{ast.unparse(node)!r}: expected names, numbers, comparisons, and, or, not")


def _value(node: ast.expr, totals: Mapping[str, float]) -> float | bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, totals) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, totals) for part in parts)
        case ast.UnaryOp(operand=part):
            return not _value(part, totals)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_value(part, totals) for part in (left, *others)]
            pairs = zip(ops, sides, sides[1:], strict=False)
            return all(_COMPARISONS[type(comparison)](before, after) for comparison, before, after in pairs)
        case ast.Name(id=name):
            return totals[name]
        case ast.Constant(value=int() | float() as number):
            return number
    raise AssertionError(f"{node!r} was let through")
