"""EventRouter: the messages of an outbox table out of its change events, with schemas derived from JSON texts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self

import numpy as np

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Positions, Schema, group
from turnout.records.types import Column, DynamicValue, NewColumn, NewColumns, Value
from turnout.transforms.base import HEADERS, KEY, VALUE, Errors, Move, NamedField, Side, Transform
from turnout.transforms.debezium.extract_new_record_state import PACKAGE, is_envelope
from turnout.transforms.fields import NULL_POINTER
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.options import BOOLEAN, LIST, STRING, Option, OptionError, Options, java_regex, non_null, one_of

_TEXT, _FLAG, _INT, _LONG, _DOUBLE, _BYTES = (
    Schema(name, optional=True) for name in ("string", "boolean", "int32", "int64", "float64", "bytes")
)
_INT_BITS, _LONG_BITS = 31, 63
_MAX_DEPTH: Final = 500


def parse_payload(text: str) -> object:
    """Return the value of a JSON object or array.

    Raises:
        ValueError: the text is neither.
    """
    if not text.startswith(("{", "[")):
        raise ValueError("the text begins with neither { nor [")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None


class PayloadSchemas:
    """Derivation of schemas from JSON values.

    Args:
        nulls: whether a null is a field of optional bytes; otherwise it is no field.
    """

    def __init__(self, *, nulls: bool) -> None:
        self._null = _BYTES if nulls else None

    def expanded(self, payload: object, name: str) -> tuple[Schema, DynamicValue, object]:
        """Return the schema of a JSON object in a text, its value with every field of that, and the object itself.

        Args:
            payload: the text.
            name: name of the schema.

        Raises:
            ValueError: it is no text of JSON.
            RecordError: it is no object, or has values that no schema describes.
        """
        if not isinstance(payload, str):
            raise RecordError(f"a payload is no text: {type(payload).__name__}")
        value = parse_payload(payload)
        schema = self.of(value, name)
        if schema is None or schema.type != "struct":
            raise RecordError("a payload is an array, and only objects become values")
        return schema, with_fields(value, schema), value

    def of(self, value: object, name: str | None, depth: int = 0) -> Schema | None:
        """Return the schema of a value; None for an empty array and for nulls that are no fields.

        Args:
            value: as `parse_payload` returns it.
            name: name of the schema of an object.
            depth: depth of the value in the text.

        Raises:
            RecordError: an array has values of several types, or the value is nested too deeply.
        """
        if depth > _MAX_DEPTH:
            raise RecordError(f"the payload is nested deeper than {_MAX_DEPTH}")
        if value is None:
            return self._null
        if isinstance(value, dict):
            found = (
                (str(key), self.of(item, f"{name}.{key}" if name else key, depth + 1)) for key, item in value.items()
            )
            fields = tuple(Field(key, schema) for key, schema in found if schema is not None)
            return Schema("struct", optional=True, name=name, fields=fields)
        if isinstance(value, list):
            members = self._members(value, name, depth) if value else None
            return None if members is None else Schema("array", optional=True, values=members)
        return _plain(value)

    def _members(self, values: Column, name: str | None, depth: int) -> Schema:
        present = [value for value in values if value is not None]
        if not present and self._null is not None:
            return self._null
        kinds = {type(value) if isinstance(value, dict | list) else _plain(value) for value in present}
        if len(kinds) != 1:
            found = "values of several types" if kinds else "nulls alone"
            raise RecordError(f"an array of the payload has {found}")
        schemas = [self.of(value, name if isinstance(value, dict) else None, depth + 1) for value in present]
        if not isinstance(present[0], dict):
            if schemas[0] is None:
                raise RecordError("an array of the payload begins with an empty one")
            return schemas[0]
        return _merged([schema for schema in dict.fromkeys(schemas) if schema is not None])


def _merged(schemas: Sequence[Schema]) -> Schema:
    """Return a struct with the fields of all; of two types of a field the first one that is not bytes counts."""
    if len(schemas) == 1:
        return schemas[0]
    fields: dict[str, Schema] = {}
    for schema in schemas:
        for field in schema.fields:
            earlier = fields.get(field.name)
            if earlier is None or (earlier.type == "bytes" and field.schema.type != "bytes"):
                fields[field.name] = field.schema
    return Schema("struct", name=schemas[0].name, fields=tuple(Field(*pair) for pair in fields.items()))


def with_fields(value: DynamicValue, schema: Schema) -> DynamicValue:
    """Return a JSON value with every field of its schema, and with nothing else.

    Raises:
        RecordError: a value does not fit.
    """
    if value is None or schema.type == "bytes":
        if not schema.optional:
            raise RecordError("an array of the payload has a null among objects of several shapes")
        return None
    if schema.type == "struct":
        if not isinstance(value, dict):
            raise RecordError("an array of the payload has values of several types")
        return {field.name: with_fields(value.get(field.name), field.schema) for field in schema.fields}
    if schema.type == "array" and schema.values is not None:
        return [with_fields(item, schema.values) for item in value]
    if _plain(value) != schema:
        raise RecordError(f"expected a value of type {schema.type} in the payload, found {value!r:.60}")
    if schema.type == "float64" and not isinstance(value, float):
        raise RecordError(f"an integer of the payload has more than 64 bits: {value!r:.60}")
    return value


def _plain(value: object) -> Schema:
    if isinstance(value, str):
        return _TEXT
    if isinstance(value, bool):
        return _FLAG
    if isinstance(value, int):
        bits = (value if value >= 0 else ~value).bit_length()
        return _INT if bits <= _INT_BITS else _LONG if bits <= _LONG_BITS else _DOUBLE
    return _DOUBLE


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
        routes = self._typed(table, options.route_column, "string")
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


_PLACEMENTS: Final = ("header", "envelope", "partition")


class AdditionalField(NamedTuple):
    """Column of the outbox that is added to its messages.

    Attributes:
        column: its name in the table.
        placement: header, envelope or partition.
        alias: its name in the message.
    """

    column: str
    placement: str
    alias: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``column:placement`` or ``column:placement:alias``.

        Raises:
            ValueError: it is neither.
        """
        parts = [part.strip() for part in text.split(":")]
        if len(parts) not in (2, 3) or not all(parts) or parts[1].lower() not in _PLACEMENTS:
            raise ValueError(
                f"expected column:placement or column:placement:alias, placement one of "
                f"{', '.join(_PLACEMENTS)}, found {text!r}"
            )
        return cls(parts[0], parts[1].lower(), parts[-1] if len(parts) == 3 else parts[0])


@dataclass(frozen=True, slots=True)
class EventRouter(Transform):
    """See ``summary``. Debezium's transform; events without schemas are taken as well.

    Attributes:
        id_column: column of the message's id, which is the header ``id``.
        key_column: column of the message's key.
        payload_column: column of its value.
        timestamp_column: column of its timestamp; empty for the event's own.
        version_column: column of the version of the envelope's schema; empty for none.
        route_column: column of the value that gives the topic.
        additional: further columns.
        skips_missing: whether additional columns that are missing are left out; otherwise the record fails.
        invalid: treatment of updates: warn, error or fatal.
        expands: whether a payload that is a JSON text becomes a value.
        keeps_nulls: whether nulls of such a text are fields of optional bytes.
        tombstones: whether an empty payload becomes a null.
        regex: expression for the routed value.
        replacement: the topic where it matches.
    """

    summary: ClassVar[str] = (
        "Makes messages of the change events of an outbox table: id, key, payload and topic by columns."
    )
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "outbox.EventRouter",)
    sided: ClassVar[bool] = False
    schemas_by_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("table.field.event.id", STRING, "The column of the id, which becomes the header `id`.", default="id"),
        Option("table.field.event.key", STRING, "The column of the key.", default="aggregateid"),
        Option("table.field.event.type", STRING, "Has no effect: `type` is added by a placement.", default="type"),
        Option("table.field.event.payload", STRING, "The column of the payload.", default="payload"),
        Option(
            "table.field.event.timestamp",
            STRING,
            "The column of the timestamp; without it the time of the event.",
            default="",
        ),
        Option(
            "table.fields.additional.placement",
            LIST,
            "Further columns: `type:header`, `kind:envelope:type`, `shard:partition`.",
            default=(),
        ),
        Option(
            "table.field.additional.missing",
            STRING,
            "Whether a further column that is missing fails the record.",
            default="error",
            check=one_of("error", "ignore", any_case=True),
            valid="error, ignore",
        ),
        Option(
            "table.field.event.schema.version",
            STRING,
            "The column of the version of the envelope's schema.",
            default="",
        ),
        Option(
            "table.op.invalid.behavior",
            STRING,
            "Updates are dropped with a line in the log, or with fatal fail.",
            default="warn",
            check=one_of("warn", "error", "fatal", any_case=True),
            valid="warn, error, fatal",
        ),
        Option("table.expand.json.payload", BOOLEAN, "Whether a payload of JSON text becomes a value.", default=False),
        Option(
            "table.json.payload.null.behavior",
            STRING,
            "Whether a null in it is left out, or a field of optional bytes.",
            default="ignore",
            check=one_of("ignore", "optional_bytes", any_case=True),
            valid="ignore, optional_bytes",
        ),
        Option("route.by.field", STRING, "The column that gives the topic.", default="aggregatetype"),
        Option(
            "route.topic.regex",
            STRING,
            "The expression for its value.",
            default="(?<routedByValue>.*)",
            check=java_regex,
            valid="java.util.regex",
        ),
        Option(
            "route.topic.replacement",
            STRING,
            "The topic where the expression matches the whole value.",
            default="outbox.event.${routedByValue}",
            check=non_null,
            groups_of="route.topic.regex",
        ),
        Option("route.tombstone.on.empty.payload", BOOLEAN, "Whether an empty payload becomes a null.", default=False),
        Option("tracing.span.context.field", STRING, "Has no effect.", default="tracingspancontext"),
        Option("tracing.operation.name", STRING, "Has no effect.", default="debezium-read"),
        Option("tracing.with.context.field.only", BOOLEAN, "Has no effect.", default=False),
    )

    id_column: str = "id"
    key_column: str = "aggregateid"
    payload_column: str = "payload"
    timestamp_column: str = ""
    version_column: str = ""
    route_column: str = "aggregatetype"
    additional: tuple[AdditionalField, ...] = ()
    skips_missing: bool = False
    invalid: str = "warn"
    expands: bool = False
    keeps_nulls: bool = False
    tombstones: bool = False
    regex: str = ""
    replacement: str = ""

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the placements."""
        placements = "table.fields.additional.placement"
        try:
            additional = tuple(AdditionalField.parse(text) for text in options[placements] or () if text)
        except ValueError as problem:
            raise OptionError(placements, str(problem)) from None
        return cls(
            side,
            options["table.field.event.id"],
            options["table.field.event.key"],
            options["table.field.event.payload"],
            options["table.field.event.timestamp"] or "",
            options["table.field.event.schema.version"] or "",
            options["route.by.field"],
            additional,
            options["table.field.additional.missing"].lower() == "ignore",
            options["table.op.invalid.behavior"].lower(),
            options["table.expand.json.payload"],
            options["table.json.payload.null.behavior"].lower() == "optional_bytes",
            options["route.tombstone.on.empty.payload"],
            options["route.topic.regex"],
            options["route.topic.replacement"],
        )

    def needs_objects(self) -> tuple[Side, ...]:
        """See `Transform.needs_objects`."""
        return (Side.VALUE,)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`. The columns are fields of the new row."""
        columns = [
            ("table.field.event.id", self.id_column),
            ("table.field.event.key", self.key_column),
            ("table.field.event.payload", self.payload_column),
            ("table.field.event.timestamp", self.timestamp_column),
            ("table.field.event.schema.version", self.version_column),
            ("route.by.field", self.route_column),
            *(("table.fields.additional.placement", one.column) for one in self.additional),
        ]
        yield from (NamedField(option, Side.VALUE, ("after", column)) for option, column in columns if column)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`. Records that are no events keep everything where it is."""
        enveloped = any(field.placement == "envelope" for field in self.additional)
        payload = (VALUE, PAYLOAD) if enveloped else (VALUE,)
        moves = [(self.id_column, (HEADERS, "id")), (self.key_column, (KEY,)), (self.payload_column, payload)]
        moves += [
            (field.column, (HEADERS if field.placement == "header" else VALUE, field.alias))
            for field in self.additional
            if field.placement != "partition"
        ]
        return tuple(Move((VALUE, "after", column), target, copy=True) for column, target in moves)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Replace the events of these rows by the messages of their rows in the outbox."""
        work = OutboxMessages(self, batch)
        chosen = np.zeros(len(batch), np.bool_)
        chosen[rows] = True
        values: list[Block] = []
        for block in batch.value:
            values.append(block.take(np.flatnonzero(~chosen[block.rows])))
            values += work.messages(block.take(np.flatnonzero(chosen[block.rows])))
        work.finish([block for block in values if len(block)])
        return work.errors
