"""A key, a value or a field with what is known of its schema: whole, or in parts that stages change one by one.

A stage that copies a struct of fifteen fields to change one pays for all of them, and one that sets a field of a
variant writes the whole object again. In parts a stage changes only the columns that it is about; the struct or the
object is put together once, where somebody needs it whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark import variants
from turnout.spark.schemas import literal
from turnout.transforms.schema import Schema

__all__ = ["Object", "Struct", "Typed", "opened", "struct_of", "with_default"]


class Typed:
    """A column and its schema.

    Attributes:
        schema: None for schemaless data; the column is a variant then.
    """

    def __init__(self, column: Column, schema: Schema | None) -> None:
        self._column = column
        self.schema = schema

    @property
    def column(self) -> Column:
        """The whole of it; of something in parts an expression that puts it together, wherever it is used."""
        return self._column

    @property
    def present(self) -> Column:
        """Whether it is not null; never null itself."""
        return self._column.isNotNull()

    def stored(self, name: str) -> Column:
        """The field of a struct as it is stored; null in a null struct."""
        return self._column.getField(name)

    def field(self, name: str, *, defaults: bool = True) -> Typed:
        """The field of a struct, read with its schema's default in place of null if *defaults*."""
        assert self.schema is not None
        schema = self.schema.field(name)
        assert schema is not None
        column = self.stored(name)
        if defaults and schema.default is not None:
            column = F.when(self.present, with_default(column, schema))
        return Typed(column, schema)

    def get(self, name: str) -> Column:
        """The field of schemaless data as a variant: null where it is missing, JSON's null where it is that."""
        return variants.get(self._column, name)

    def variant(self) -> Column:
        """The same as schemaless data."""
        return variants.to_variant(self.column, self.schema)


class Struct(Typed):
    """A struct in parts.

    Args:
        parts: a column for each field, in their order; null where the struct is.
        present: whether there is a struct; None if there always is.
        schema: that of the struct.
    """

    def __init__(self, parts: Sequence[tuple[str, Column]], present: Column | None, schema: Schema) -> None:
        self.schema: Schema = schema
        self.parts = tuple(parts)
        self.maybe = present

    @property
    def column(self) -> Column:
        """The struct, put together."""
        return struct_of(self.parts, None if self.maybe is None else ~self.maybe)

    @property
    def present(self) -> Column:
        """Whether there is a struct."""
        return F.lit(True) if self.maybe is None else self.maybe

    def stored(self, name: str) -> Column:
        """The part of that name."""
        return next(column for part, column in self.parts if part == name)


class Object(Typed):
    """Schemaless data, with the fields that stages have changed apart from it.

    Args:
        base: the variant without the changes; may be null, and need not be an object.
        is_object: whether it is one.
        changed: the new variants of fields, null for one that is not there; None for one that never is. They count
            only where there is an object.
    """

    def __init__(self, base: Column, is_object: Column, changed: Mapping[str, Column | None] | None = None) -> None:
        self.schema = None
        self.base = base
        self.is_object = is_object
        self.changed = dict(changed or {})

    @property
    def column(self) -> Column:
        """The data with its changes, put together once, wherever this is used."""
        if not self.changed:
            return self.base
        return F.when(self.is_object, variants.with_fields(self.base, self.changed)).otherwise(self.base)

    @property
    def present(self) -> Column:
        """Whether there is any data, object or not."""
        return self.base.isNotNull()

    def get(self, name: str) -> Column:
        """The field as it is now."""
        if name not in self.changed:
            return variants.get(self.base, name)
        found = self.changed[name]
        return F.lit(None).cast("variant") if found is None else found

    def with_fields(self, changes: Mapping[str, Column | None]) -> Object:
        """The same with more fields changed."""
        return Object(self.base, self.is_object, {**self.changed, **changes})


def opened(column: Column, schema: Schema | None) -> Typed:
    """The column in parts, where its schema has any."""
    if schema is None:
        return Object(column, variants.is_object(column))
    if schema.type == "struct" and schema.fields:
        parts = [(field.name, column.getField(field.name)) for field in schema.fields]
        return Struct(parts, column.isNotNull(), schema)
    return Typed(column, schema)


def with_default(column: Column, schema: Schema) -> Column:
    """The column with the schema's default in place of null."""
    return column if schema.default is None else F.coalesce(column, literal(schema, schema.default))


def struct_of(parts: Sequence[tuple[str, Column]], null_where: Column | None = None) -> Column:
    """A struct of these fields; null where *null_where* is true."""
    flat = [one for name, column in parts for one in (F.lit(name), column)]
    made = F.named_struct(*flat)
    return made if null_where is None else F.when(~null_where, made)
