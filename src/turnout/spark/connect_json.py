"""Connect's JsonConverter on columns: ``{"schema": …, "payload": …}`` and its wire form of the logical types.

As there, a null that has a default is that default, when it is read and when it is written (KIP-581).
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from turnout.spark.schemas import literal, spark_type
from turnout.spark.typed import with_default
from turnout.transforms.schema import DATE, DECIMAL, TIMESTAMP, Schema

__all__ = ["bare", "envelope", "from_wire", "misfit", "to_wire", "wire_type"]

_MILLIS = 9_223_372_036_854_775
"""The first and last millisecond of Spark's timestamps, from the epoch."""


def wire_type(schema: Schema) -> T.DataType:
    """The type that a payload has in JSON: logical types as the numbers or bytes that carry them."""
    if schema.logical == DECIMAL:
        return T.BinaryType()
    if schema.logical is not None:
        return T.LongType() if schema.type == "int64" else T.IntegerType()
    if schema.type == "struct":
        return T.StructType([T.StructField(field.name, wire_type(field.schema)) for field in schema.fields])
    if schema.type == "array" and schema.values:
        return T.ArrayType(wire_type(schema.values))
    if schema.type == "map" and schema.values:
        return T.MapType(T.StringType(), wire_type(schema.values))
    return spark_type(schema)


def _is_plain(schema: Schema, *, defaults: bool) -> bool:
    """Whether the wire form is the Spark form, all the way down."""
    if schema.logical in (DECIMAL, DATE, TIMESTAMP) or (defaults and schema.default is not None):
        return False
    inner = [field.schema for field in schema.fields] + [one for one in (schema.values,) if one]
    return all(_is_plain(one, defaults=defaults) for one in inner)


def from_wire(column: Column, schema: Schema, *, defaults: bool = True) -> Column:
    """A payload as Spark holds values of this schema; null where it cannot hold it, see `misfit`.

    Args:
        column: the payload, of the type that `wire_type` says.
        schema: what the payload is a value of.
        defaults: whether a null that has a default is that default, as ``replace.null.with.default`` says.
    """
    if _is_plain(schema, defaults=defaults):
        return column
    if schema.logical == TIMESTAMP:
        made = F.when(column.between(-_MILLIS, _MILLIS), F.timestamp_millis(column))
    elif schema.logical == DATE:
        made = F.date_from_unix_date(column)
    elif schema.logical == DECIMAL:
        made = _decimal(column, schema)
    else:
        made = _each(column, schema, lambda one, inner: from_wire(one, inner, defaults=defaults))
    if not defaults or schema.default is None:
        return made
    # A payload that is there and cannot be held is no null to be replaced.
    return F.when(column.isNull(), literal(schema, schema.default)).otherwise(made)


def misfit(column: Column, schema: Schema, *, defaults: bool = True) -> Column | None:
    """Where a payload is null and may not be, or beyond what Spark holds: never null; None if it never is."""
    wrong: list[Column] = []
    if not schema.optional and not (defaults and schema.default is not None):
        wrong.append(column.isNull())
    if schema.logical == TIMESTAMP:
        wrong.append(F.coalesce(~column.between(-_MILLIS, _MILLIS), F.lit(False)))
    if schema.logical == DECIMAL:
        # Numbers of fifteen bytes have at most 37 digits; only longer ones have to be looked at.
        beyond = (F.length(column) > 15) & _decimal(column, schema).isNull()
        wrong.append(F.coalesce(beyond, F.lit(False)))
    for field in schema.fields:
        inside = misfit(column.getField(field.name), field.schema, defaults=defaults)
        if inside is not None:
            wrong.append(column.isNotNull() & inside)
    if schema.type in ("array", "map") and schema.values is not None:
        items = column if schema.type == "array" else F.map_values(column)
        wrong += _items(items, schema.values, defaults=defaults)
    return reduce(operator.or_, wrong) if wrong else None


def _items(items: Column, schema: Schema, *, defaults: bool) -> list[Column]:
    """Where one of the items is a misfit; nothing if none ever is."""
    if misfit(F.lit(None).cast(wire_type(schema)), schema, defaults=defaults) is None:
        return []

    def wrong(item: Column) -> Column:
        found = misfit(item, schema, defaults=defaults)
        assert found is not None
        return found

    return [F.coalesce(F.exists(items, wrong), F.lit(False))]


def to_wire(column: Column, schema: Schema, *, defaults: bool = True) -> Column:
    """A value as its payload is written."""
    if _is_plain(schema, defaults=defaults):
        return column
    if defaults:
        column = with_default(column, schema)
    if schema.logical == TIMESTAMP:
        return F.unix_millis(column)
    if schema.logical == DATE:
        return F.unix_date(column)
    if schema.logical == DECIMAL:
        return _bytes_of(column)
    return _each(column, schema, lambda one, inner: to_wire(one, inner, defaults=defaults))


def _each(column: Column, schema: Schema, convert: Callable[[Column, Schema], Column]) -> Column:
    if schema.type == "struct":
        parts = [p for f in schema.fields for p in (F.lit(f.name), convert(column.getField(f.name), f.schema))]
        return F.when(column.isNotNull(), F.named_struct(*parts))
    if schema.values is None or schema.type not in ("array", "map"):
        return column
    inner = schema.values
    if schema.type == "array":
        return F.transform(column, lambda item: convert(item, inner))
    return F.transform_values(column, lambda _, item: convert(item, inner))


_WORD = "18446744073709551616"
"""2 to the power of 64: a decimal of 38 digits is two words of 64 bits."""

_REPEATED_SIGN = r"\A(?:(?:00)+(?=[0-7].)|(?:FF)+(?=[89A-F].))"
"""Leading bytes, in hexadecimal, that only repeat the sign of the next one: they say nothing."""


def _whole(text: str) -> Column:
    return F.lit(text).cast("decimal(38,0)")


def _bytes_of(column: Column) -> Column:
    """The unscaled integer of a decimal as ``BigInteger.toByteArray`` writes it: big-endian, as short as can be."""
    unscaled = F.replace(column.cast("string"), F.lit("."), F.lit("")).cast("decimal(38,0)")
    low = F.pmod(unscaled, _whole(_WORD))
    # The division drops the fraction, of a negative number upwards; taking the low word away first would be one
    # digit too much for the smallest numbers.
    down = F.when((unscaled < 0) & (low != 0), 1).otherwise(0)
    high = F.call_function("div", unscaled, _whole(_WORD)) - down
    signed = F.when(low >= _whole("9223372036854775808"), low - _whole(_WORD)).otherwise(low).cast("bigint")
    digits = F.concat(*[F.lpad(F.hex(word), 16, "0") for word in (high, signed)])
    return F.unhex(F.regexp_replace(digits, _REPEATED_SIGN, ""))


def _decimal(column: Column, schema: Schema) -> Column:
    """The decimal of big-endian bytes; null for one of more than 38 digits."""
    wanted = spark_type(schema)
    assert isinstance(wanted, T.DecimalType)
    digits = F.regexp_replace(F.hex(column), _REPEATED_SIGN, "")
    negative = F.substring(digits, 1, 1).isin(*"89ABCDEF")
    # Of a negative number the other bits are those of one less than its size: 38 digits suffice on the way, too.
    turned = F.translate(digits, "0123456789ABCDEF", "FEDCBA9876543210")
    full = F.lpad(F.when(negative, turned).otherwise(digits), 32, "0")
    high, low = (F.conv(F.substring(full, at, 16), 16, 10).cast("decimal(38,0)") for at in (1, 17))
    size = F.try_add(F.try_multiply(high, _whole(_WORD)).cast("decimal(38,0)"), low).cast("decimal(38,0)")
    # Spark's minus sign and abs round a decimal to 34 digits: the sign is put before the text instead.
    unsigned = F.when(~negative, size).when(size < _whole("9" * 38), size + _whole("1"))
    text = F.lpad(unsigned.cast("decimal(38,0)").cast("string"), 40, "0")
    scale = wanted.scale
    point = F.concat(F.substring(text, 1, 40 - scale), F.lit("."), F.substring(text, 41 - scale, scale))
    plain = F.concat(F.when(negative, F.lit("-")).otherwise(F.lit("")), point)
    return F.when(F.length(digits) <= 32, plain.try_cast(wanted))


def envelope(payload: Column, schema: Schema, *, defaults: bool = True) -> Column:
    """The text of a value with its schema."""
    written = _written(payload, schema, defaults=defaults)
    head = json.dumps(schema.to_json(), ensure_ascii=False, separators=(",", ":"))
    return F.concat(F.lit(f'{{"schema":{head},'), F.substring(written, F.lit(2), F.length(written)))


def bare(payload: Column, schema: Schema, *, defaults: bool = True) -> Column:
    """The text of a value without its schema, as ``schemas.enable=false`` has it."""
    written = _written(payload, schema, defaults=defaults)
    start = len('{"payload":')
    return F.substring(written, F.lit(start + 1), F.length(written) - start - 1)


def _written(payload: Column, schema: Schema, *, defaults: bool) -> Column:
    wire = to_wire(payload, schema, defaults=defaults)
    return F.to_json(F.struct(wire.alias("payload")), {"ignoreNullFields": "false"})
