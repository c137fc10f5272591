"""ExtractField: put one field in the place of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.errors import RecordError
from turnout.records import Batch, Block, Schema, Shape, group
from turnout.records.field_paths import PathError, parse_path
from turnout.records.schema import ANY
from turnout.records.types import Column
from turnout.transforms.base import REPLACE_NULL, Errors, NamedField, Side, Step, Transform, mistake, unchanged
from turnout.transforms.content_paths import Move
from turnout.transforms.nested import FIELD_SYNTAX
from turnout.transforms.nested_reading import fields_on, read_map, read_struct
from turnout.transforms.options import Option, Options
from turnout.transforms.shape_checks import require_object

_PURPOSE = "field extraction"


@dataclass(frozen=True, slots=True)
class ExtractField(Transform):
    """See ``summary``.

    Attributes:
        path: the steps to the field; no steps at all make every record fail (KIP-821, an empty V2 path).
        field: the option's text.
    """

    summary: ClassVar[str] = "Replaces the key or value by one of its fields, which may be nested (KIP-821)."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("field", "STRING", "The field's name, or its path where the syntax version is V2."),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    field: str = ""
    path: tuple[str, ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the path."""
        field = options["field"] or ""
        try:
            path = parse_path(field, options["field.syntax.version"])
        except PathError as error:
            raise mistake("field", str(error)) from None
        return cls(side, field, path, options["replace.null.with.default"])

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        if self.path:
            yield NamedField("field", self.side, self.path)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        return (Move((self.root, *self.path), (self.root,)),)

    def plan(self, shape: Shape) -> Step:
        """Resolve the path in the schema, if the value has one, so that it fails for nulls, too."""
        if shape.schema is None and shape.kind == "null":
            # Kafka resolves no path for it, not even an empty one.
            return Step(unchanged)
        if not self.path:
            raise RecordError("the path is empty", "java.lang.IndexOutOfBoundsException")
        if shape.schema is not None:
            return self._of_struct(shape.schema)
        require_object(shape, _PURPOSE)
        return Step(self._of_map)

    def _of_map(self, block: Block, _where: object, _batch: Batch, errors: Errors) -> Block | list[Block]:
        column = read_map(block, self.path, _PURPOSE, errors)
        return block.nulls(None) if column is None else _in_place(block, None, column)

    def _of_struct(self, schema: Schema) -> Step:
        if schema.type != "struct":
            raise RecordError(f"Cannot look up fields on non-struct type: {schema.type}")
        fields = fields_on(schema, self.path)
        if fields is None:
            raise RecordError(f"Unknown field: {self.field}", "java.lang.IllegalArgumentException")
        last = fields[-1].schema
        field_schema = None if last.type == ANY else last

        def run(block: Block, _where: object, _batch: Batch, _errors: Errors) -> Block | list[Block]:
            if block.kind == "null":
                return block.nulls(field_schema)
            column = read_struct(block, fields, defaults=self.replace_null_with_default)
            return _in_place(block, field_schema, column)

        return Step(run)


def _in_place(block: Block, schema: Schema | None, column: Column) -> Block | list[Block]:
    """Return the column in the place of the block's values."""
    if schema is not None and schema.type != "struct" and None not in column:
        return block.with_values(schema, column, checked=block.checked)
    return group(block.rows, schema, column, checked=block.checked)
