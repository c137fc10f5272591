"""Values read and written: JSON text on one side, Spark's types on the other."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from turnout.spark.chain import ERROR, ERROR_TYPE
from turnout.spark.connect_json import bare, envelope, from_wire, misfit, wire_type
from turnout.spark.schemas import metadata_of, schema_of
from turnout.spark.variants import get, without_json_null
from turnout.transforms.schema import Schema
from turnout.transforms.values import ValueFormat

__all__ = ["decode_values", "encode_values", "once"]

_CORRUPT: Final = "_corrupt_record"
_PARSED: Final = "_parsed"


def once(column: Column) -> Column:
    """The same column, computed once for each row.

    Spark copies a parse into every projection and filter that reads a part of it. It never copies an expression
    that is not deterministic; the task's number counts as one, costs next to nothing and, unlike a row's number,
    may stand in a streaming query.
    """
    return F.when(F.spark_partition_id() >= F.lit(-1), column)


def decode_values(records: DataFrame, codec: ValueFormat) -> DataFrame:
    """The records with their value read as *codec* says, and ``_error`` saying which could not be read.

    A null value is a tombstone: it stays null and is no error. The text is parsed once a row, however many stages
    and filters follow.
    """
    if codec.format == "raw":
        return records
    text = _text(records)
    if codec.format == "json" and codec.schema is not None:
        return _read_struct(records, text, codec.schema)
    if codec.format == "connect-json" and codec.schemas_enable:
        return _read_envelope(records, text, codec)
    return _read_variant(records, text)


def _read_envelope(records: DataFrame, text: Column, codec: ValueFormat) -> DataFrame:
    """Values in ``{"schema": …, "payload": …}``, typed where the codec says which schema to expect."""
    if codec.value_schema is None:
        rows = records.withColumn(_PARSED, once(F.try_parse_json(text)))
        payload = get(F.col(_PARSED), "payload")
        bad = F.col("value").isNotNull() & payload.isNull()
        columns = {ERROR: _error(bad, "JSON with a schema and a payload"), "value": without_json_null(payload)}
        return rows.withColumns(columns).drop(_PARSED)
    schema = Schema.from_json(codec.value_schema)
    asked = T.StructType(
        [
            # Of the schema only whether there is one: what is in it is skipped.
            T.StructField("schema", T.StructType([])),
            T.StructField("payload", wire_type(schema)),
            T.StructField(_CORRUPT, T.StringType()),
        ]
    )
    rows = records.withColumn(_PARSED, once(F.from_json(text, asked, {"columnNameOfCorruptRecord": _CORRUPT})))
    found = F.col(_PARSED)
    payload = found["payload"]
    defaults = codec.replace_null_with_default
    bad = found.isNull() | found[_CORRUPT].isNotNull()
    # A null in either may be what the text says, or that it says nothing.
    keys = F.json_object_keys(text)
    said = F.array_contains(keys, "schema") & F.array_contains(keys, "payload")
    empty = found["schema"].isNull() | payload.isNull()
    bad = bad | F.when(empty, ~F.coalesce(said, F.lit(False))).otherwise(F.lit(False))
    wrong = misfit(payload, schema, defaults=defaults)
    if wrong is not None:
        bad = bad | wrong
    value = F.when(F.col("value").isNotNull() & ~bad, from_wire(payload, schema, defaults=defaults))
    rows = rows.withColumns(
        {ERROR: _error(F.col("value").isNotNull() & bad, "a payload of its schema"), "value": value}
    )
    return rows.withColumn("value", F.col("value").alias("value", metadata=metadata_of(schema))).drop(_PARSED)


def _text(records: DataFrame) -> Column:
    value = F.col("value")
    return value.cast("string") if isinstance(records.schema["value"].dataType, T.BinaryType) else value


def _error(bad: Column, expected: str) -> Column:
    error = F.struct(
        F.lit("VALUE_CONVERTER").alias("stage"),
        F.lit("org.apache.kafka.connect.json.JsonConverter").alias("class_name"),
        F.lit("org.apache.kafka.connect.errors.DataException").alias("exception"),
        F.lit(f"the value is not {expected}").alias("message"),
    )
    return F.when(bad, error).cast(ERROR_TYPE)


def _read_variant(records: DataFrame, text: Column) -> DataFrame:
    rows = records.withColumn(_PARSED, once(F.try_parse_json(text)))
    bad = F.col("value").isNotNull() & F.col(_PARSED).isNull()
    columns = {ERROR: _error(bad, "JSON"), "value": without_json_null(F.col(_PARSED))}
    return rows.withColumns(columns).drop(_PARSED)


def _read_struct(records: DataFrame, text: Column, ddl: str) -> DataFrame:
    """Values as a struct; text that is no JSON object of these types is an error, the JSON null a tombstone."""
    wanted = T.StructType.fromDDL(ddl)
    assert isinstance(wanted, T.StructType)
    asked = T.StructType([*wanted.fields, T.StructField(_CORRUPT, T.StringType())])
    parsed = F.from_json(text, asked, {"columnNameOfCorruptRecord": _CORRUPT})
    rows = records.withColumn(_PARSED, once(parsed))
    found = F.col(_PARSED)
    empty = F.col("value").isNull() | (F.trim(found[_CORRUPT]) == "null")
    bad = ~F.coalesce(empty, F.lit(False)) & (found.isNull() | found[_CORRUPT].isNotNull())
    parts = [part for field in wanted for part in (F.lit(field.name), found.getField(field.name))]
    value = F.when(found.isNotNull() & found[_CORRUPT].isNull(), F.named_struct(*parts))
    return rows.withColumns({ERROR: _error(bad, f"JSON with the fields {ddl}"), "value": value}).drop(_PARSED)


def encode_values(records: DataFrame, codec: ValueFormat) -> DataFrame:
    """The records with their value written as *codec* says, as a string; null stays null.

    Bytes and strings are passed as they are where the codec is ``raw``; everything else becomes JSON.
    """
    kind = records.schema["value"].dataType
    if codec.format == "raw" and isinstance(kind, (T.BinaryType, T.StringType)):
        return records
    value = F.col("value")
    schema = schema_of(records.schema["value"])
    if codec.format == "connect-json" and schema is not None:
        write = envelope if codec.schemas_enable else bare
        text = write(value, schema, defaults=codec.replace_null_with_default)
        return records.withColumn("value", F.when(value.isNotNull(), text))
    if isinstance(kind, (T.StructType, T.ArrayType, T.MapType, T.VariantType)):
        text = F.to_json(value, {"ignoreNullFields": "false"})
    else:
        wrapped = F.to_json(F.array(value))
        text = F.substring(wrapped, F.lit(2), F.length(wrapped) - 2)
    return records.withColumn("value", F.when(value.isNotNull(), text))
