"""Envelope of Debezium's change events: how it is recognized, and references to fields in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from turnout.errors import RecordError
from turnout.records import Block, Schema
from turnout.records.types import Column
from turnout.transforms.struct_fields import NULL_POINTER

PACKAGE: Final = "io.debezium.transforms."
"""Debezium's package of transforms."""

_SUFFIX: Final = ".Envelope"
_PARTS: Final = frozenset(("before", "after", "source", "op"))
_TRANSACTION: Final = ("id", "data_collection_order", "total_order")
_OWN: Final = ("op", "ts_ms", "ts_us", "ts_ns")


def is_envelope(block: Block) -> bool:
    """Return whether the values are change events: by the name of their schema, or by the names of all four parts."""
    if block.kind != "object":
        return False
    if block.schema is not None:
        return (block.schema.name or "").endswith(_SUFFIX)
    return block.columns.keys() >= _PARTS


@dataclass(frozen=True, slots=True)
class FieldReference:
    """Field of an envelope that an option names.

    Attributes:
        parent: the part of the envelope that has it; None for the envelope itself.
        field: its name there; where it is missing, a field of the envelope of that name is meant.
        target: the name of the new field or header.
    """

    parent: str | None
    field: str
    target: str

    @classmethod
    def parse(cls, text: str, prefix: str) -> Self:
        """Read ``field``, ``part.field`` or either with ``:name``.

        Raises:
            ValueError: it has more parts.
        """
        path, *renamed = text.strip().split(":")
        steps = path.split(".")
        if len(renamed) > 1 or not all(steps):
            raise ValueError(f"expected field, part.field or part.field:name, found {text!r}")
        if len(steps) == 1:
            (field,) = steps
            parent = "transaction" if field in _TRANSACTION else None if field in _OWN else "source"
            name = field
        else:
            parent, field = steps[:2]
            name = f"{parent}_{field}"
        return cls(parent, field, prefix + (renamed[0] if renamed else name))

    def column(self, block: Block) -> tuple[Schema | None, Column] | None:
        """Return the values in a block of envelopes with their schema, which is optional; None without such a field.

        Raises:
            RecordError: the envelope has no such part, or the field is a struct or a map.
        """
        schema = self._schema(block)
        if block.schema is not None and schema is None:
            return None
        whole = block.columns.get(self.field)
        parents = None if self.parent is None else block.columns.get(self.parent)
        if self.parent is None or parents is None:
            return None if whole is None else (schema, whole)
        if block.schema is not None and not self._in_parent(block.schema):
            values: Column = [
                None if parent is None else value
                for parent, value in zip(parents, whole or [None] * len(block), strict=True)
            ]
        else:
            values = [parent.get(self.field) if isinstance(parent, dict) else None for parent in parents]
        return schema, values

    def _in_parent(self, schema: Schema) -> bool:
        parent = None if self.parent is None else schema.field(self.parent)
        return parent is not None and parent.field(self.field) is not None

    def _schema(self, block: Block) -> Schema | None:
        """Return the schema of the new field; None for schemaless envelopes and missing fields."""
        if block.schema is None:
            return None
        holder = block.schema if self.parent is None else block.schema.field(self.parent)
        if holder is None:
            raise RecordError(f"the envelope has no {self.parent}", NULL_POINTER)
        schema = holder.field(self.field) or block.schema.field(self.field)
        if schema is None:
            return None
        if schema.type in ("struct", "map"):
            raise RecordError(f"expected a plain field to add, found the {schema.type} {self.field!r}")
        return schema.with_(optional=True, default=None)
