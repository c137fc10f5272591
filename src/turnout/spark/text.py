"""Any value as text, as a header's bytes or a condition sees it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.typed import Typed
from turnout.transforms.schema import DECIMAL, TIME

__all__ = ["text_of"]


def text_of(value: Typed) -> Column:
    """Strings as they are, numbers and booleans in plain words, everything nested as JSON; null stays null."""
    column, schema = value.column, value.schema
    if schema is None or schema.type == "variant":
        # A variant's string comes without quotes, JSON's null as null, the rest as JSON.
        return F.try_variant_get(column, "$", "string")
    if schema.type in ("struct", "array", "map"):
        return F.to_json(column)
    if schema.type == "bytes" and schema.logical != DECIMAL:
        text = column.cast("string")
        return F.when(F.is_valid_utf8(text), text)
    if schema.logical == TIME:
        return F.date_format(F.timestamp_millis(column.cast("bigint")), "HH:mm:ss.SSS'Z'")
    if schema.logical is not None and schema.type == "int64":
        return F.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    return column.cast("string")
