"""JSON encodings of a schema's values: plain, or as Connect's JsonConverter writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import TypeAlias

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.deferred import np
from turnout.codecs.json_leaf_readers import EXACT
from turnout.codecs.moments import dates_as_text, timestamps_as_text
from turnout.codecs.nodes import each
from turnout.errors import RecordError
from turnout.records import BigInt, Float32, Int8, Int16, Int32, Moment, Schema, Struct
from turnout.records.schema import ANY, DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.spans import SCHEMALESS, SpanColumn
from turnout.records.text import iso_of, text_of
from turnout.records.types import Column, ConvertColumn, Entries, Value

_KeyText: TypeAlias = Callable[[Hashable, Schema | None], str]


@dataclass(frozen=True, slots=True)
class Form:
    """JSON encoding of the values of one schema, nulls included.

    Attributes:
        column: returns the encoder's input; None if that is the values themselves.
        free: whether there is schemaless data inside, which can hold anything.
        whole: whether structs are converted whole: they are no objects with their fields.
        kind: kind of JSON texts that are copied, see `turnout.records.spans.SpanKind`; nulls only if *column* is None.
    """

    column: ConvertColumn | None = None
    free: bool = False
    whole: bool = False
    kind: str = ""

    def copies(self, column: SpanColumn) -> bool:
        """Return True if the texts of a column are what its values are written as."""
        return self.kind == column.form and (self.column is None or not column.nullable)


_FREE = Form(free=True, kind=SCHEMALESS)
_INTEGERS = (Int8, Int16, Int32, BigInt)


@lru_cache(maxsize=1024)
def json_form(schema: Schema | None) -> Form:
    """Plain JSON: times in ISO 8601, a time of day in milliseconds, decimals as numbers, bytes in base64."""
    return _FREE if schema is None else _nested(schema, json_form, _json_leaf, _text_key)


Composite: TypeAlias = Callable[[Schema, Callable[[Schema | None], Form]], Form | None]
"""Returns the form of a schema, given the forms of its parts; None if it is written as usual."""


@lru_cache(maxsize=1024)
def wire_form(schema: Schema | None, *, defaults: bool, numeric: bool, composite: Composite | None = None) -> Form:
    """JsonConverter's: times as numbers, and with *defaults* a null as its default.

    Decimals are bytes, or with *numeric* numbers (KIP-481), of whatever scale they have, as there. Schemas for which
    *composite* has a form have that one.
    """
    if schema is None:
        return _FREE
    form_of = partial(wire_form, defaults=defaults, numeric=numeric, composite=composite)
    own = None if composite is None else composite(schema, form_of)
    inner = own or _nested(schema, form_of, partial(_wire_leaf, numeric=numeric), None)
    column = inner.column
    default = schema.default if defaults else None
    if default is None and schema.optional:
        return inner

    def strict(values: Column) -> Column:
        if None in values:
            if default is None:
                raise RecordError("a null where the schema requires a value and has no default")
            values = [default if value is None else value for value in values]
        return values if column is None else column(values)

    return Form(strict, inner.free, inner.whole, inner.kind)


def _nested(
    schema: Schema, form_of: Callable[[Schema | None], Form], leaf: Callable[[Schema], Form], key: _KeyText | None
) -> Form:
    if schema.type == "struct":
        return _struct(schema, form_of)
    if schema.type == "array":
        item = form_of(schema.values)
        column = item.column
        return Form(None if column is None else each(lambda values: column(values)), item.free)
    if schema.type == "map":
        return _map(schema, form_of, key)
    return leaf(schema)


def _struct(schema: Schema, form_of: Callable[[Schema | None], Form]) -> Form:
    forms = [(field.name, form_of(field.schema)) for field in schema.fields]
    free = any(form.free for _, form in forms)
    changed = [(name, form.column) for name, form in forms if form.column is not None]
    if not changed:
        return Form(free=free)

    def written(value: Entries) -> Entries:
        return value | {name: column([value.get(name)])[0] for name, column in changed}

    return Form(each(written), free)


def _map(schema: Schema, form_of: Callable[[Schema | None], Form], key: _KeyText | None) -> Form:
    item = form_of(schema.values)
    column = item.column
    texts = schema.keys is not None and schema.keys.type == "string"
    if texts and column is None:
        return item
    keys = None if texts else form_of(schema.keys).column

    def written(value: Entries) -> Value:
        values = list(value.values()) if column is None else column(list(value.values()))
        if texts:
            return dict(zip(value, values, strict=True))
        if key is not None:
            return {key(name, schema.keys): item for name, item in zip(value, values, strict=True)}
        names = list(value) if keys is None else keys(list(value))
        return [list(pair) for pair in zip(names, values, strict=True)]

    return Form(each(written), item.free)


def _text_key(name: Hashable, schema: Schema | None) -> str:
    return str(text_of(name, schema))


def _json_leaf(schema: Schema) -> Form:
    logical = schema.logical
    if logical == TIMESTAMP:
        return Form(timestamps_as_text)
    if logical == DATE:
        return Form(dates_as_text)
    if logical == TIME:
        return Form(each(int))
    return _leaf(schema)


def _leaf(schema: Schema) -> Form:
    if schema.type == "float64":
        return Form(_finite)
    if schema.type == "float32":
        return Form(each(single))
    return Form(free=True) if schema.type == ANY else Form(kind=schema.type)


def _finite(values: Column) -> Column:
    try:
        if all(map(math.isfinite, values)):
            return values
    except TypeError:
        pass  # There are nulls.
    return [finite(value) if type(value) is float else value for value in values]


def _wire_leaf(schema: Schema, *, numeric: bool) -> Form:
    logical = schema.logical
    if logical == TIMESTAMP:
        return Form(each(int))
    if logical == DATE:
        return Form(each(_day_number))
    if logical == TIME:
        return Form(each(_time_number))
    if logical == DECIMAL:
        if numeric:
            return Form(each(_number))
        scale = schema.scale
        return Form(each(lambda value: _unscaled(value, scale)))
    return _leaf(schema)


def _day_number(moment: int) -> int:
    day, rest = divmod(int(moment), MILLISECONDS_PER_DAY)
    if rest:
        raise RecordError(f"a Date has no time of day, found {moment} milliseconds since 1970")
    return day


def _time_number(moment: int) -> int:
    if not 0 <= moment <= MILLISECONDS_PER_DAY:
        raise RecordError(f"a Time is within a day, found {moment} milliseconds since 1970")
    return int(moment)


def _number(value: Decimal) -> Decimal:
    """Return the decimal itself: its text is that of ``BigDecimal.toString``."""
    if not isinstance(value, Decimal):
        raise RecordError(f"expected a decimal, found {value!r}")
    # Java has no negative zero here.
    return value or value.copy_abs()


def _unscaled(value: Decimal, scale: int) -> bytes:
    """Return the shortest bytes, big-endian, of a decimal's integer."""
    if value.as_tuple().exponent != -scale:
        raise RecordError(f"expected a decimal of the scale {scale}, found {value}")
    number = int(value.scaleb(scale, EXACT))
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def hook(value: Value) -> Value:
    """Encode a value of a class that msgspec does not support.

    Raises:
        TypeError: when the value has no form in JSON.
    """
    if isinstance(value, Moment):
        return iso_of(value)
    if isinstance(value, _INTEGERS):
        return int(value)
    if isinstance(value, Float32):
        return single(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def builtin_of(value: Value) -> Value:
    """Convert a value to dicts, lists, texts, numbers, booleans and None; slow, but correct for all values.

    Raises:
        TypeError: when something in it has no form in JSON.

    >>> builtin_of({"at": Moment(0), "share": float("nan")})
    {'at': '1970-01-01T00:00:00.000Z', 'share': 'NaN'}
    """
    if value is None or type(value) in (bool, str, int, bytes, Decimal):
        return value
    if type(value) is float:
        return finite(value)
    if isinstance(value, Struct):
        column = json_form(value.schema).column
        return builtin_of(value.fields if column is None else column([value.fields])[0])
    if isinstance(value, Mapping):
        return {_name(key): builtin_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [builtin_of(item) for item in value]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return hook(value)


def finite(value: float) -> float | str:
    """Return the number; Java's name of one that JSON has no number for."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def single(value: float) -> float | str:
    """Return the shortest decimal number that means the same in single precision."""
    return float(str(np.float32(value))) if math.isfinite(value) else finite(value)


def _name(key: Hashable) -> str:
    return "null" if key is None else str(text_of(key))
