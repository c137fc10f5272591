"""ValueToKey: make the key of fields of the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Positions, Schema
from turnout.transforms.base import REPLACE_NULL, Errors, NamedField, Side, Transform, mistake
from turnout.transforms.checks import names
from turnout.transforms.content_paths import KEY, VALUE, Move
from turnout.transforms.nested import FIELD_SYNTAX, FieldPath, nested_fields, parse_field
from turnout.transforms.nested_reading import fields_on, read_map, read_struct, schema_at
from turnout.transforms.options import Option, Options
from turnout.transforms.shape_checks import require_object
from turnout.transforms.struct_fields import store

_PURPOSE = "copying fields from value to key"


@dataclass(frozen=True, slots=True)
class ValueToKey(Transform):
    """See ``summary``.

    Attributes:
        fields: the steps to each field; the last one is its name in the key.
    """

    summary: ClassVar[str] = "Replaces the key by a struct or map of fields of the value."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "fields",
            "LIST",
            "The fields, in their order in the key. Paths where the syntax version is V2; the last step is the name.",
            check=names,
            distinct=True,
        ),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    fields: tuple[FieldPath, ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the paths."""
        paths = tuple(parse_field("fields", text, options["field.syntax.version"]) for text in options["fields"])
        named = [path[-1] for path in paths]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise mistake("fields", f"expected a name for each field of the key, and two are named {twice!r}")
        return cls(side, paths, options["replace.null.with.default"])

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return nested_fields("fields", Side.VALUE, self.fields)

    def needs_objects(self) -> tuple[Side, ...]:
        """See `Transform.needs_objects`."""
        return (Side.VALUE,)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        return tuple(Move((VALUE, *path), (KEY, path[-1]), copy=True) for path in self.fields)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Replace the keys of these records; the values stay."""
        chosen = np.zeros(len(batch), np.bool_)
        chosen[rows] = True
        errors: Errors = {}
        keys = [block.take(np.flatnonzero(~chosen[block.rows])) for block in batch.key]
        for value in batch.value:
            indexes = np.flatnonzero(chosen[value.rows])
            if not len(indexes):
                continue
            block = value.take(indexes)
            wrong: Errors = {}
            try:
                keys.append(self._key(block, wrong))
            except RecordError as error:
                wrong = dict.fromkeys(range(len(block)), error)
            errors.update({int(block.rows[index]): error for index, error in wrong.items()})
        batch.key = [block for block in keys if len(block)]
        return errors

    def _key(self, block: Block, errors: Errors) -> Block:
        require_object(block.shape, _PURPOSE)
        if block.schema is None:
            nulls = [None] * len(block)
            found = {path[-1]: read_map(block, path, _PURPOSE, errors) or nulls for path in self.fields}
            return block.with_columns(None, found)
        schema, sources = _schema_of_key(block.schema, self.fields)
        columns = {}
        for field, source in zip(schema.fields, sources, strict=True):
            column = columns[field.name] = read_struct(block, source, defaults=self.replace_null_with_default)
            store(field, column, errors, checked=block.checked)
        return block.with_columns(schema, columns, checked=block.checked)


@lru_cache(maxsize=1024)
def _schema_of_key(value: Schema, paths: tuple[FieldPath, ...]) -> tuple[Schema, tuple[tuple[Field, ...], ...]]:
    """Return the struct of these fields of a value, and the fields on the way to each.

    Raises:
        RecordError: when it has no such field, or one is named twice.
    """
    fields: list[Field] = []
    sources: list[tuple[Field, ...]] = []
    for path in paths:
        source, name = fields_on(value, path), path[-1]
        if source is None:
            raise RecordError(f"Field does not exist: {'.'.join(path)}")
        if not name or any(field.name == name for field in fields):
            builder = "org.apache.kafka.connect.errors.SchemaBuilderException"
            raise RecordError(f'Cannot create field because of field name duplication "{name}"', builder)
        fields.append(Field(name, schema_at(source)))
        sources.append(source)
    return Schema("struct", fields=tuple(fields)), tuple(sources)
