"""HeaderFrom: copy or move fields into headers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import ClassVar, Self

import numpy as np

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Schema, Shape
from turnout.records.types import Column
from turnout.transforms.base import REPLACE_NULL, Errors, NamedField, Side, Step, Transform, flat_fields, mistake
from turnout.transforms.checks import non_empty_list, one_of
from turnout.transforms.flow import HEADERS, Move
from turnout.transforms.options import Option, Options
from turnout.transforms.requirements import require_object
from turnout.transforms.storing import NULL_POINTER, copied, fits, read


@dataclass(frozen=True, slots=True)
class HeaderFrom(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Appends a header for each listed field; move also removes the fields."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("fields", "LIST", "The fields, flat names.", check=non_empty_list, valid="not empty"),
        Option("headers", "LIST", "The header for each of them.", check=non_empty_list, valid="as many as fields"),
        Option("operation", "STRING", "What happens to the fields.", check=one_of("move", "copy"), valid="move, copy"),
        REPLACE_NULL,
    )

    fields: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    operation: str = "copy"
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check that the options name one header for each field."""
        if len(options["fields"]) != len(options["headers"]):
            counts = f"{len(options['headers'])} headers for {len(options['fields'])} fields"
            raise mistake("headers", f"expected one header for each field, found {counts}")
        return super(HeaderFrom, cls).from_options(options, side)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return flat_fields("fields", self.side, self.fields)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        copy = self.operation == "copy"
        pairs = zip(self.fields, self.headers, strict=True)
        return tuple(Move((self.root, field), (HEADERS, header), copy) for field, header in pairs)

    def plan(self, shape: Shape) -> Step:
        """Append the headers; to move the fields takes them out as well. A null key or value fails."""
        require_object(shape, f"header {self.operation}")
        move = self.operation == "move"
        sources = self._sources(shape.schema)
        changed = None
        if shape.schema is not None:
            changed = shape.schema.basics(
                tuple(field for field in shape.schema.fields if field.name not in self.fields)
            )

        def run(block: Block, where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block:
            rows = block.rows if where is None else block.rows[np.array(where)]
            for header, name, field in sources:
                column = self._column(block, name, field, where, errors)
                if where is not None:
                    column = list(compress(column, where))
                batch.headers.append(rows, header, None if field is None else field.schema, column)
            if not move:
                return block
            if changed is not None:
                columns = copied(block, errors, defaults=self.replace_null_with_default, without=self.fields)
                return block.with_columns(changed, columns)
            left = {name: column for name, column in block.columns.items() if name not in self.fields}
            return block.with_columns(None, left)

        return Step(run, in_place=not move)

    def _sources(self, schema: Schema | None) -> list[tuple[str, str, Field | None]]:
        """The header, the name and the field of each entry; no field without a schema."""
        sources: list[tuple[str, str, Field | None]] = []
        for name, header in zip(self.fields, self.headers, strict=True):
            field_schema = None if schema is None else schema.field(name)
            if schema is not None and field_schema is None:
                raise RecordError(f"no field {name!r}", NULL_POINTER)
            sources.append((header, name, None if field_schema is None else Field(name, field_schema)))
        return sources

    def _column(
        self, block: Block, name: str, field: Field | None, where: Sequence[bool] | None, errors: Errors
    ) -> Column:
        """Return the values of a header; values that it cannot have are entered in *errors*."""
        if field is None:
            return block.columns.get(name) or [None] * len(block)
        column = read(block, field, defaults=self.replace_null_with_default)
        schema = field.schema
        if block.checked and (schema.optional or None not in column):
            return column
        for index, value in enumerate(column):
            if where is not None and not where[index]:
                continue
            if value is None and not schema.optional:
                errors.setdefault(index, RecordError(f"A null value requires an optional schema but was {schema.type}"))
            elif value is not None and not block.checked and not fits(schema, value):
                problem = f"The value is not of the type {schema.type}: {type(value).__name__}"
                errors.setdefault(index, RecordError(problem))
        return column
