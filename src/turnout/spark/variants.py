"""Schemaless values: what can be asked of a variant, and done to it, in Spark expressions."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.errors import NotCompilableError
from turnout.transforms.schema import Schema

__all__ = [
    "as_map",
    "get",
    "is_object",
    "kind_of",
    "null_variant",
    "or_json_null",
    "path_of",
    "to_variant",
    "with_fields",
    "without_json_null",
]


def path_of(name: str) -> str:
    """The JSON path of a top-level field.

    Raises:
        NotCompilableError: for a name with both kinds of quotes, which Spark's paths cannot say.
    """
    if '"' not in name:
        return f'$["{name}"]'
    if "'" not in name:
        return f"$['{name}']"
    raise NotCompilableError(name, "a variant's path cannot name a field with both ' and \" in it")


def is_object(value: Column) -> Column:
    """True for an object, false for everything else; null is false."""
    return F.try_variant_get(value, "$", "struct<>").isNotNull()


def as_map(value: Column) -> Column:
    """The object's fields as a map; null where it is no object."""
    return F.try_variant_get(value, "$", "map<string,variant>")


def get(value: Column, name: str) -> Column:
    """The field's variant; null where it is missing, the JSON null where it is that."""
    if not _has_path(name):
        return F.try_element_at(as_map(value), F.lit(name))
    return F.try_variant_get(value, path_of(name), "variant")


def _has_path(name: str) -> bool:
    return not ('"' in name and "'" in name)


def without_json_null(value: Column) -> Column:
    """The variant, with JSON's null as Spark's."""
    return F.when(~F.is_variant_null(value), value)


def null_variant() -> Column:
    """JSON's null."""
    return F.parse_json(F.lit("null"))


def or_json_null(value: Column) -> Column:
    """The variant, with Spark's null as JSON's."""
    return F.coalesce(value, null_variant())


_MANY = 3
"""From so many changed fields on one costs less than the other: an object is taken apart and put together in the
time of about three copies of it, and each field that is set or deleted costs a copy."""


def with_fields(value: Column, changed: Mapping[str, Column | None]) -> Column:
    """The object with these fields: variants, null or None where there shall be none."""
    if len(changed) >= _MANY or not all(map(_has_path, changed)):
        return _rebuilt(value, changed)
    gone = [path_of(name) for name, column in changed.items() if column is None]
    made = F.variant_delete(value, *gone) if gone else value
    maybe: list[Column] = []
    for name, column in changed.items():
        if column is not None:
            made = F.variant_set(made, path_of(name), or_json_null(column))
            # A null path deletes nothing.
            maybe.append(F.when(column.isNull(), F.lit(path_of(name))))
    return F.variant_delete(made, *maybe) if maybe else made


def _rebuilt(value: Column, changed: Mapping[str, Column | None]) -> Column:
    """The object taken apart, and put together with the changed fields: one copy for any number and any names."""
    kept = F.map_filter(as_map(value), lambda name, _: ~name.isin(*changed))
    entries = F.map_entries(kept)
    new = [
        F.when(column.isNotNull(), F.struct(F.lit(name).alias("key"), column.alias("value")))
        for name, column in changed.items()
        if column is not None
    ]
    if new:
        entries = F.concat(entries, F.array_compact(F.array(*new)))
    return F.to_variant_object(F.map_from_entries(entries))


def kind_of(value: Column) -> Column:
    """BIGINT, DOUBLE, STRING, OBJECT<…> …: what Spark calls the type of this variant; VOID for JSON's null."""
    return F.schema_of_variant(value)


def to_variant(value: Column, schema: Schema | None) -> Column:
    """A typed value as a variant; null stays null."""
    if schema is None or schema.type == "variant":
        return value
    return F.when(value.isNotNull(), F.to_variant_object(value)) if schema.type in _NESTED else value.cast("variant")


_NESTED = ("struct", "array", "map")
