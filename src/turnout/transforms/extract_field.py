"""ExtractField: put one field in the place of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Schema, Shape, group
from turnout.records.paths import PathError, parse_path
from turnout.records.schema import ANY
from turnout.records.types import Column, NewColumn, Value
from turnout.transforms.base import REPLACE_NULL, Errors, NamedField, Side, Step, Transform, mistake, unchanged
from turnout.transforms.checks import one_of
from turnout.transforms.flow import Move
from turnout.transforms.options import Option, Options
from turnout.transforms.requirements import require_object
from turnout.transforms.storing import default_value, read

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
        Option(
            "field.syntax.version",
            "STRING",
            "V1: the text is one name. V2: steps between dots, a step with dots inside backticks.",
            default="V1",
            check=one_of("V1", "V2", any_case=True),
            valid="V1, V2, in any case",
        ),
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
            # Kafka looks at no path for it, not even at an empty one.
            return Step(unchanged)
        if not self.path:
            raise RecordError("the path is empty", "java.lang.IndexOutOfBoundsException")
        if shape.schema is not None:
            return self._of_struct(shape.schema)
        require_object(shape, _PURPOSE)
        return Step(self._of_map)

    def _of_map(self, block: Block, _where: object, _batch: Batch, errors: Errors) -> Block | list[Block]:
        first, *others = self.path
        column = block.columns.get(first)
        if column is None:
            return block.nulls(None)
        parent = first
        for step in others:
            column = [_entry(value, step, parent, index, errors) for index, value in enumerate(column)]
            parent = step
        return _in_place(block, None, column)

    def _of_struct(self, schema: Schema) -> Step:
        if schema.type != "struct":
            raise RecordError(f"Cannot look up fields on non-struct type: {schema.type}")
        fields = self._fields(schema)
        *parents, last = fields
        field_schema = None if last.schema.type == ANY else last.schema

        def run(block: Block, _where: object, _batch: Batch, _errors: Errors) -> Block | list[Block]:
            if block.kind == "null":
                return block.nulls(field_schema)
            # Parents are read with their defaults whatever the option says.
            column = read(block, fields[0], defaults=bool(parents) or self.replace_null_with_default)
            for field in fields[1:]:
                column = _fields_of(column, field, defaults=field is not last or self.replace_null_with_default)
            return _in_place(block, field_schema, column)

        return Step(run)

    def _fields(self, schema: Schema) -> tuple[Field, ...]:
        """The fields on the way, the one to extract last."""
        fields: list[Field] = []
        for step in self.path:
            inner = schema.field(step) if schema.type == "struct" else None
            if inner is None:
                raise RecordError(f"Unknown field: {self.field}", "java.lang.IllegalArgumentException")
            fields.append(Field(step, inner))
            schema = inner
        return tuple(fields)


def _entry(value: Value, step: str, parent: str, index: int, errors: Errors) -> Value:
    """The entry of a map; null has none, and everything else is refused."""
    if type(value) is dict:
        return value.get(step)
    if value is not None:
        message = f"Only Map objects supported in absence of schema for [{_PURPOSE}], found another type: {parent}"
        errors.setdefault(index, RecordError(message))
    return None


def _fields_of(column: Column, field: Field, *, defaults: bool) -> NewColumn:
    """Return one field of each struct; a default replaces a null, but not in a struct that is null itself."""
    name = field.name
    default = default_value(field.schema) if defaults else None
    if default is None:
        return [None if struct is None else struct.get(name) for struct in column]
    values = [(struct, None if struct is None else struct.get(name)) for struct in column]
    return [default if value is None and struct is not None else value for struct, value in values]


def _in_place(block: Block, schema: Schema | None, column: Column) -> Block | list[Block]:
    """The column in the place of the block's values."""
    if schema is not None and schema.type != "struct" and None not in column:
        return block.with_values(schema, column, checked=block.checked)
    return group(block.rows, schema, column, checked=block.checked)
