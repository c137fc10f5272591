"""The leaves of a condition on one value: patterns, numbers, presence and networks."""

from __future__ import annotations

import re
from functools import singledispatch

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.conditions import Cidr, Compare, Exists, Kiwi, Operator
from turnout.conditions.evaluate import NUMBER
from turnout.conditions.model import Leaf
from turnout.conditions.pattern import ANY, Wildcard, fold, parse_pattern
from turnout.errors import NotCompilableError
from turnout.spark.record import Typed
from turnout.spark.text import text_of

__all__ = ["leaf_holds"]

_INTEGERS = frozenset(("int8", "int16", "int32", "int64"))
_REALS = frozenset(("float32", "float64"))


@singledispatch
def leaf_holds(leaf: Leaf, value: Typed) -> Column:  # noqa: ARG001 - the signature of the rules
    """Whether the leaf's test holds for *value*, its negation left aside; may be null, which means no.

    Raises:
        NotCompilableError: for a leaf that has no Spark form here.
    """
    raise NotCompilableError(leaf, "this test is not compiled to a predicate")


@leaf_holds.register
def _(_leaf: Exists, value: Typed) -> Column:
    return value.column.isNotNull()


@leaf_holds.register
def _(leaf: Kiwi, value: Typed) -> Column:
    text = text_of(value)
    if leaf.ignore_case:
        text = F.replace(F.lower(text), F.lit("ς"), F.lit("σ"))
    pieces = [
        fold(piece) if leaf.ignore_case and isinstance(piece, str) else piece for piece in parse_pattern(leaf.pattern)
    ]
    if leaf.partial:
        words = F.regexp_extract_all(text, F.lit(r"([\p{L}\p{M}\p{Nd}_]+)"))
        return F.exists(words, lambda word: _matches(word, pieces))
    return _matches(text, pieces)


def _matches(text: Column, pieces: list[str | Wildcard]) -> Column:
    """The cheapest test that says the same as the pattern."""
    match pieces:
        case []:
            return text == ""
        case [str(whole)]:
            return text == whole
        case [w] if w is ANY:
            return text.isNotNull()
        case [str(head), w] if w is ANY:
            return text.startswith(head)
        case [w, str(tail)] if w is ANY:
            return text.endswith(tail)
        case [v, str(part), w] if v is ANY and w is ANY:
            return text.contains(part)
    regex = "".join(_quoted(piece) if isinstance(piece, str) else ".*" if piece is ANY else "." for piece in pieces)
    return text.rlike(rf"(?s)\A(?:{regex})\z")


def _quoted(text: str) -> str:
    return re.sub(r"([\\.^$|?*+()\[\]{}#&~\s-])", r"\\\1", text)


_OPERATORS = {
    Operator.LESS: lambda left, right: left < right,
    Operator.AT_MOST: lambda left, right: left <= right,
    Operator.EQUAL: lambda left, right: left == right,
    Operator.AT_LEAST: lambda left, right: left >= right,
    Operator.MORE: lambda left, right: left > right,
}


@leaf_holds.register
def _(leaf: Compare, value: Typed) -> Column:
    compare = _OPERATORS[leaf.op]
    type_ = value.schema.type if value.schema is not None and value.schema.logical is None else None
    number = F.lit(leaf.number)
    if type_ in _INTEGERS:
        return compare(value.column.cast("double"), number)
    if type_ in _REALS:
        real = value.column.cast("double")
        # Spark holds NaN to be greater than every number; it is no number here.
        return compare(real, number) & ~F.isnan(real)
    text = text_of(value)
    return text.rlike(rf"\A(?:{NUMBER})\z") & compare(text.try_cast("double"), number)


@leaf_holds.register
def _(leaf: Cidr, value: Typed) -> Column:
    raise NotCompilableError(leaf, "networks are not compiled to a predicate")
