"""Equality, order and truth of values in Groovy and in JavaScript, as Debezium's expressions need them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from turnout.errors import RecordError
from turnout.records import BigInt, Float32, Int8, Int16, Int32, Moment, Schema
from turnout.records.schema import Struct
from turnout.records.text import text_of
from turnout.records.types import DynamicValue

_EXCEPTION: Final = "groovy.lang.GroovyRuntimeException"
_WIDTHS: Final[dict[type, str]] = {Int8: "int8", Int16: "int16", Int32: "int32", BigInt: "bigint", Float32: "float32"}
_PLAIN: Final[dict[type, str]] = {str: "string", bool: "boolean", int: "int64", float: "float64", Decimal: "decimal"}
_FLOATS: Final = ("float32", "float64")


class Typed(NamedTuple):
    """Value with what Java's class of it depends on.

    Attributes:
        value: the value; None is null.
        type: the type's name in Connect's words, ``bigint``, ``decimal`` or ``gstring``; empty for null and for others.
    """

    value: DynamicValue
    type: str = ""

    @classmethod
    def of(cls, value: DynamicValue, schema: Schema | None = None) -> Typed:
        """Return a value of a record with its type."""
        plain_type = _PLAIN.get(type(value)) if schema is None else None
        if plain_type is not None:
            return cls(value, plain_type)
        match value:
            case None:
                return NULL
            case bool():
                return cls(value, "boolean")
            case str():
                return cls(value, "string")
            case Moment():
                return cls(value, "time")
            case Decimal():
                return cls(value, "decimal")
            case int() | float():
                declared = schema.type if schema is not None and schema.logical is None else ""
                plain = "int64" if isinstance(value, int) else "float64"
                return cls(value, _WIDTHS.get(type(value)) or (declared if declared[:3] in ("int", "flo") else plain))
        return cls(value, "list" if isinstance(value, list | tuple) else "")

    @property
    def is_number(self) -> bool:
        """True for all of Java's numbers."""
        return isinstance(self.value, int | float | Decimal) and self.type not in ("boolean", "time")

    @property
    def is_text(self) -> bool:
        """True for texts, interpolated ones included."""
        return self.type in ("string", "gstring")

    @property
    def text(self) -> str:
        """The value as it is interpolated.

        Raises:
            RecordError: it has a form that is not known here.
        """
        if self.value is None:
            return "null"
        if not (self.is_number or self.is_text or self.type == "boolean"):
            raise RecordError("only texts, numbers, booleans and null are put into a text", _EXCEPTION)
        shown = Float32(self.value) if self.type == "float32" else self.value
        return text_of(shown) or ""


NULL: Final = Typed(None)
TRUE: Final = Typed(True, "boolean")
FALSE: Final = Typed(False, "boolean")


class Groovy:
    """Rules of Groovy 4: `DefaultTypeTransformation` and `NumberMath`."""

    name: Final = "Groovy"

    @staticmethod
    def is_true(item: Typed) -> bool:
        """Return Groovy's truth: null, zero and what is empty are false."""
        if isinstance(item.value, float) and math.isnan(item.value):
            return True
        if isinstance(item.value, Moment | Struct) or item.type == "time":
            return True
        return bool(item.value)

    @classmethod
    def equal(cls, left: Typed, right: Typed) -> bool:
        """Return what ``==`` gives; values of unrelated types are not equal."""
        if left.value is None or right.value is None:
            return left.value is right.value
        if left.type == right.type == "list":
            pairs = zip(left.value, right.value, strict=False)
            return len(left.value) == len(right.value) and all(cls.equal(Typed.of(a), Typed.of(b)) for a, b in pairs)
        order = _order(left, right)
        if order is not None:
            return order == 0
        if isinstance(left.value, bytes):
            return False
        return left.type == right.type and bool(left.value == right.value)

    @staticmethod
    def compare(left: Typed, right: Typed) -> int:
        """Return the order of two values; null is less than all others.

        Raises:
            RecordError: Groovy has no order for them.
        """
        if left.value is None or right.value is None:
            return (left.value is not None) - (right.value is not None)
        order = _order(left, right)
        if order is None and left.type == right.type in ("boolean", "time"):
            order = (left.value > right.value) - (left.value < right.value)
        if order is None:
            raise RecordError(
                f"Cannot compare {_class_of(left)} with {_class_of(right)}", "java.lang.IllegalArgumentException"
            )
        return order

    @classmethod
    def within(cls, item: Typed, items: Sequence[Typed]) -> bool:
        """Return what ``in`` gives: an element has the same class and value, as in Java's ``contains``."""
        return any(java_equal(item, other) for other in items)


class JavaScript:
    """Rules of JavaScript for the same values, numbers being doubles."""

    name: Final = "JavaScript"

    @staticmethod
    def is_true(item: Typed) -> bool:
        """Return JavaScript's truth: objects and lists are true."""
        if isinstance(item.value, float) and math.isnan(item.value):
            return False
        return True if isinstance(item.value, Mapping | list | tuple | Struct | Moment) else bool(item.value)

    @classmethod
    def equal(cls, left: Typed, right: Typed) -> bool:
        """Return what ``==`` gives, which converts texts and booleans to numbers."""
        if left.value is None or right.value is None:
            return left.value is right.value
        if left.is_text and right.is_text:
            return bool(left.value == right.value)
        if _is_plain(left) and _is_plain(right):
            return _js_number(left) == _js_number(right)
        return left.value is right.value

    @classmethod
    def identical(cls, left: Typed, right: Typed) -> bool:
        """Return what ``===`` gives."""
        kinds = [(one.is_text, one.is_number, one.type == "boolean", one.value is None) for one in (left, right)]
        return kinds[0] == kinds[1] and cls.equal(left, right)

    @staticmethod
    def compare(left: Typed, right: Typed) -> int | None:
        """Return the order of two values; None where every comparison is false."""
        if left.is_text and right.is_text:
            return int(left.value > right.value) - int(left.value < right.value)
        if not all(_is_plain(one) or one.value is None for one in (left, right)):
            return None
        one, other = _js_number(left), _js_number(right)
        return None if math.isnan(one) or math.isnan(other) else (one > other) - (one < other)


Rules = Groovy | JavaScript


def java_equal(left: Typed, right: Typed) -> bool:
    """Return what ``left.equals(right)`` gives in Java: an Integer never equals a Long, nor 1.0 the decimal 1.00."""
    if left.type != right.type or left.value is None or right.value is None:
        return left.value is None and right.value is None
    if left.type in _FLOATS:
        return _double_order(left.value, right.value) == 0
    if left.type == "decimal":
        return bool(left.value == right.value and left.value.as_tuple() == right.value.as_tuple())
    return left.type != "gstring" and bool(left.value == right.value)


def _order(left: Typed, right: Typed) -> int | None:
    """Return the order of numbers and texts in Groovy; None for others.

    A text of one character is that character's number beside a number, as Groovy has it.
    """
    if left.is_text and right.is_text:
        one, other = left.value.encode("utf-16-be", "surrogatepass"), right.value.encode("utf-16-be", "surrogatepass")
        return int(one > other) - int(one < other)
    if left.is_number and right.is_text and len(right.value) == 1:
        return _number_order(left, Typed(ord(right.value), "int32"))
    if right.is_number and left.is_text and len(left.value) == 1:
        return _number_order(Typed(ord(left.value), "int32"), right)
    return _number_order(left, right) if left.is_number and right.is_number else None


def _number_order(left: Typed, right: Typed) -> int:
    """Return the order of two numbers: as doubles if one is a float or double, else exactly."""
    if left.type in _FLOATS or right.type in _FLOATS:
        return _double_order(_double(left.value), _double(right.value))
    return int(left.value > right.value) - int(left.value < right.value)


def _double(value: int | float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _double_order(left: float, right: float) -> int:
    """Return what Java's ``Double.compare`` gives: NaN is greatest, and -0.0 less than 0.0."""
    keys = [(math.isnan(one), 0.0 if math.isnan(one) else one, math.copysign(1.0, one)) for one in (left, right)]
    if keys[0][0] and keys[1][0]:
        return 0
    return (keys[0] > keys[1]) - (keys[0] < keys[1])


def _is_plain(item: Typed) -> bool:
    return item.is_number or item.is_text or item.type == "boolean"


def _js_number(item: Typed) -> float:
    if item.value is None:
        return 0.0
    if not item.is_text:
        return _double(item.value)
    text = item.value.strip()
    if not text:
        return 0.0
    try:
        return math.nan if "_" in text or text.lower().strip("+-") in ("inf", "infinity", "nan") else float(text)
    except ValueError:
        return math.nan


def _class_of(item: Typed) -> str:
    return item.type or type(item.value).__name__
