"""Headers as columns: on the wire they are bytes; inside a chain they may carry Connect's types.

A frame with *typed* headers has ``array<struct<key:string,value:variant,schema:string>>``: the value as schemaless
data, and the Connect schema that goes with it as JSON text. All other frames have the bytes that Connect's
SimpleHeaderConverter would write: UTF-8 text.
"""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record
from turnout.spark.text import text_of
from turnout.spark.typed import Typed

__all__ = ["TYPED_HEADER", "appended", "last_text"]

TYPED_HEADER: Final = "struct<key:string,value:variant,schema:string>"


def appended(record: Record, names: list[str], values: list[Typed]) -> Column:
    """The record's headers with more at their end."""
    new = [_header(record, name, value) for name, value in zip(names, values, strict=True)]
    empty = F.array().cast(
        f"array<{TYPED_HEADER}>" if record.typed_headers else "array<struct<key:string,value:binary>>"
    )
    return F.concat(F.coalesce(record.headers, empty), F.array(*new))


def _header(record: Record, name: str, value: Typed) -> Column:
    key = F.lit(name).alias("key")
    if not record.typed_headers:
        return F.struct(key, F.encode(text_of(value), "UTF-8").alias("value"))
    schema = F.lit(None).cast("string") if value.schema is None else F.lit(json.dumps(value.schema.to_json()))
    return F.struct(key, value.variant().alias("value"), schema.alias("schema"))


def last_text(record: Record, name: str) -> Column:
    """The text of the last header of that name; null where there is none, or its bytes are no UTF-8."""
    found = F.filter(record.headers, lambda header: header["key"] == name)
    last = F.try_element_at(found, F.lit(-1))["value"]
    if record.typed_headers:
        return F.try_variant_get(last, "$", "string")
    text = last.cast("string")
    return F.when(F.is_valid_utf8(text), text)
