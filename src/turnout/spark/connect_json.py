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
        unscaled = (column.cast("decimal(38,18)") * F.lit(10**schema.scale)).cast("decimal(38,0)").try_cast("bigint")
        return F.unhex(F.lpad(F.hex(unscaled), 16, "0"))
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


def _decimal(column: Column, schema: Schema) -> Column:
    """The decimal of big-endian bytes, of up to eight of them; more make null."""
    digits = F.hex(column)
    negative = F.substring(digits, 1, 1).isin(*"89ABCDEF")
    full = F.lpad(digits, 16, F.when(negative, "F").otherwise("0"))
    # conv gives an unsigned number; what is beyond the signed range is negative.
    unsigned = F.conv(full, 16, 10).cast("decimal(38,0)")
    signed = F.when(negative, unsigned - F.lit(str(1 << 64)).cast("decimal(38,0)")).otherwise(unsigned)
    scaled = signed.cast("decimal(20,0)").cast(f"decimal(38,{min(schema.scale, 18)})") / F.lit(10**schema.scale)
    return F.when(F.length(digits) <= 16, scaled.try_cast(spark_type(schema)))


def envelope(payload: Column, schema: Schema) -> Column:
    """The text of a value with its schema."""
    written = F.to_json(F.struct(to_wire(payload, schema).alias("payload")), {"ignoreNullFields": "false"})
    head = json.dumps(schema.to_json(), ensure_ascii=False, separators=(",", ":"))
    return F.concat(F.lit(f'{{"schema":{head},'), F.substring(written, F.lit(2), F.length(written)))
