"""Messages of an outbox out of the change events of a batch: the work of EventRouter."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Schema, group
from turnout.records.types import Column, DynamicValue, NewColumn, NewColumns, Value
from turnout.transforms.base import Errors
from turnout.transforms.debezium_envelope import is_envelope
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.outbox_json import PayloadSchemas
from turnout.transforms.struct_fields import NULL_POINTER

if TYPE_CHECKING:
    from turnout.transforms.event_router import AdditionalField, EventRouter

PAYLOAD: Final = "payload"
"""Field of the envelope that has the payload."""

_MICROSECONDS, _NANOSECONDS = 1_000, 1_000_000
_PER_MILLISECOND: Final = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": _MICROSECONDS,
    "io.debezium.time.NanoTimestamp": _NANOSECONDS,
}
_STRING: Final = Schema("string")

logger = logging.getLogger(__name__)


class _Payloads(NamedTuple):
    """Payloads of one schema, with their indices in their block."""

    schema: Schema | None
    indices: list[int]
    values: NewColumn


class OutboxMessages:
    """Work of an EventRouter on one batch.

    Args:
        options: the transform.
        batch: the records.
    """

    def __init__(self, options: EventRouter, batch: Batch) -> None:
        self.errors: Errors = {}
        self._options = options
        self._batch = batch
        self._dropped_rows: list[int] = []
        self._updates = 0
        self._unexpanded: list[str] = []
        self._keys: list[Block] = []
        self._topics = list(batch.topics)
        self._timestamps = list(batch.timestamps)
        self._partitions = list(batch.partitions)
        self._envelopes = any(field.placement == "envelope" for field in options.additional)

    def finish(self, values: list[Block]) -> None:
        """Store the results in the batch, and log what was left out, one line for each kind."""
        batch = self._batch
        if self._updates:
            level = logging.WARNING if self._options.invalid == "warn" else logging.ERROR
            logger.log(level, "EventRouter dropped %d updates: an outbox has insertions alone", self._updates)
        if self._unexpanded:
            count, first = len(self._unexpanded), self._unexpanded[0]
            logger.warning("EventRouter kept %d payloads as they are, the first because %s", count, first)
        moved = np.zeros(len(batch), np.bool_)
        for key in self._keys:
            moved[key.rows] = True
        unmoved = (block.take(np.flatnonzero(~moved[block.rows])) for block in batch.key)
        batch.key[:] = [block for block in (*unmoved, *self._keys) if len(block)]
        batch.value[:] = values
        batch.topics, batch.timestamps, batch.partitions = self._topics, self._timestamps, self._partitions
        batch.filter(np.array(sorted(self._dropped_rows), np.intp))

    def messages(self, block: Block) -> list[Block]:
        """Return the values in place of those of a block."""
        if not len(block):
            return []
        if block.kind == "null":
            self._dropped_rows += block.rows.tolist()
            return [block]
        if not is_envelope(block):
            return [block]
        ops = block.columns.get("op") or [None] * len(block)
        inserted = [index for index, op in enumerate(ops) if op not in ("d", "u")]
        leaving = [index for index, op in enumerate(ops) if op in ("d", "u")]
        self._leave(block, [ops[index] for index in leaving], leaving)
        return [*self._inserted(block.take(np.array(inserted, np.intp))), block.take(np.array(leaving, np.intp))]

    def _leave(self, block: Block, ops: Sequence[Value], indices: Sequence[int]) -> None:
        """Drop deletions and updates, which an outbox does not have."""
        for op, index in zip(ops, indices, strict=True):
            row = int(block.rows[index])
            if op == "u" and self._options.invalid == "fatal":
                self.errors[row] = RecordError("an update of an outbox table", "java.lang.IllegalStateException")
                continue
            self._updates += op == "u"
            self._dropped_rows.append(row)

    def _inserted(self, events: Block) -> Iterator[Block]:
        """Yield the messages of inserted rows of the table."""
        schema = None if events.schema is None else events.schema.field("after")
        whole = events.columns.get("after") or [None] * len(events)
        for table in group(events.rows, schema, whole, checked=events.checked) if len(events) else ():
            if table.kind != "object":
                refused = RecordError("expected an object as the after of an outbox's event")
                self.errors.update(dict.fromkeys(table.rows.tolist(), refused))
                yield table
                continue
            sources = events.take(np.flatnonzero(np.isin(events.rows, table.rows)))
            try:
                yield from self._of_table(table, sources)
            except RecordError as error:
                self.errors.update(dict.fromkeys(table.rows.tolist(), error))
                yield table

    def _of_table(self, table: Block, events: Block) -> list[Block]:
        options, batch, rows = self._options, self._batch, table.rows
        payload_schema, payloads = self._column(table, options.payload_column)
        stamps = self._stamps(table, events)
        key_schema, keys = self._column(table, options.key_column)
        id_schema, ids = self._column(table, options.id_column)
        routes = self._texts(table, options.route_column)
        extra = [(field, *self._column(table, field.column)) for field in self._additional(table)]
        versions = self._integers(table, options.version_column) if self._envelopes and options.version_column else None
        batch.headers.append(rows, "id", id_schema, ids)
        for field, schema, values in extra:
            if field.placement == "header":
                batch.headers.append(rows, field.alias, schema, values)
            elif field.placement == "partition":
                for row, number in zip(rows.tolist(), self._integers(table, field.column), strict=True):
                    self._partitions[row] = self._partitions[row] if number is None else number
        for row, stamp, route in zip(rows.tolist(), stamps, routes, strict=True):
            self._timestamps[row] = stamp
            self._route(row, route)
        self._keys += group(rows, key_schema, keys)
        parts = [_Payloads(payload_schema, list(range(len(rows))), list(payloads))]
        if options.expands:
            parts = self._expanded(payload_schema, payloads)
        blocks: list[Block] = []
        for part in parts:
            part_rows = table.take(np.array(part.indices, np.intp))
            added = [(field, of, [values[index] for index in part.indices]) for field, of, values in extra]
            numbers = None if versions is None else [versions[index] for index in part.indices]
            blocks += self._values(part_rows, part, added, numbers, [routes[index] for index in part.indices])
        return blocks

    def _values(
        self,
        table: Block,
        payloads: _Payloads,
        extra: Sequence[tuple[AdditionalField, Schema | None, Column]],
        versions: Column | None,
        routes: Column,
    ) -> Iterator[Block]:
        """Yield the values of messages whose payloads have one schema."""
        empty = [self._options.tombstones and (value is None or not _text(value).strip()) for value in payloads.values]
        present = np.array([index for index, empty_rows in enumerate(empty) if not empty_rows], np.intp)
        empty_rows = table.take(np.array([index for index, is_gone in enumerate(empty) if is_gone], np.intp))
        if len(empty_rows):
            yield empty_rows.nulls(None)
        present_rows = table.take(present)
        if not len(present_rows):
            return
        schema, members = payloads.schema, [payloads.values[index] for index in present.tolist()]
        if not self._envelopes:
            yield from group(present_rows.rows, schema, members)
            return
        columns: NewColumns = {PAYLOAD: members}
        fields = [Field(PAYLOAD, schema or _STRING)]
        for field, of, values in extra:
            if field.placement == "envelope":
                columns[field.alias] = [values[index] for index in present.tolist()]
                fields.append(Field(field.alias, of or _STRING))
        if table.schema is None:
            yield present_rows.with_columns(None, columns)
            return
        names = [_schema_name(table.schema.name, str(routes[index])) for index in present.tolist()]
        numbers = [None] * len(names) if versions is None else [versions[index] for index in present.tolist()]
        whole = present_rows.with_columns(None, columns)
        for pair in dict.fromkeys(zip(names, numbers, strict=True)):
            indices = [index for index, one in enumerate(zip(names, numbers, strict=True)) if one == pair]
            block = whole.take(np.array(indices, np.intp))
            named = Schema("struct", name=pair[0], version=pair[1], fields=tuple(fields))
            yield block.with_columns(named, dict(block.columns))

    def _expanded(self, schema: Schema | None, payloads: Column) -> list[_Payloads]:
        """Return the payloads by schema, JSON texts as values; other texts are unchanged."""
        derived = PayloadSchemas(nulls=self._options.keeps_nulls)
        parts: dict[Schema | None, _Payloads] = {}
        for index, payload in enumerate(payloads):
            found, value = schema, payload
            try:
                if payload is not None:
                    exact_schema, fitted, read = derived.expanded(payload, self._options.payload_column)
                    found, value = (None, read) if schema is None else (exact_schema, fitted)
            except (ValueError, RecordError) as problem:
                self._unexpanded.append(str(problem))
            part = parts.setdefault(found, _Payloads(found, [], []))
            part.indices.append(index)
            part.values.append(value)
        return list(parts.values())

    def _route(self, row: int, value: Value) -> None:
        if value is None:
            self.errors[row] = RecordError(f"{self._options.route_column} is null, and makes no topic", NULL_POINTER)
            return
        pattern, text = JavaRegex.of(self._options.regex), str(value)
        try:
            self._topics[row] = pattern.replaced(text, self._options.replacement) if pattern.matches(text) else text
        except RecordError as error:
            self.errors[row] = error

    def _additional(self, table: Block) -> Iterator[AdditionalField]:
        for field in self._options.additional:
            if not (self._options.skips_missing and field.column not in _names(table)):
                yield field

    def _stamps(self, table: Block, events: Block) -> Column:
        """Return the timestamps of the messages, in milliseconds since 1970."""
        own = events.columns.get("ts_ms") or [None] * len(events)
        column = self._options.timestamp_column
        if not column:
            return own
        schema, values = self._column(table, column)
        unit = 1 if schema is None else _PER_MILLISECOND.get(schema.name or "")
        if schema is not None and schema.type != "int64":
            raise RecordError(f"expected an int64 in {column}, found {schema.type}")
        if unit is None and any(value is not None for value in values):
            raise RecordError(f"expected a timestamp of Debezium in {column}, found {schema and schema.name}")
        return [
            event if value is None else _divided(value, unit or 1) for event, value in zip(own, values, strict=True)
        ]

    def _column(self, table: Block, name: str) -> tuple[Schema | None, Column]:
        if name not in _names(table):
            raise RecordError(f"the outbox has no column {name!r}")
        return (None if table.schema is None else table.schema.field(name)), table.columns.get(name) or [None] * len(
            table
        )

    def _texts(self, table: Block, name: str) -> Column:
        return self._typed(table, name, "string")

    def _integers(self, table: Block, name: str) -> Column:
        return self._typed(table, name, "int32")

    def _typed(self, table: Block, name: str, kind: str) -> Column:
        schema, values = self._column(table, name)
        if schema is not None and schema.type != kind:
            raise RecordError(f"expected a column of type {kind}, found {name!r} of type {schema.type}")
        if schema is None:
            type_ = str if kind == "string" else int
            for row, value in zip(table.rows.tolist(), values, strict=True):
                if value is not None and type(value) is not type_:
                    self.errors[row] = RecordError(f"expected a value of type {kind} in {name!r}, found {value!r:.60}")
        return values


def _names(table: Block) -> set[str]:
    return set(table.columns) if table.schema is None else {field.name for field in table.schema.fields}


def _text(value: object) -> str:
    return value if isinstance(value, str) else "x"


def _divided(value: DynamicValue, unit: int) -> int:
    """Return a time in milliseconds; Java's division drops the rest, also of negative numbers."""
    return int(value // unit if value >= 0 else -(-value // unit))


def _schema_name(table: str | None, route: str) -> str | None:
    """Return the name of the envelope's schema: that of the table's, with the routed value before its last part."""
    if table is None:
        return None
    head, dot, last = table.rpartition(".")
    return f"{head}.{route}.{last}" if dot else f"{route}.{table}"
