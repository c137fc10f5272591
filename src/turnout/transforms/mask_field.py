"""MaskField: put a null-like value, or a replacement, in the place of named fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar

from turnout.records import Batch, Block, Schema, Shape
from turnout.transforms.base import REPLACE_NULL, Errors, NamedField, Step, Transform, flat_fields
from turnout.transforms.checks import names, non_empty
from turnout.transforms.flow import ContentPath
from turnout.transforms.masks import FieldMask
from turnout.transforms.options import Option
from turnout.transforms.requirements import require_object
from turnout.transforms.storing import read, store


@dataclass(frozen=True, slots=True)
class MaskField(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Replaces fields by the zero of their type, or by a replacement for numbers and strings."
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("fields", "LIST", "The fields, flat names.", check=names, distinct=True, valid="not empty"),
        Option("replacement", "STRING", "What to put there.", default=None, check=non_empty, valid="not empty"),
        REPLACE_NULL,
    )

    fields: tuple[str, ...] = ()
    replacement: str | None = None
    replace_null_with_default: bool = True

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return flat_fields("fields", self.side, self.fields)

    def masks(self) -> Iterator[ContentPath]:
        """See `Transform.masks`."""
        return ((self.root, name) for name in self.fields)

    def plan(self, shape: Shape) -> Step:
        """FieldMask the named fields; a null key or value fails, a null field stays null."""
        require_object(shape, "mask fields")
        mask = FieldMask(self.replacement)
        if shape.schema is None:
            # A field that is absent is added as null: then the values do not keep their shape.
            return Step(_of_maps(self.fields, mask), in_place=set(self.fields).issubset(shape.names))
        return Step(self._of_structs(shape.schema, mask), in_place=True)

    def _of_structs(self, schema: Schema, mask: FieldMask) -> Any:
        names = frozenset(self.fields)
        defaults = self.replace_null_with_default

        def run(block: Block, where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
            columns: dict[Any, Sequence[Any]] = {}
            wrong: Errors = {}
            for field in schema.fields:
                column = read(block, field, defaults=defaults)
                if field.name in names:
                    column = mask.of_typed(column, field.schema, wrong)
                store(field, column, wrong, checked=block.checked)
                columns[field.name] = _some(column, block, field.name, where)
            errors.update({place: error for place, error in wrong.items() if where is None or where[place]})
            return block.with_columns(schema, columns, checked=block.checked or where is None)

        return run


def _of_maps(names: tuple[str, ...], mask: FieldMask) -> Any:
    def run(block: Block, where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
        columns: dict[Any, Sequence[Any]] = dict(block.columns)
        wrong: Errors = {}
        for name in names:
            column = columns.get(name)
            if column is None:
                columns[name] = [None] * len(block)
            else:
                columns[name] = _some(mask.of_any(column, wrong), block, name, where)
        errors.update({place: error for place, error in wrong.items() if where is None or where[place]})
        return block.with_columns(None, columns)

    return run


def _some(column: Sequence[Any], block: Block, name: Any, where: Sequence[bool] | None) -> Sequence[Any]:
    """Return the new column in the rows that the transform applies to, and the old one in the others."""
    old = block.columns.get(name)
    if where is None or old is None or old is column:
        return column
    changed = list(old)
    for place in compress(range(len(changed)), where):
        changed[place] = column[place]
    return changed
