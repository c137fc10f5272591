"""Connect's JsonConverter on columns: ``{"schema": …, "payload": …}`` and its wire form of the logical types."""

from __future__ import annotations

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from turnout.spark.schemas import spark_type
from turnout.transforms.schema import DATE, DECIMAL, TIMESTAMP, Schema

__all__ = ["envelope", "from_wire", "to_wire", "wire_type"]


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


def _is_plain(schema: Schema) -> bool:
    """Whether the wire form is the Spark form, all the way down."""
    if schema.logical in (DECIMAL, DATE, TIMESTAMP):
        return False
    inner = [field.schema for field in schema.fields] + [one for one in (schema.values,) if one]
    return all(_is_plain(one) for one in inner)


def from_wire(column: Column, schema: Schema) -> Column:
    """A payload as Spark holds values of this schema."""
    if _is_plain(schema):
        return column
    if schema.logical == TIMESTAMP:
        return F.timestamp_millis(column)
    if schema.logical == DATE:
        return F.date_from_unix_date(column)
    if schema.logical == DECIMAL:
        return _decimal(column, schema)
    return _each(column, schema, from_wire)


def to_wire(column: Column, schema: Schema) -> Column:
    """A value as its payload is written."""
    if _is_plain(schema):
        return column
    if schema.logical == TIMESTAMP:
        return F.unix_millis(column)
    if schema.logical == DATE:
        return F.unix_date(column)
    if schema.logical == DECIMAL:
        return _bytes_of(column)
    return _each(column, schema, to_wire)


def _each(column: Column, schema: Schema, convert: object) -> Column:
    assert callable(convert)
    if schema.type == "struct":
        parts = [p for f in schema.fields for p in (F.lit(f.name), convert(column.getField(f.name), f.schema))]
        return F.when(column.isNotNull(), F.named_struct(*parts))
    assert schema.values is not None
    inner = schema.values
    if schema.type == "array":
        return F.transform(column, lambda item: convert(item, inner))
    return F.transform_values(column, lambda _, item: convert(item, inner))


_WORD = "18446744073709551616"
"""2 to the power of 64: a decimal of 38 digits is two words of 64 bits."""


def _whole(text: str) -> Column:
    return F.lit(text).cast("decimal(38,0)")


def _bytes_of(column: Column) -> Column:
    """The unscaled integer of a decimal as ``BigInteger.toByteArray`` writes it: big-endian, as short as can be."""
    unscaled = F.replace(column.cast("string"), F.lit("."), F.lit("")).cast("decimal(38,0)")
    low = F.pmod(unscaled, _whole(_WORD))
    high = ((unscaled - low) / _whole(_WORD)).cast("bigint")
    signed = F.when(low >= _whole("9223372036854775808"), low - _whole(_WORD)).otherwise(low).cast("bigint")
    digits = F.concat(*[F.lpad(F.hex(word), 16, "0") for word in (high, signed)])
    # A leading byte that only repeats the sign of the next one says nothing.
    return F.unhex(F.regexp_replace(digits, r"\A(?:(?:00)+(?=[0-7].)|(?:FF)+(?=[89A-F].))", ""))


def _decimal(column: Column, schema: Schema) -> Column:
    """The decimal of big-endian bytes; null for one of more than 38 digits."""
    wanted = spark_type(schema)
    assert isinstance(wanted, T.DecimalType)
    digits = F.hex(column)
    negative = F.substring(digits, 1, 1).isin(*"89ABCDEF")
    full = F.lpad(digits, 32, F.when(negative, "F").otherwise("0"))
    # conv gives an unsigned number; what is beyond the signed range is negative.
    high, low = (F.conv(F.substring(full, at, 16), 16, 10).cast("decimal(38,0)") for at in (1, 17))
    signed = F.when(negative, high - _whole(_WORD)).otherwise(high)
    unscaled = F.try_add(F.try_multiply(signed, _whole(_WORD)).cast("decimal(38,0)"), low).cast("decimal(38,0)")
    text = F.lpad(F.abs(unscaled).cast("string"), 40, "0")
    scale = wanted.scale
    point = F.concat(F.substring(text, 1, 40 - scale), F.lit("."), F.substring(text, 41 - scale, scale))
    plain = F.concat(F.when(negative, F.lit("-")).otherwise(F.lit("")), point)
    return F.when(F.length(digits) <= 32, plain.try_cast(wanted))


def envelope(payload: Column, schema: Schema) -> Column:
    """The text of a value with its schema."""
    written = F.to_json(F.struct(to_wire(payload, schema).alias("payload")), {"ignoreNullFields": "false"})
    head = json.dumps(schema.to_json(), ensure_ascii=False, separators=(",", ":"))
    return F.concat(F.lit(f'{{"schema":{head},'), F.substring(written, F.lit(2), F.length(written)))
