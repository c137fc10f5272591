"""Types for Connect values that Python's own types do not distinguish.

A value with a schema is plain Python: the schema says its width. Schemaless data says it itself: a plain ``int`` is
Connect's int64 and a plain ``float`` its float64; everything else is one of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from turnout.records.schema import Schema
from turnout.records.types import DynamicValue


class Int8(int):
    """A schemaless integer of 8 bits.

    >>> from turnout.records import Record
    >>> from turnout.transforms import Chain
    >>> chain = Chain.from_config({"transforms": "c", "transforms.c.type": "Cast$Value", "transforms.c.spec": "a:int8"})
    >>> (record,) = chain.apply([Record("t", {"a": "7"})])
    >>> record.value, type(record.value["a"]).__name__
    ({'a': 7}, 'Int8')
    """

    __slots__ = ()


class Int16(int):
    """A schemaless integer of 16 bits."""

    __slots__ = ()


class Int32(int):
    """A schemaless integer of 32 bits."""

    __slots__ = ()


class BigInt(int):
    """A schemaless integer without a width (``java.math.BigInteger``)."""

    __slots__ = ()


class Float32(float):
    """A schemaless number of single precision, rounded to it already."""

    __slots__ = ()


class Moment(int):
    """A date object (``java.util.Date``): milliseconds since 1970, whether a Date, a Time or a Timestamp is meant.

    With a schema its logical type says which it is.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct inside schemaless data.

    Attributes:
        schema: schema of the struct.
        fields: every field by its name; a stored null is None.

    >>> from turnout.records import Field, Schema
    >>> flight = Struct(Schema("struct", fields=(Field("carrier", Schema("string")),)), {"carrier": "UA"})
    >>> flight.fields["carrier"], flight.schema.field("carrier").type
    ('UA', 'string')
    """

    schema: Schema
    fields: dict[str, Any]


_CLASSES: Final = frozenset(
    (str, bytes, bool, int, float, Decimal, dict, list, Int8, Int16, Int32, BigInt, Float32, Moment, Struct)
)


def class_of(kind: type) -> type:
    """Return the class by which Connect knows the values of a type: for a subclass the nearest one above it.

    >>> from collections import OrderedDict
    >>> class_of(OrderedDict), class_of(Moment), class_of(object)
    (<class 'dict'>, <class 'turnout.records.scalars.Moment'>, <class 'object'>)
    """
    return kind if kind in _CLASSES else next((parent for parent in kind.__mro__ if parent in _CLASSES), kind)


def exact(value: DynamicValue) -> DynamicValue:
    """Return a value from a Python program with a value of `class_of` in place of those of subclasses, at any depth.

    >>> from collections import OrderedDict
    >>> exact([OrderedDict(n=1)])
    [{'n': 1}]
    """
    return value if _is_exact(value) else _exact(value)


def _is_exact(value: DynamicValue) -> bool:
    """Return whether nothing in a value is of a subclass; however deep it is, without recursion."""
    stack: list[DynamicValue] = [value]
    while stack:
        inner = stack.pop()
        kind = type(inner)
        if kind is dict:
            stack += inner
            stack += inner.values()
        elif kind is list:
            stack += inner
        elif class_of(kind) is not kind:
            return False
    return True


def _exact(value: DynamicValue) -> DynamicValue:
    own = class_of(type(value))
    if own is dict:
        return {_exact(name): _exact(item) for name, item in value.items()}
    if own is list:
        return [_exact(item) for item in value]
    if type(value) is own:
        return value
    # An enum that is a text too prints another one.
    return str.__str__(value) if own is str else own(value)
