"""A custom transform: copy a field of a struct or a map to another name.

A package registers it in its pyproject.toml; chains can then use ``type: CopyField$Value``::

    [project.entry-points."turnout.transforms"]
    CopyField = "copy_field:CopyField"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from turnout.records import Batch, Block, Field, Schema, Shape
from turnout.transforms import STRING, Errors, Option, Step, Transform
from turnout.transforms.base import Move, NamedField, flat_fields
from turnout.transforms.fields import require_object


@dataclass(frozen=True, slots=True)
class CopyField(Transform):
    summary: ClassVar[str] = "Copies a field to another name."
    options: ClassVar[tuple[Option, ...]] = (
        Option("field", STRING, "The field."),
        Option("to", STRING, "The name of the copy."),
    )
    keeps_topic: ClassVar[bool] = True

    field: str = ""
    to: str = ""

    def named_fields(self) -> Iterator[NamedField]:
        """Let `turnout check` look the field up."""
        return flat_fields("field", self.side, (self.field,))

    def moves(self) -> tuple[Move, ...]:
        """Let views hide the copy of a field that a later stage masks."""
        return (Move((self.root, self.field), (self.root, self.to), copy=True),)

    def plan(self, shape: Shape) -> Step:
        """Called once for each schema, or shape of schemaless objects; its step is run for every block of it."""
        require_object(shape, "field copy")
        schema = shape.schema
        copied = None if schema is None else schema.field(self.field)
        if schema is not None and copied is not None:
            others = tuple(field for field in schema.fields if field.name != self.to)
            schema = schema.basics((*others, Field(self.to, copied)))
        return Step(partial(self._copy, schema))

    def _copy(
        self, schema: Schema | None, block: Block, _where: Sequence[bool] | None, _batch: Batch, _errors: Errors
    ) -> Block:
        if self.field not in block.columns:
            return block
        others = {name: column for name, column in block.columns.items() if name != self.to}
        return block.with_columns(schema, {**others, self.to: block.columns[self.field]})
