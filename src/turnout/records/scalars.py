"""Types for Connect values that Python's own types do not distinguish.

A value with a schema is plain Python: the schema says its width. Schemaless data says it itself: a plain ``int`` is
Connect's int64 and a plain ``float`` its float64; everything else is one of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnout.records.schema import Schema


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
