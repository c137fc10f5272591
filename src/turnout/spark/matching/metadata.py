"""The metadata of a record that conditions see, as columns of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from turnout.errors import ConfigError, Mistake
from turnout.spark.variants import path_of

__all__ = ["metadata_columns"]

_TOPIC = ("topic", "subject")


def metadata_columns(records: DataFrame, paths: Mapping[str, str], keys: Sequence[str]) -> list[Column]:
    """A column of text for each key, null where a record has no such metadata.

    A listed path comes first, then ``topic`` (alias ``subject``) and ``key``, then the last header of that name.
    Bytes that are not UTF-8 count as absent.

    Raises:
        ConfigError: for a path that the records cannot have.
    """
    schema = records.schema
    wrong = [
        Mistake(f"metadata.{name}", problem) for name, path in paths.items() if (problem := _refused(schema, path))
    ]
    if wrong:
        raise ConfigError(wrong, what="bad metadata for matching")
    columns = {column.name for column in schema}
    found: list[Column] = []
    for key in keys:
        if key in paths:
            found.append(_at(schema, paths[key]))
        elif key in _TOPIC and "topic" in columns:
            found.append(_text(F.col("topic"), schema["topic"].dataType))
        elif key == "key" and "key" in columns:
            found.append(_text(F.col("key"), schema["key"].dataType))
        elif "headers" in columns:
            found.append(_header(schema["headers"].dataType, key))
        else:
            found.append(F.lit(None).cast("string"))
    return found


def _refused(schema: StructType, path: str) -> str | None:
    """Why the path cannot lead anywhere; None if it can."""
    root, *names = path.split(".")
    if root not in schema.names:
        return f"the path {path!r} begins with {root!r}; the records have {', '.join(schema.names)}"
    type_ = schema[root].dataType
    if names and not isinstance(type_, StructType | VariantType | MapType):
        return f"the path {path!r} looks into {root!r}, which is {type_.simpleString()}: decode it first"
    return None


def _at(schema: StructType, path: str) -> Column:
    """The text at a path into structs, maps and variants; null where a step is missing."""
    root, *names = path.split(".")
    column, type_ = F.col(root), schema[root].dataType
    while names:
        if isinstance(type_, VariantType):
            where = "".join(path_of(name).removeprefix("$") for name in names)
            # Objects and arrays are their JSON, a JSON null is absent.
            return F.try_variant_get(column, f"${where}", "string")
        name = names.pop(0)
        if isinstance(type_, StructType) and name in type_.names:
            column, type_ = column.getField(name), type_[name].dataType
        elif isinstance(type_, MapType):
            column, type_ = F.try_element_at(column, F.lit(name)), type_.valueType
        else:
            return F.lit(None).cast("string")
    return _text(column, type_)


def _text(column: Column, type_: DataType) -> Column:
    if isinstance(type_, StringType):
        return column
    if isinstance(type_, BinaryType):
        return F.try_validate_utf8(column.cast("string"))
    if isinstance(type_, VariantType):
        return F.try_variant_get(column, "$", "string")
    if isinstance(type_, StructType | ArrayType | MapType):
        return F.to_json(column)
    return column.cast("string")


def _header(type_: DataType, name: str) -> Column:
    assert isinstance(type_, ArrayType)
    assert isinstance(type_.elementType, StructType)
    # The last of that name is the one that counts, as with Kafka's lastHeader.
    backwards = F.reverse(F.col("headers"))
    place = F.array_position(backwards["key"], F.lit(name))
    value = F.when(place > 0, F.get(backwards["value"], (place - 1).cast("int")))
    return _text(value, type_.elementType["value"].dataType)
