"""Envelope of Debezium's change events: how it is recognized, and references to fields in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Positions, Schema, group
from turnout.records.types import Column, NewColumns, Value
from turnout.transforms.base import HEADERS, VALUE, Errors, Move, NamedField, Side, Transform, change_rows
from turnout.transforms.fields import NULL_POINTER, SCHEMA_BUILDER, copied
from turnout.transforms.options import BOOLEAN, LIST, STRING, Option, OptionError, Options, one_of

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


DELETED: Final = "__deleted"
"""Field of a rewritten record that is true if its row was deleted."""

MODES: Final = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
_STRING: Final = Schema("string")


@dataclass(frozen=True, slots=True)
class ExtractNewRecordState(Transform):
    """See ``summary``. Debezium's transform; other records than change events are unchanged.

    Attributes:
        mode: handling of deletions and tombstones.
        route: the field that the topic is taken from; empty for none.
    """

    summary: ClassVar[str] = "Takes the row out of a change event of Debezium; deletions and tombstones by a mode."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "ExtractNewRecordState",)
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "delete.tombstone.handling.mode",
            STRING,
            "A deletion becomes nothing, a null, or its old row with `__deleted`; only rewrite-with-tombstone keeps "
            "tombstones.",
            default="tombstone",
            check=one_of(*MODES, any_case=True),
            valid=", ".join(MODES),
        ),
        Option("add.fields", LIST, "Fields of the envelope to add: `op`, `source.lsn`, `table:name`.", default=()),
        Option("add.fields.prefix", STRING, "Prefix of the names of added fields.", default="__"),
        Option("add.headers", LIST, "Fields of the envelope to append as headers.", default=()),
        Option("add.headers.prefix", STRING, "Prefix of the names of these headers.", default="__"),
        Option("route.by.field", STRING, "The field of the row that is the topic.", default=""),
        Option(
            "replace.null.with.default",
            BOOLEAN,
            "Whether a null that has a default is rewritten as it.",
            default=True,
        ),
    )

    mode: str = "tombstone"
    fields: tuple[FieldReference, ...] = ()
    headers: tuple[FieldReference, ...] = ()
    route: str = ""
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the references to fields."""
        fields, headers = (references(options, name) for name in ("add.fields", "add.headers"))
        mode = options["delete.tombstone.handling.mode"].strip().lower()
        return cls(side, mode, fields, headers, options["route.by.field"] or "", options["replace.null.with.default"])

    def needs_objects(self) -> tuple[Side, ...]:
        """See `Transform.needs_objects`."""
        return (Side.VALUE,)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        for option, references in (("add.fields", self.fields), ("add.headers", self.headers)):
            for one in references:
                yield NamedField(option, Side.VALUE, (one.field,) if one.parent is None else (one.parent, one.field))

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`. Records that are no events keep everything where it is."""
        added = [(VALUE, reference) for reference in self.fields]
        added += [(HEADERS, reference) for reference in self.headers]
        copies = [
            ((VALUE, *steps), (root, one.target))
            for root, one in added
            for steps in ((one.field,), *([(one.parent, one.field)] if one.parent is not None else []))
        ]
        rows = [((VALUE, part), (VALUE,)) for part in ("after", "before")]
        return tuple(Move(source, target, copy=True) for source, target in (*rows, *copies))

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Replace the events of these rows."""
        errors: Errors = {}
        dropped: list[int] = []
        change_rows(batch.value, rows, errors, lambda block, _: self._replaced(block, batch, dropped, errors))
        batch.filter(np.array(sorted(dropped), np.intp))
        return errors

    def _replaced(self, block: Block, batch: Batch, dropped: list[int], errors: Errors) -> list[Block]:
        if not len(block):
            return []
        if block.kind == "null":
            for one in self.headers:
                if one.field == "op":
                    batch.headers.append(block.rows, one.target, _STRING, ["d"] * len(block))
            if self.mode != "rewrite-with-tombstone":
                dropped += block.rows.tolist()
            return [block]
        if not is_envelope(block):
            return [block]
        for one in self.headers:
            found = one.column(block)
            if found is not None:
                batch.headers.append(block.rows, one.target, *found)
        return [part for part in self._rows(block, batch, dropped, errors) if len(part)]

    def _rows(self, block: Block, batch: Batch, dropped: list[int], errors: Errors) -> Iterator[Block]:
        """Yield the rows behind the events of a block; rows of the batch to drop are added to *dropped*."""
        nulls = [None] * len(block)
        after, before = (block.columns.get(part) or nulls for part in ("after", "before"))
        present, deleted = [], []
        for index, (new, old) in enumerate(zip(after, before, strict=True)):
            if new is not None:
                present.append(index)
            elif old is not None:
                deleted.append(index)
            else:
                dropped.append(int(block.rows[index]))
                yield block.take(np.array([index], np.intp))
        yield from self._written(block, "after", after, present, batch, errors)
        if self.mode == "drop":
            dropped += block.rows[deleted].tolist()
            yield block.take(np.array(deleted, np.intp))
        elif self.mode.startswith("rewrite"):
            yield from self._written(block, "before", before, deleted, batch, errors)
        else:
            events = block.take(np.array(deleted, np.intp))
            self._route(events.rows, [before[index] for index in deleted], _part(block, "before"), batch, errors)
            yield events.nulls(_part(block, "after") if self.mode == "tombstone" else None)

    def _written(
        self, block: Block, part: str, values: Sequence[Value], indices: list[int], batch: Batch, errors: Errors
    ) -> Iterator[Block]:
        """Yield the rows of one part of the envelope with their added fields."""
        chosen = np.array(indices, np.intp)
        schema = _part(block, part)
        whole = [values[index] for index in indices]
        self._route(block.rows[chosen], whole, schema, batch, errors)
        for row in group(block.rows[chosen], schema, whole, checked=block.checked):
            events = block.take(np.flatnonzero(np.isin(block.rows, row.rows)))
            if row.kind != "object":
                refused = RecordError(f"expected an object as the {part} of a change event")
                errors.update(dict.fromkeys(row.rows.tolist(), refused))
                yield row
            else:
                yield self._with_fields(row, events, deleted=part == "before", errors=errors)

    def _with_fields(self, row: Block, events: Block, *, deleted: bool, errors: Errors) -> Block:
        columns: NewColumns = dict(row.columns)
        added: list[Field] = []
        if self.mode.startswith("rewrite"):
            if row.schema is not None:
                wrong: Errors = {}
                columns = dict(copied(row, wrong, defaults=self.replace_null_with_default))
                errors.update((int(row.rows[index]), error) for index, error in wrong.items())
            columns[DELETED] = ["true" if deleted else "false"] * len(row)
            added.append(Field(DELETED, Schema("string", optional=True)))
        for one in self.fields:
            found = one.column(events)
            if found is not None:
                schema, columns[one.target] = found
                added.append(Field(one.target, schema or _STRING))
        if row.schema is None:
            return row.with_columns(None, columns)
        fields = (*row.schema.fields, *added)
        if len({field.name for field in fields}) < len(fields):
            names = [field.name for field in fields]
            twice = next(name for name in names if names.count(name) > 1)
            raise RecordError(f'Cannot create field because of field name duplication "{twice}"', SCHEMA_BUILDER)
        return row.with_columns(row.schema.basics(fields), columns)

    def _route(
        self, rows: Positions, values: Sequence[Value], schema: Schema | None, batch: Batch, errors: Errors
    ) -> None:
        """Set the topics of rows by a field of theirs; one that is null or blank leaves it."""
        if not self.route or not len(rows):
            return
        field = None if schema is None else schema.field(self.route)
        if schema is not None and (field is None or field.type != "string"):
            found = "no such field" if field is None else field.type
            refused = RecordError(f"expected a text in the field {self.route!r} to be the topic, found {found}")
            errors.update(dict.fromkeys(rows.tolist(), refused))
            return
        topics = list(batch.topics)
        for row, value in zip(rows.tolist(), values, strict=True):
            topic = value.get(self.route) if isinstance(value, dict) else None
            if topic is not None and not isinstance(topic, str):
                errors[row] = RecordError(f"expected a text in the field {self.route!r}, found {topic!r}")
            elif topic and topic.strip():
                topics[row] = topic
        batch.topics = topics


def _part(block: Block, part: str) -> Schema | None:
    return None if block.schema is None else block.schema.field(part)


def references(options: Options, name: str) -> tuple[FieldReference, ...]:
    """Return the fields that an option lists.

    Raises:
        OptionError: one is no reference.
    """
    try:
        return tuple(FieldReference.parse(text, options[f"{name}.prefix"] or "") for text in options[name] if text)
    except ValueError as problem:
        raise OptionError(name, str(problem)) from None
