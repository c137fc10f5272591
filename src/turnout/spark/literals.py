"""InsertHeader's parsed literal as a column."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.schemas import literal, spark_type
from turnout.spark.typed import Typed
from turnout.transforms.literal import Literal
from turnout.transforms.schema import Schema

__all__ = ["literal_of"]


def literal_of(parsed: Literal) -> Typed:
    """The literal with its schema; containers without a common element schema hold variants."""
    if parsed.schema is None:
        return Typed(F.lit(None).cast("variant"), None)
    return Typed(_column(parsed.schema, parsed.value), parsed.schema)


def _column(schema: Schema, value: Any) -> Column:
    if schema.type == "array":
        items = [_element(schema.values, item) for item in value]
        return F.array(*items).cast(spark_type(schema))
    if schema.type == "map":
        entries = [p for k, v in value.items() for p in (F.lit(str(k)), _element(schema.values, v))]
        return F.create_map(*entries).cast("map<string,variant>") if schema.values is None else F.create_map(*entries)
    return literal(schema, value)


def _element(schema: Schema | None, value: Any) -> Column:
    return F.lit(value).cast("variant") if schema is None else _column(schema, value)
