"""Conversion between Connect schemas and Spark types; column metadata keeps what a Spark type cannot express."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import types as T

from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema

METADATA_KEY = "connect.schema"
"""The column metadata that holds the schema, in the JSON of Connect's JsonConverter."""

_PRIMITIVES: dict[str, T.DataType] = {
    "int8": T.ByteType(),
    "int16": T.ShortType(),
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "float32": T.FloatType(),
    "float64": T.DoubleType(),
    "boolean": T.BooleanType(),
    "string": T.StringType(),
    "bytes": T.BinaryType(),
    "variant": T.VariantType(),
}
_NAMES: dict[type[T.DataType], str] = {type(spark): name for name, spark in _PRIMITIVES.items()}
_LOGICAL: dict[str, T.DataType] = {
    DATE: T.DateType(),
    # A number of milliseconds: Connect's Time may lie outside a day, Spark's TIME may not.
    TIME: T.IntegerType(),
    TIMESTAMP: T.TimestampType(),
}
_OF_LOGICAL: dict[type[T.DataType], tuple[str, str]] = {
    T.DateType: ("int32", DATE),
    T.TimestampType: ("int64", TIMESTAMP),
    T.TimestampNTZType: ("int64", TIMESTAMP),
}


def spark_type(schema: Schema | None) -> T.DataType:
    """Return the Spark type of values with this schema; VARIANT for None."""
    if schema is None:
        return T.VariantType()
    logical = schema.logical
    if logical == DECIMAL:
        return T.DecimalType(38, min(max(schema.scale, 0), 38))
    if logical is not None:
        return _LOGICAL[logical]
    if schema.type == "struct":
        return T.StructType([T.StructField(field.name, spark_type(field.schema)) for field in schema.fields])
    if schema.type == "array":
        return T.ArrayType(spark_type(schema.values))
    if schema.type == "map":
        return T.MapType(spark_type(schema.keys), spark_type(schema.values))
    return _PRIMITIVES[schema.type]


def schema_of(field: T.StructField) -> Schema | None:
    """Return the schema of a column, from its metadata or else its type; None for schemaless variants.

    Metadata that no longer fits the column's type (someone changed the column since) is ignored.
    """
    text = field.metadata.get(METADATA_KEY) if field.metadata else None
    if text:
        schema = Schema.from_json(json.loads(text))
        if spark_type(schema).simpleString() == field.dataType.simpleString():
            return schema
    return _derived(field.dataType)


def _derived(spark: T.DataType) -> Schema | None:
    """Return the schema that a Spark type alone defines: everything is optional, as in Spark."""
    if isinstance(spark, T.VariantType):
        return None
    if isinstance(spark, T.StructType):
        fields = tuple(Field(field.name, _nested(field.dataType)) for field in spark.fields)
        return Schema("struct", optional=True, fields=fields)
    return _nested(spark)


def _nested(spark: T.DataType) -> Schema:
    if isinstance(spark, T.DecimalType):
        return Schema("bytes", True, name=DECIMAL, version=1, parameters=(("scale", str(spark.scale)),))
    for kind, (type_, name) in _OF_LOGICAL.items():
        if isinstance(spark, kind):
            return Schema(type_, True, name=name, version=1)
    if isinstance(spark, T.ArrayType):
        return Schema("array", True, values=_nested(spark.elementType))
    if isinstance(spark, T.MapType):
        return Schema("map", True, keys=_nested(spark.keyType), values=_nested(spark.valueType))
    if isinstance(spark, T.StructType):
        return Schema("struct", True, fields=tuple(Field(f.name, _nested(f.dataType)) for f in spark.fields))
    # A type that Connect does not know is carried as it is.
    return Schema(_NAMES.get(type(spark), "variant"), True)


def metadata_of(schema: Schema | None) -> dict[str, Any]:
    """The column metadata that keeps *schema*."""
    return {} if schema is None else {METADATA_KEY: json.dumps(schema.to_json(), ensure_ascii=False)}
