"""Base of transforms that put another form in the place of a whole key or value, or of some of its fields."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Schema, Shape, group
from turnout.records.types import Column, DynamicValue, NewColumns
from turnout.transforms.base import Errors, NamedField, Step, Transform, flat_fields, unchanged
from turnout.transforms.options import Option
from turnout.transforms.shape_checks import require_object
from turnout.transforms.struct_fields import convert, copied

FIELDS = Option("fields", "LIST", "The fields, flat names; without any the whole key or value.", default=())


@dataclass(frozen=True, slots=True)
class Contents(Transform):
    """Transform that converts single values.

    Nulls stay nulls, and so do fields that a record does not have.
    """

    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True

    fields: tuple[str, ...] = ()

    @abstractmethod
    def schema_of(self, schema: Schema) -> Schema | None:
        """Return the schema of the converted values of a schema; None where they are schemaless.

        Raises:
            RecordError: no value of the schema can be converted.
        """

    @abstractmethod
    def converted(self, value: DynamicValue, schema: Schema | None) -> DynamicValue:
        """Return the converted value.

        Raises:
            RecordError: it cannot be converted.
        """

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return flat_fields("fields", self.side, self.fields)

    def plan(self, shape: Shape) -> Step:
        """Find the schemas of the converted values."""
        if shape.kind == "null":
            return Step(unchanged)
        if not self.fields:
            return self._of_whole(shape.schema)
        require_object(shape, f"{self.class_name()} of fields")
        return Step(self._of_map) if shape.schema is None else self._of_struct(shape.schema)

    def _of_whole(self, schema: Schema | None) -> Step:
        changed = None if schema is None else self.schema_of(schema)

        def run(block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> list[Block]:
            values = block.values if block.kind == "plain" else block.whole()
            return group(block.rows, changed, self._column(values, schema, batch, errors))

        return Step(run)

    def _of_map(self, block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block:
        columns: NewColumns = dict(block.columns)
        for name in self.fields:
            if name in columns:
                columns[name] = self._column(columns[name], None, batch, errors)
        return block.with_columns(None, columns)

    def _of_struct(self, schema: Schema) -> Step:
        fields: list[Field] = []
        for field in schema.fields:
            if field.name in self.fields:
                inner = self.schema_of(field.schema) or Schema("variant")
                field = Field(field.name, inner.with_(optional=field.schema.optional))
            fields.append(field)
        changed = schema.basics(tuple(fields)).with_(optional=schema.optional)
        chosen = [field for field in schema.fields if field.name in self.fields]

        def run(block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block:
            columns: NewColumns = dict(copied(block, errors))
            for field in chosen:
                columns[field.name] = self._column(columns[field.name], field.schema, batch, errors)
            return block.with_columns(changed, columns)

        return Step(run)

    def _column(self, column: Column, schema: Schema | None, batch: Batch, errors: Errors) -> Column:  # noqa: ARG002 - for others
        return convert(column, lambda value: self.converted(value, schema), errors)


def refused(value: object, expected: str) -> RecordError:
    """Return the error for a value of another type."""
    return RecordError(f"expected {expected}, found {type(value).__name__}")
