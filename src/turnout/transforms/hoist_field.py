"""HoistField: wrap the whole as the one field of a struct or map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Schema, Shape
from turnout.transforms.base import Errors, Step, Transform
from turnout.transforms.flow import Move
from turnout.transforms.options import Option
from turnout.transforms.storing import store


@dataclass(frozen=True, slots=True)
class HoistField(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Wraps the key or value, null too, as the only field of a struct or map."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (Option("field", "STRING", "The field's name, flat."),)

    field: str = ""

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        return (Move((self.root,), (self.root, self.field)),)

    def plan(self, shape: Shape) -> Step:
        """Wrap every value the same way; a null fails if the schema is not optional."""
        if shape.schema is None:
            return Step(self._in_map)
        if not self.field:
            raise RecordError("fieldName cannot be null.", "org.apache.kafka.connect.errors.SchemaBuilderException")
        field = Field(self.field, shape.schema)
        schema = Schema("struct", fields=(field,))

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            column = block.whole()
            store(field, column, errors, checked=block.checked)
            return block.with_columns(schema, {self.field: column}, checked=block.checked)

        return Step(run)

    def _in_map(self, block: Block, _where: object, _batch: Batch, _errors: Errors) -> Block:
        return block.with_columns(None, {self.field: block.whole()})
