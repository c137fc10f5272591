"""ValueToKey: make the key of fields of the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Positions, Schema
from turnout.transforms.base import REPLACE_NULL, Errors, NamedField, Side, Transform, flat_fields
from turnout.transforms.checks import names
from turnout.transforms.flow import KEY, VALUE, Move
from turnout.transforms.options import Option
from turnout.transforms.requirements import require_object
from turnout.transforms.storing import read, store

_PURPOSE = "copying fields from value to key"


@dataclass(frozen=True, slots=True)
class ValueToKey(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Replaces the key by a struct or map of fields of the value."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("fields", "LIST", "The fields, in the order they get in the key.", check=names, distinct=True),
        REPLACE_NULL,
    )

    fields: tuple[str, ...] = ()
    replace_null_with_default: bool = True

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return flat_fields("fields", Side.VALUE, self.fields)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        return tuple(Move((VALUE, name), (KEY, name), copy=True) for name in self.fields)

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
            return block.with_columns(None, {name: block.columns.get(name, nulls) for name in self.fields})
        schema = _schema_of_key(block.schema, self.fields)
        columns = {}
        for field in schema.fields:
            column = columns[field.name] = read(block, field, defaults=self.replace_null_with_default)
            store(field, column, errors, checked=block.checked)
        return block.with_columns(schema, columns, checked=block.checked)


@lru_cache(maxsize=1024)
def _schema_of_key(value: Schema, names: tuple[str, ...]) -> Schema:
    """The struct of these fields of a value.

    Raises:
        RecordError: when it has no such field, or one is named twice.
    """
    fields: list[Field] = []
    for name in names:
        schema = value.field(name)
        if schema is None:
            raise RecordError(f"Field does not exist: {name}")
        if not name or any(field.name == name for field in fields):
            builder = "org.apache.kafka.connect.errors.SchemaBuilderException"
            raise RecordError(f'Cannot create field because of field name duplication "{name}"', builder)
        fields.append(Field(name, schema))
    return Schema("struct", fields=tuple(fields))
