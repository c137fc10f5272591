"""A custom transform: upper-case one field of a typed value, or of a schemaless one.

A package registers it in its pyproject.toml; chains can then use ``type: UpperField``::

    [project.entry-points."turnout.transforms"]
    UpperField = "upper:UpperField"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import Batch, Block, Shape
from turnout.transforms import STRING, Errors, Option, Step, Transform


@dataclass(frozen=True, slots=True)
class UpperField(Transform):
    summary: ClassVar[str] = "Writes one text field in upper case."
    options: ClassVar[tuple[Option, ...]] = (Option("field", STRING, "The field."),)
    keeps_paths: ClassVar[bool] = True  # no content goes to another field

    field: str = ""

    def plan(self, shape: Shape) -> Step:
        if shape.kind != "object":
            raise RecordError(f"Only Struct and Map objects supported for [upper case], found: {shape.kind}")
        return Step(self._upper)

    def _upper(self, block: Block, _where: Sequence[bool] | None, _batch: Batch, _errors: Errors) -> Block:
        column = block.columns.get(self.field)
        if column is None:
            return block
        upper = [value.upper() if isinstance(value, str) else value for value in column]
        return block.with_columns(block.schema, {**block.columns, self.field: upper})
