"""A Connect schema as a frozen value, and its JSON form (the one Connect's own JsonConverter writes)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import Final

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.untrusted import JsonObject
from turnout.records.types import DynamicValue, Fields, Value

_DATA = "org.apache.kafka.connect.data."
DATE = _DATA + "Date"
TIME = _DATA + "Time"
TIMESTAMP = _DATA + "Timestamp"
DECIMAL = _DATA + "Decimal"
LOGICAL = {DATE: "int32", TIME: "int32", TIMESTAMP: "int64", DECIMAL: "bytes"}
"""The logical types: each is identified by its schema's name and carried by a primitive type."""

_JSON_NAMES = {"float32": "float", "float64": "double"}
_FROM_JSON = {json: name for name, json in _JSON_NAMES.items()}
_TYPES = frozenset(
    ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "bytes", "array", "map", "struct")
)
PRECISION = "connect.decimal.precision"
"""The parameter with the most digits of a decimal, as Confluent's converters write it."""

DIGITS = 38
"""That Spark's decimals have."""

"""Milliseconds: a date's default is held as those of its midnight, and is in JSON the number of its day."""

_EXACT = Context(prec=1000)
"""Moves a decimal's point without rounding it."""

ANY = "variant"
"""Not a Connect type: schemaless data inside a struct, as Spark's ``variant`` columns allow."""


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a struct.

    >>> Schema("struct", fields=(Field("city", Schema("string")),)).field("city").type
    'string'
    """

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """Connect's schema of a key, a value or a field.

    Attributes:
        type: ``int8`` … ``float64``, ``boolean``, ``string``, ``bytes``, ``array``, ``map``, ``struct``; ``variant``
            stands for schemaless data inside a struct.
        optional: whether null may be stored.
        default: value that a reader sees instead of a stored null. Date objects are milliseconds, decimals `Decimal`,
            structs dicts.
        parameters: pairs, in their order.
        fields: fields of a struct, in their order.
        keys: keys of a map; None where the keys have no common schema.
        values: values of an array or a map; None where the elements have no common schema.
        omissible: whether a struct may lack the field: None stands for a field that is absent, as in JSON Schema.

    >>> schema = Schema("struct", fields=(Field("city", Schema("string", optional=True)),))
    >>> schema.to_json()
    {'type': 'struct', 'optional': False, 'fields': [{'field': 'city', 'type': 'string', 'optional': True}]}
    >>> Schema.from_json(schema.to_json()) == schema, schema.field("city").optional, schema.field("town")
    (True, True, None)
    """

    type: str
    optional: bool = False
    # Part of what makes schemas equal, but a dict or a list has no hash.
    default: DynamicValue = field(default=None, hash=False)
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    keys: Schema | None = None
    values: Schema | None = None
    omissible: bool = False

    @property
    def logical(self) -> str | None:
        """The logical type, if the name is that of one and the carrying type is right."""
        return self.name if self.name in LOGICAL and LOGICAL[self.name] == self.type else None

    @property
    def scale(self) -> int:
        """The scale of a decimal.

        Raises:
            ValueError: when it is no whole number.
        """
        text = dict(self.parameters).get("scale", "0")
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"expected a whole number as a decimal's scale, found {text!r}") from None

    @property
    def digits(self) -> int:
        """The most digits of a decimal: its parameter ``connect.decimal.precision``, or Spark's 38."""
        text = dict(self.parameters).get(PRECISION, "")
        return int(text) if text.isdecimal() and max(self.scale, 1) <= int(text[:9]) <= DIGITS else DIGITS

    def field(self, name: str) -> Schema | None:
        """Return the schema of the field of that name, None if the field is missing."""
        return next((field.schema for field in self.fields if field.name == name), None)

    def basics(self, fields: tuple[Field, ...]) -> Schema:
        """Return a struct with these fields and only the name, version, doc and parameters of this one."""
        return Schema(
            "struct", name=self.name, version=self.version, doc=self.doc, parameters=self.parameters, fields=fields
        )

    def bare(self) -> Schema:
        """Return the same type without attributes of its own; inner schemas are unchanged."""
        return Schema(self.type, fields=self.fields, keys=self.keys, values=self.values)

    def with_(self, **changes: DynamicValue) -> Schema:
        """Return the same schema with some attributes changed."""
        return replace(self, **changes)

    def to_json(self, *, numeric: bool = False) -> JsonObject:
        """Return the schema as Connect's JsonConverter writes it.

        Args:
            numeric: whether decimals among defaults stay `Decimal`, to be written as numbers (KIP-481), and not base64.
        """
        document: JsonObject = {"type": _JSON_NAMES.get(self.type, self.type), "optional": self.optional}
        if self.type == "struct":
            document["fields"] = [
                {"field": field.name, **field.schema.to_json(numeric=numeric)} for field in self.fields
            ]
        if self.type == "map":
            document["keys"] = self.keys and self.keys.to_json(numeric=numeric)
            document["values"] = self.values and self.values.to_json(numeric=numeric)
        if self.type == "array":
            document["items"] = self.values and self.values.to_json(numeric=numeric)
        for attribute in ("name", "version", "doc"):
            if getattr(self, attribute) is not None:
                document[attribute] = getattr(self, attribute)
        if self.parameters:
            document["parameters"] = dict(self.parameters)
        if self.default is not None:
            document["default"] = _default_to_json(self, self.default, numeric=numeric)
        return document

    @classmethod
    def from_json(cls, document: Fields) -> Schema:
        """Read what `to_json` writes; fractions among defaults may be `Decimal`, so that decimals are exact.

        Raises:
            ValueError: when it is not a schema; the message has the fault.
        """
        type_ = _FROM_JSON.get(str(document.get("type")), document.get("type"))
        if type_ not in _TYPES and type_ != ANY:
            raise ValueError(f"expected a Connect type, found {document.get('type')!r}")
        fields = tuple(Field(str(field.get("field")), cls.from_json(field)) for field in document.get("fields") or ())
        keys = document.get("keys")
        values = document.get("items") if type_ == "array" else document.get("values")
        parameters = document.get("parameters") or {}
        bare = cls(
            str(type_),
            optional=bool(document.get("optional", False)),
            name=document.get("name"),
            version=document.get("version"),
            doc=document.get("doc"),
            parameters=tuple((str(name), str(value)) for name, value in parameters.items()),
            fields=fields,
            keys=cls.from_json(keys) if keys else None,
            values=cls.from_json(values) if values else None,
        )
        default = document.get("default")
        return bare if default is None else bare.with_(default=_default_from_json(bare, default))


def default_of(schema: Schema, name: str) -> Value:
    """Return the field *name* of *schema*'s struct default, None if it is missing."""
    return schema.default.get(name) if isinstance(schema.default, dict) else None


def _default_to_json(schema: Schema, value: DynamicValue, *, numeric: bool) -> DynamicValue:
    if value is None:
        return None
    if schema.type == "struct":
        return {f.name: _default_to_json(f.schema, value.get(f.name), numeric=numeric) for f in schema.fields}
    if schema.type == "array" and schema.values:
        return [_default_to_json(schema.values, item, numeric=numeric) for item in value]
    if schema.type == "map" and schema.values:
        return {key: _default_to_json(schema.values, item, numeric=numeric) for key, item in value.items()}
    if schema.logical == DATE:
        return value // MILLISECONDS_PER_DAY
    if isinstance(value, Decimal) and not numeric:
        value = _bytes_of(int(value.scaleb(schema.scale, _EXACT)))
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return value


def _default_from_json(schema: Schema, value: DynamicValue) -> DynamicValue:
    if value is None:
        return None
    if schema.type == "struct":
        return {f.name: _default_from_json(f.schema, value.get(f.name)) for f in schema.fields}
    if schema.type == "array" and schema.values:
        return [_default_from_json(schema.values, item) for item in value]
    if schema.type == "map" and schema.values:
        return {key: _default_from_json(schema.values, item) for key, item in value.items()}
    if schema.logical == DATE:
        return value * MILLISECONDS_PER_DAY
    if schema.logical == DECIMAL and not isinstance(value, str):
        number = Decimal(str(value))
        return number if number else number.copy_abs()
    if isinstance(value, Decimal):
        return float(value)
    if schema.type == "bytes":
        raw = _from_base64(value)
        number = Decimal(int.from_bytes(raw, "big", signed=True))
        return number.scaleb(-schema.scale, _EXACT) if schema.logical else raw
    return value


def _from_base64(value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise ValueError(f"expected base64 as the default of bytes, found {value!r}") from None


def _bytes_of(number: int) -> bytes:
    """Return the shortest bytes of a signed integer, big-endian, as Java's BigInteger has them."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


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
    fields: JsonObject


_CLASSES: Final = frozenset(
    (str, bytes, bool, int, float, Decimal, dict, list, Int8, Int16, Int32, BigInt, Float32, Moment, Struct)
)


def class_of(kind: type) -> type:
    """Return the class by which Connect knows the values of a type: for a subclass the nearest one above it.

    >>> from collections import OrderedDict
    >>> class_of(OrderedDict), class_of(Moment), class_of(object)
    (<class 'dict'>, <class 'turnout.records.schema.Moment'>, <class 'object'>)
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
