"""Comparisons with a number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from math import inf, isfinite, nextafter
from operator import eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Final

from turnout.base.multivalued import ANY_KEY
from turnout.conditions.anchor import PRESENCE, Anchor, known_number, parsed_number
from turnout.conditions.leaf import NUMBER as NUMBER_TYPES
from turnout.conditions.leaf import (
    TEXT,
    VALUE,
    Atom,
    AtomKind,
    Check,
    Choice,
    Leaf,
    LeafField,
    LeafKind,
    LeafSpec,
    Literal,
    Sign,
    ValueTest,
    key_text,
    need_key,
)
from turnout.conditions.model import Group, Logic, inverse
from turnout.errors import ConditionError

if TYPE_CHECKING:
    from turnout.conditions.model import Condition
    from turnout.conditions.text import ConditionReader

NUMBER: Final = 1
BOUND: Final = 2
COMPARISON: Final = 6
"""Ranks of the atoms that a value is a number, that it is below a bound, and of a comparison with any value."""

_RANGE = re.compile(r"\s*([^\s\]]+)\s+TO\s+([^\s\]]+)\s*\]", re.IGNORECASE)


class Operator(StrEnum):
    """Comparison operator of a numeric leaf.

    >>> from turnout.conditions import parse
    >>> parse("total>=5").op, parse("total<5").op
    (<Operator.AT_LEAST: '>='>, <Operator.LESS: '<'>)
    """

    LESS = "<"
    AT_MOST = "<="
    EQUAL = "="
    AT_LEAST = ">="
    MORE = ">"


HOLDS: Final[dict[Operator, Callable[[float, float], bool]]] = {
    Operator.LESS: lt,
    Operator.AT_MOST: le,
    Operator.EQUAL: eq,
    Operator.AT_LEAST: ge,
    Operator.MORE: gt,
}
"""Comparison of two numbers by each operator."""


@dataclass(frozen=True, slots=True)
class Compare(Leaf):
    """True when the key's value is a decimal number and ``value op number`` holds.

    Numbers are compared as IEEE doubles. A value that is not a number makes the leaf false.

    >>> from turnout.conditions import parse
    >>> parse("total>=10") == Compare("total", Operator(">="), 10.0)
    True
    """

    key: str
    op: Operator
    number: float
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        need_key(self.key)
        try:
            object.__setattr__(self, "op", Operator(self.op))
        except ValueError:
            operators = " ".join(Operator)
            raise ConditionError(
                f"no comparison is written {self.op!r}; there are {operators}", text=str(self.op)
            ) from None
        try:
            number = float(self.number)
        except OverflowError:
            # A whole number of more than 308 digits.
            number = inf
        if not isfinite(number):
            raise ConditionError(f"expected a finite number to compare with, found {number}", text=str(number))
        object.__setattr__(self, "number", number)

    def holds(self, value: str) -> bool:
        """Return True if a value is a number that the comparison holds for."""
        number = parsed_number(value)
        return number is not None and HOLDS[self.op](number, self.number)

    def text(self) -> str:
        """Return the leaf as text."""
        short = f"{self.number:g}"
        return f"{key_text(self.key)}{self.op}{short if float(short) == self.number else repr(self.number)}"

    def check(self) -> Check:
        """Return the leaf as data."""
        return Check(self.key, f"n{self.op}", number=self.number, negated=self.negated)

    def anchors(self) -> Iterator[Anchor]:
        """Yield the presence of the key."""
        yield Anchor(self.key, PRESENCE, "")

    def literals(self) -> tuple[Literal, ...]:
        """Return bounds: ``n > 5`` is "a number, and not ``n <= 5``", so that each bound implies the larger ones."""
        # Minus zero is zero to a comparison, and another text.
        number = self.number + 0.0
        if self.key == ANY_KEY:
            # One value may be at most 5, and another one more.
            return ((Atom(self.key, COMPARISON, number, self.op.value), True),)
        less, most = Atom(self.key, BOUND, number, "<"), Atom(self.key, BOUND, number, "<=")
        match self.op:
            case Operator.LESS:
                return ((less, True),)
            case Operator.AT_MOST:
                return ((most, True),)
            case Operator.EQUAL:
                return ((less, False), (most, True))
            case Operator.AT_LEAST:
                return ((Atom(self.key, NUMBER), True), (less, False))
            case Operator.MORE:
                return ((Atom(self.key, NUMBER), True), (most, False))


def compare(key: str, op: str, number: float) -> Compare:
    """True when the key's value is a number and ``value op number`` holds.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(compare("total", ">=", 10), {"total": text}) for text in ("9", "1e1", "ten")]
    [False, True, False]
    """
    return Compare(key, op, number)  # type: ignore[arg-type]  # the node makes an Operator of it


def between(key: str, low: float, high: float) -> Group:
    """True when the key's value is a number from *low* to *high*, both included.

    >>> from turnout.conditions import evaluate, format_condition
    >>> format_condition(between("total", 10, 20)), evaluate(between("total", 10, 20), {"total": "20"})
    ('total>=10 AND total<=20', True)
    """
    return Group(Logic.AND, (Compare(key, Operator.AT_LEAST, low), Compare(key, Operator.AT_MOST, high)))


def _read(reader: ConditionReader, key: str, sign: str) -> Condition:
    reader.skip()
    at = reader.at
    compared = Compare(key, Operator(sign.removeprefix("!")), _number(reader, reader.require(VALUE, "a number"), at))
    return inverse(compared) if sign == "!=" else compared


def _read_range(reader: ConditionReader, key: str, _sign: str) -> Condition:
    begin = reader.at
    match = reader.take(_RANGE)
    if match is None:
        raise reader.expected("a range, as in [1 TO 5]", begin - 1)
    low, high = _number(reader, match.group(1), match.start(1)), _number(reader, match.group(2), match.start(2))
    if low > high:
        raise reader.wrong("the range is empty: its first number is larger than its last", begin - 1)
    return between(key, low, high)


def _number(reader: ConditionReader, written: str, at: int) -> float:
    try:
        return float(written)
    except ValueError:
        raise reader.expected("a number (texts are compared as in city:Oulu and NOT city:Oulu)", at) from None


def _test(number: int, op: Operator) -> ValueTest:
    holds = HOLDS[op]

    def passes(check: Check, value: str) -> bool:
        actual = known_number(value)
        return actual is not None and holds(actual, check.number)

    return ValueTest(f"n{op}", number, passes)


def _is_number(_atom: Atom, value: str) -> bool:
    return parsed_number(value) is not None


def _is_below(atom: Atom, value: str) -> bool:
    number = parsed_number(value)
    return number is not None and (number < atom.number if atom.text == "<" else number <= atom.number)


def _relation(premise: Atom, conclusion: Atom) -> bool | None:
    if premise.rank == NUMBER:
        return None
    if conclusion.rank == NUMBER:
        return True
    strictly = premise.text == "<=" and conclusion.text == "<"
    return (
        True if premise.number < conclusion.number or (premise.number == conclusion.number and not strictly) else None
    )


def _values(atom: Atom) -> Iterator[str]:
    for number in (atom.number, atom.number - 1, atom.number + 1, nextafter(atom.number, -inf)):
        yield repr(number)
    yield repr(nextafter(atom.number, inf))


def _chosen(op: Operator, key: str, value: str) -> Condition:
    try:
        return Compare(key, op, float(value))
    except ValueError:
        raise ConditionError(f"expected a number, found {value!r}", text=value, position=0) from None


COMPARE: Final = LeafSpec(
    Compare,
    (
        LeafKind(
            "compareCondition",
            Compare,
            (LeafField("op", "op", TEXT, ""), LeafField("number", "number", NUMBER_TYPES, 0)),
        ),
    ),
    signs=(*(Sign(sign, _read) for sign in (*Operator, "!=")), Sign(":[", _read_range)),
    tests=tuple(_test(number, op) for number, op in enumerate(Operator, 7)),
    atoms=(
        AtomKind(NUMBER, _is_number, _relation, family="number"),
        AtomKind(BOUND, _is_below, _relation, _values, family="number"),
        AtomKind(
            COMPARISON,
            lambda atom, value: Compare(atom.key, Operator(atom.text), atom.number).holds(value),
            needs_more=True,
        ),
    ),
    choices={str(op): Choice(str(op), partial(_chosen, op)) for op in Operator},
)
