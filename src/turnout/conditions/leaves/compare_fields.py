"""Comparisons of two keys of one message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Final, Self

from turnout.base.multivalued import ANY_KEY, Metadata, values_at
from turnout.conditions.anchor import PRESENCE, Anchor, known_number
from turnout.conditions.leaf import (
    FIELD,
    FLAG,
    TEXT,
    Atom,
    AtomKind,
    Check,
    Leaf,
    LeafField,
    LeafKind,
    LeafSpec,
    Literal,
    Sign,
    ValueTest,
    inner_key_text,
    key_text,
    need_key,
)
from turnout.conditions.pattern import fold
from turnout.errors import ConditionError

if TYPE_CHECKING:
    from turnout.conditions.text import ConditionReader

FIELDS: Final = 9
"""Rank of the atom that two keys compare."""


class FieldOperator(StrEnum):
    """Comparison operator of two keys.

    >>> from turnout.conditions import parse
    >>> parse("paid!=field(total)").op
    <FieldOperator.DIFFERENT: '!='>
    """

    LESS = "<"
    AT_MOST = "<="
    EQUAL = "="
    DIFFERENT = "!="
    AT_LEAST = ">="
    MORE = ">"


_HOLDS: Final[dict[str, Callable[[float, float], bool]]] = {
    FieldOperator.LESS: lt,
    FieldOperator.AT_MOST: le,
    FieldOperator.EQUAL: eq,
    FieldOperator.DIFFERENT: ne,
    FieldOperator.AT_LEAST: ge,
    FieldOperator.MORE: gt,
}


@dataclass(frozen=True, slots=True)
class CompareFields(Leaf):
    """True when both keys are present and ``value op other value`` holds.

    Two numbers are compared as IEEE doubles, like those of `Compare`. Other values are equal if they are the same text;
    ``<`` and its kin are false of them. Of several values, one of each key has to satisfy the comparison.

    Attributes:
        key: the metadata key on the left.
        op: the operator. Unlike the negation of ``=``, ``!=`` is false if a key is missing.
        other: the metadata key on the right.
        ignore_case: regard texts as equal that differ by case.
        negated: true where the rest is false, so also where a key is missing.
        id: the leaf's name in a store.

    >>> from turnout.conditions import evaluate
    >>> late = CompareFields("eta", ">", "due")
    >>> [evaluate(late, seen) for seen in ({"eta": "17", "due": "9"}, {"eta": "9", "due": "9.0"}, {"eta": "17"})]
    [True, False, False]
    """

    key: str
    op: FieldOperator
    other: str
    ignore_case: bool = False
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        need_key(self.key)
        if not self.other:
            raise ConditionError("field(…) needs the key to compare with")
        if ANY_KEY in (self.key, self.other):
            raise ConditionError(f"field(…) compares one key with another: {ANY_KEY} is all of them")
        try:
            object.__setattr__(self, "op", FieldOperator(self.op))
        except ValueError:
            operators = " ".join(FieldOperator)
            raise ConditionError(
                f"no comparison of fields is written {self.op!r}; there are {operators}", text=str(self.op)
            ) from None
        if self.ignore_case and self.op not in (FieldOperator.EQUAL, FieldOperator.DIFFERENT):
            raise ConditionError(f"only = and != can ignore case, found {self.op}", text=self.op.value)

    @property
    def keys(self) -> tuple[str, ...]:
        """Both keys."""
        return (self.key, self.other)

    def is_met(self, metadata: Metadata) -> bool:
        """Return True if the comparison holds for a value of each key."""
        others = values_at(metadata, self.other)
        return any(
            is_met(self.op, value, other, ignore_case=self.ignore_case)
            for value in values_at(metadata, self.key)
            for other in others
        )

    def text(self) -> str:
        """Return the leaf as text."""
        sign = f"{self.op}i{self.op}" if self.ignore_case else self.op
        return f"{key_text(self.key)}{sign}field({inner_key_text(self.other)})"

    def check(self) -> Check:
        """Return the leaf as data."""
        return Check(self.key, FIELD, self.other, self.op.value, fold=self.ignore_case, negated=self.negated)

    def anchors(self) -> Iterator[Anchor]:
        """Yield the presence of each key."""
        for key in self.keys:
            yield Anchor(key, PRESENCE, "")

    def literals(self) -> tuple[Literal, ...]:
        """Return the atom of the comparison."""
        return ((Atom(self.key, FIELDS, text=f"{self.op} {self.other}", fold=self.ignore_case), True),)

    def with_keys(self, rename: Callable[[str], str]) -> Self:
        """Return the leaf with both keys renamed."""
        return replace(self, key=rename(self.key), other=rename(self.other))


def compare_fields(key: str, op: str, other: str, *, ignore_case: bool = False) -> CompareFields:
    """True when both keys are present and ``value op other value`` holds; see `CompareFields`.

    >>> from turnout.conditions import format_condition
    >>> format_condition(compare_fields("paid", "<", "total"))
    'paid<field(total)'
    >>> format_condition(compare_fields("user", "!=", "owner", ignore_case=True))
    'user!=i!=field(owner)'
    """
    return CompareFields(key, op, other, ignore_case)  # type: ignore[arg-type]  # the node makes a FieldOperator of it


def is_met(op: str, value: str, other: str, *, ignore_case: bool) -> bool:
    """Return True if a comparison of two present values holds."""
    number = known_number(value)
    other_number = None if number is None else known_number(other)
    if number is not None and other_number is not None:
        return _HOLDS[op](number, other_number)
    if op not in ("=", "!="):
        return False
    same = fold(value) == fold(other) if ignore_case else value == other
    return same == (op == "=")


def _read(reader: ConditionReader, key: str, sign: str) -> CompareFields:
    ignores_case = reader.take(_FOLDS[sign]) is not None
    reader.take(_FIELD)
    other = reader.inner_key(r"\)", "the key to compare with")
    reader.skip()
    if not reader.text.startswith(")", reader.at):
        raise reader.expected("')' after the key to compare with")
    reader.at += 1
    return CompareFields(key, FieldOperator(sign), other, ignores_case)


_FIELD = re.compile(r"\s*field\s*\(", re.IGNORECASE)
_FOLDS = {op.value: re.compile(rf"i{op}", re.IGNORECASE) for op in FieldOperator}


def _ahead(op: FieldOperator) -> re.Pattern[str]:
    return re.compile(rf"(?:i{op})?\s*field\s*\(", re.IGNORECASE)


def _needs_both(check: Check, value: str) -> bool:
    raise TypeError(f"not a test of the value {value!r} alone: {check!r}")


_FOLLOWS: Final = {
    "<": {"<=": True, "!=": True, "=": False, ">": False, ">=": False},
    "<=": {">": False},
    "=": {"<": False, ">": False, "!=": False},
    "!=": {"=": False},
    ">=": {"<": False},
    ">": {">=": True, "!=": True, "=": False, "<": False, "<=": False},
}
"""Outcomes of other comparisons of the same two values, if one is true."""


def leaf_of(atom: Atom) -> CompareFields:
    """Return the leaf of an atom."""
    op, other = atom.text.split(" ", 1)
    return CompareFields(atom.key, FieldOperator(op), other, atom.fold)


def _relation(premise: Atom, conclusion: Atom) -> bool | None:
    op, other = premise.text.split(" ", 1)
    concluded, concluded_other = conclusion.text.split(" ", 1)
    if other != concluded_other or premise.fold != conclusion.fold:
        return None
    return _FOLLOWS[op].get(concluded)


COMPARE_FIELDS: Final = LeafSpec(
    CompareFields,
    (
        LeafKind(
            "fieldCondition",
            CompareFields,
            (
                LeafField("op", "op", TEXT, ""),
                LeafField("field", "other", TEXT, ""),
                LeafField("ignoreCase", "ignore_case", FLAG, False),
            ),
        ),
    ),
    signs=tuple(Sign(op.value, _read, _ahead(op)) for op in FieldOperator),
    tests=(ValueTest(FIELD, 15, _needs_both),),
    atoms=(AtomKind(FIELDS, lambda _atom, _value: True, _relation, lambda _atom: ("0",), needs_more=True),),
)
