"""Values of messages in Protobuf's JSON mapping: integers of 64 bits as texts, names in lowerCamelCase, flat unions.

What a message is made of is known by the parameters and names that ProtobufData gives Connect's schemas. A field that
is absent is left out, one with its default is written, as the mapping allows. Sources: protobuf.dev, ProtoJSON format.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import ClassVar, Final

from turnout.base.clocks import EPOCH, MILLISECONDS_PER_DAY
from turnout.codecs.codec import Decoded, attempt, with_tombstones
from turnout.codecs.json_writing import Form, builtin_of, encode_json, finite, single, texts_of
from turnout.codecs.plain_json import ObjectReader
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.text import text_of
from turnout.records.types import Convert, Entries

_NAMESPACE: Final = "io.confluent.connect.protobuf"
_UNION: Final = f"{_NAMESPACE}.Union."
_KIND: Final = f"{_NAMESPACE}.Type"
_ENUM: Final = f"{_NAMESPACE}.Enum"
_UNKNOWN_VALUE: Final = "UNKNOWN_ENUM_VALUE_"
_WRAPPERS: Final = frozenset(
    f"{name}Value" for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_SHORT_INTEGERS: Final = frozenset({"uint32", "fixed32"})
_UNSIGNED: Final = frozenset({"uint64", "fixed64"})


class ProtobufJson:
    """The format ``json`` with the mapping of Protobuf, for values with a schema; others are plain JSON.

    Args:
        original_names: whether fields have the names of the file, and not those in lowerCamelCase.
    """

    format: ClassVar[str] = "json"
    class_name: ClassVar[str] = "org.apache.kafka.connect.json.JsonConverter"

    def __init__(self, *, original_names: bool = False) -> None:
        self._form_of = partial(mapped_form, original_names=original_names)
        self._reader = ObjectReader()

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `turnout.codecs.Codec.decode`."""
        return with_tombstones(rows, texts, self._reader.read)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `turnout.codecs.Codec.encode`."""
        if block.kind == "null" or block.schema is None:
            return attempt(*encode_json(block))
        return attempt(*texts_of(block, self._form_of))

    def schema(self) -> Schema | None:
        """Return None: the format has no schema."""
        return None


@lru_cache(maxsize=1024)
def mapped_form(schema: Schema | None, *, original_names: bool = False) -> Form:
    """Return the JSON encoding of a schema's values by the mapping."""
    if schema is None:
        return Form(free=True)
    write = _writer(schema, str if original_names else json_name)
    return Form(lambda values: [None if value is None else write(value) for value in values], whole=True)


def json_name(name: str) -> str:
    """Return the name of a field in lowerCamelCase, as protoc derives it.

    >>> json_name("order_id"), json_name("_x_1a")
    ('orderId', 'X1a')
    """
    head, *others = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in others)


def _writer(schema: Schema, name_of: Callable[[str], str]) -> Convert:
    if schema.type == "struct":
        return _struct(schema, name_of)
    if schema.type == "array" and schema.values is not None:
        item = _writer(schema.values, name_of)
        return lambda values: [None if value is None else item(value) for value in values]
    if schema.type == "map" and schema.values is not None:
        keys, inner = schema.keys, _writer(schema.values, name_of)
        return lambda entries: {
            str(text_of(key, keys)): None if value is None else inner(value) for key, value in entries.items()
        }
    return _leaf(schema)


def _struct(schema: Schema, name_of: Callable[[str], str]) -> Convert:
    simple = (schema.name or "").rpartition(".")[2]
    names = tuple(field.name for field in schema.fields)
    if simple in _WRAPPERS and names == ("value",):
        value_of = _writer(schema.fields[0].schema, name_of)
        return lambda value: None if value.get("value") is None else value_of(value["value"])
    if simple == "Duration" and names == ("seconds", "nanos"):
        return _duration
    if simple == "FieldMask" and names == ("paths",):
        return lambda value: ",".join(json_name(path) for path in value.get("paths") or ())
    fields = [
        (field.name, name_of(field.name), _writer(field.schema, name_of), _is_union(field.schema))
        for field in schema.fields
    ]

    def write(value: Entries) -> Entries:
        written: Entries = {}
        for name, shown, convert, is_union in fields:
            found = value.get(name)
            if found is None:
                continue
            if is_union:
                written |= convert(found)
            else:
                written[shown] = convert(found)
        return written

    return write


def _is_union(schema: Schema) -> bool:
    return schema.type == "struct" and (schema.name or "").startswith(_UNION)


def _leaf(schema: Schema) -> Convert:
    logical, kind = schema.logical, dict(schema.parameters).get(_KIND)
    if logical == TIMESTAMP:
        return _timestamp
    if logical == DATE:
        return _date
    if logical == TIME:
        return _time_of_day
    if logical == DECIMAL:
        return _decimal
    if schema.type == "int64" and kind not in _SHORT_INTEGERS:
        return _unsigned if kind in _UNSIGNED else str
    if schema.type == "float32":
        return single
    if schema.type == "float64":
        return finite
    if schema.type == "string" and _ENUM in dict(schema.parameters):
        return _enum
    return builtin_of


def _unsigned(value: int) -> str:
    return str(value if value >= 0 else value + 2**64)


def _enum(value: str) -> str | int:
    """Return the name of an enum's value, or the number of one that the schema does not know."""
    number = value.rpartition("_")[2] if value.startswith(_UNKNOWN_VALUE) else ""
    return int(number) if number.removeprefix("-").isdecimal() else value


def _timestamp(value: int) -> str:
    try:
        time = EPOCH + timedelta(milliseconds=int(value))
    except OverflowError:
        raise RecordError(f"a Timestamp is between the years 1 and 9999, found {int(value)} milliseconds") from None
    return (
        time.astimezone(UTC)
        .isoformat(timespec="milliseconds" if int(value) % 1000 else "seconds")
        .replace("+00:00", "Z")
    )


def _date(value: int) -> Entries:
    try:
        day: datetime = EPOCH + timedelta(days=int(value) // MILLISECONDS_PER_DAY)
    except OverflowError:
        raise RecordError(f"a Date is between the years 1 and 9999, found {int(value)} milliseconds") from None
    return {"year": day.year, "month": day.month, "day": day.day}


def _time_of_day(value: int) -> Entries:
    seconds, milliseconds = divmod(int(value), 1000)
    return {
        "hours": seconds // 3600,
        "minutes": seconds // 60 % 60,
        "seconds": seconds % 60,
        "nanos": milliseconds * 1_000_000,
    }


def _decimal(value: Decimal) -> Entries:
    """Return a ``confluent.type.Decimal``: the bytes of the unscaled integer, the digits, and the scale."""
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    unscaled = number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    return {"value": b64encode(unscaled).decode(), "precision": len(digits), "scale": -int(exponent)}


def _duration(value: Entries) -> str:
    seconds, nanos = int(value.get("seconds") or 0), int(value.get("nanos") or 0)
    sign = "-" if seconds < 0 or nanos < 0 else ""
    fraction = f"{abs(nanos):09d}"
    for width in (3, 6, 9):
        if not fraction[width:].strip("0"):
            fraction = fraction[:width]
            break
    return f"{sign}{abs(seconds)}{'.' + fraction if nanos else ''}s"
