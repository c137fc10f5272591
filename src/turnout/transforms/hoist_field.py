"""HoistField: wrap the whole as the one field of a struct or map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Schema, Shape
from turnout.transforms.base import Errors, NamedField, Side, Step, Transform, unchanged
from turnout.transforms.content_paths import Move
from turnout.transforms.nested import FIELD_SYNTAX, FieldPath, Nesting, Tree, nested_fields, nested_step, parse_field
from turnout.transforms.options import Option, Options
from turnout.transforms.shape_checks import require_object
from turnout.transforms.struct_fields import SCHEMA_BUILDER, copied, store

_PURPOSE = "field hoisting"


@dataclass(frozen=True, slots=True)
class HoistField(Transform):
    """See ``summary``.

    Attributes:
        field: the name of the field that wraps.
        hoisted: the steps to the field that is wrapped, none for the whole key or value.
    """

    summary: ClassVar[str] = "Wraps the key or value, null too, or a field of it, as the only field of a struct or map."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("field", "STRING", "The name of the field that wraps."),
        Option(
            "hoisted",
            "STRING",
            "The field to wrap with its name, a path where the syntax version is V2; empty for the whole (KIP-821).",
            default="",
        ),
        FIELD_SYNTAX,
    )

    field: str = ""
    hoisted: FieldPath = ()

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the path."""
        hoisted = options["hoisted"]
        path = parse_field("hoisted", hoisted, options["field.syntax.version"]) if hoisted else ()
        return cls(side, options["field"], path)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return nested_fields("hoisted", self.side, [self.hoisted] if self.hoisted else [])

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        *parents, hoisted = (self.root, *self.hoisted)
        wrapped = (*parents, self.field, hoisted) if self.hoisted else (hoisted, self.field)
        return (Move((*parents, hoisted), wrapped),)

    def plan(self, shape: Shape) -> Step:
        """Wrap every value the same way; a null fails if the schema is not optional."""
        if self.hoisted:
            return self._of_field(shape)
        if shape.schema is None:
            return Step(self._in_map)
        if not self.field:
            raise RecordError("fieldName cannot be null.", SCHEMA_BUILDER)
        field = Field(self.field, shape.schema)
        schema = Schema("struct", fields=(field,))

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            column = block.whole()
            store(field, column, errors, checked=block.checked)
            return block.with_columns(schema, {self.field: column}, checked=block.checked)

        return Step(run)

    def _in_map(self, block: Block, _where: object, _batch: Batch, _errors: Errors) -> Block:
        return block.with_columns(None, {self.field: block.whole()})

    def _of_field(self, shape: Shape) -> Step:
        """Wrap one field with its name; a value without it is unchanged."""
        if shape.kind == "null":
            return Step(unchanged)
        require_object(shape, _PURPOSE)
        if len(self.hoisted) > 1:
            inner = replace(self, hoisted=self.hoisted[-1:])
            tree = Tree([(self.hoisted, inner)])
            return nested_step(tree, lambda tree: inner if tree.items else None, Nesting(_PURPOSE, defaults=True))
        return Step(self._field_of_map) if shape.schema is None else self._field_of_struct(shape.schema)

    def _field_of_struct(self, schema: Schema) -> Step:
        name = self.hoisted[0]
        hoisted = schema.field(name)
        if hoisted is None:
            return Step(unchanged)
        wrapped = Field(self.field, Schema("struct", fields=(Field(name, hoisted),)))
        fields = tuple(wrapped if field.name == name else field for field in schema.fields)
        if not self.field or sum(field.name == self.field for field in fields) > 1:
            raise RecordError(f'Cannot create field because of field name duplication "{self.field}"', SCHEMA_BUILDER)
        changed = schema.basics(fields).with_(optional=schema.optional)

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            columns = copied(block, errors)
            columns[self.field] = [{name: value} for value in columns[name]]
            return block.with_columns(changed, {field.name: columns[field.name] for field in fields})

        return Step(run)

    def _field_of_map(self, block: Block, _where: object, _batch: Batch, _errors: Errors) -> Block:
        name = self.hoisted[0]
        if name not in block.columns:
            return block
        columns = {other: column for other, column in block.columns.items() if other not in (name, self.field)}
        return block.with_columns(None, {**columns, self.field: [{name: value} for value in block.columns[name]]})
