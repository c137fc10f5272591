"""Transforms of change events by their table: ExtractChangedRecordState, SchemaChangeEventFilter, TimescaleDb."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Final, NamedTuple, Self

import numpy as np

from turnout.errors import RecordError
from turnout.records import Batch, Block, Positions, Schema
from turnout.records.types import DynamicValue, NewColumns, Value
from turnout.transforms.base import HEADERS, VALUE, Errors, Move, Side, Transform, change_rows
from turnout.transforms.debezium.extract_new_record_state import PACKAGE, is_envelope
from turnout.transforms.options import LIST, STRING, Option, OptionError, Options, non_empty

_TYPES: Final = ("CREATE", "ALTER", "DROP", "TRUNCATE", "DATABASE")
_SUFFIXES: Final = (".SchemaChangeValue", ".SchemaChangeKey")
_TABLE_CHANGES: Final = "tableChanges"


@dataclass(frozen=True, slots=True)
class SchemaChangeEventFilter(Transform):
    """See ``summary``. Debezium's transform; other records are unchanged.

    Attributes:
        excluded: types of changes.
    """

    summary: ClassVar[str] = "Drops Debezium's schema change events of some types."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "SchemaChangeEventFilter",)
    sided: ClassVar[bool] = False
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "schema.change.event.exclude.list",
            LIST,
            "The types to drop. An event without a table is one of DATABASE.",
            valid=", ".join(_TYPES),
        ),
    )

    excluded: frozenset[str] = frozenset()

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check the types."""
        (option,) = cls.options
        types = options[option.name] or ()
        wrong = next((text for text in types if text not in _TYPES), None)
        if wrong is not None or not types:
            raise OptionError(option.name, f"expected some of {', '.join(_TYPES)}, found {wrong or ''!r}")
        return cls(side, frozenset(types))

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop the events of these rows."""
        errors: Errors = {}
        dropped: list[int] = []

        def examine(block: Block, wrong: Errors) -> Block:
            if _is_schema_change(block):
                for index, changes in enumerate(block.columns.get(_TABLE_CHANGES) or [_ABSENT] * len(block)):
                    try:
                        if self._drops(changes):
                            dropped.append(int(block.rows[index]))
                    except RecordError as error:
                        wrong[index] = error
            return block

        change_rows(batch.value, rows, errors, examine)
        batch.filter(np.array(sorted(dropped), np.intp))
        return errors

    def _drops(self, changes: object) -> bool:
        if changes is None:
            return True
        if not isinstance(changes, list):
            raise RecordError(f"expected the tables of a schema change in {_TABLE_CHANGES!r}, found {changes!r:.60}")
        found = changes[0].get("type") if changes and isinstance(changes[0], dict) else "DATABASE"
        if found not in _TYPES:
            raise RecordError(f"expected a type of a schema change, one of {', '.join(_TYPES)}, found {found!r:.60}")
        return found in self.excluded


_ABSENT: Final = object()


def _is_schema_change(block: Block) -> bool:
    """Return whether the values are schema change events: by their schema's name, or by their fields."""
    if block.kind != "object":
        return False
    if block.schema is not None:
        return (block.schema.name or "").endswith(_SUFFIXES)
    return block.columns.keys() >= {"ddl", _TABLE_CHANGES}


@dataclass(frozen=True, slots=True)
class ExtractChangedRecordState(Transform):
    """See ``summary``. Debezium's transform; other records than change events are unchanged."""

    summary: ClassVar[str] = "Appends headers with the names of the fields that a change event changed, and of others."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "ExtractChangedRecordState",)
    sided: ClassVar[bool] = False
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("header.changed.name", STRING, "Header for the changed fields; without it none.", default=""),
        Option("header.unchanged.name", STRING, "Header for the others; without it none.", default=""),
    )

    header_changed_name: str = ""
    header_unchanged_name: str = ""

    def needs_objects(self) -> tuple[Side, ...]:
        """See `Transform.needs_objects`."""
        return (Side.VALUE,)

    def doubts(self) -> Iterator[OptionError]:
        """Yield a mistake if there is nothing to do."""
        if not any(name.strip() for name, _ in self._named()):
            yield OptionError("header.changed.name", "is missing, as is header.unchanged.name: nothing would be done")

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Append the headers of these rows."""
        errors: Errors = {}

        def examine(block: Block, wrong: Errors) -> Block:
            if is_envelope(block):
                nulls = [None] * len(block)
                parts = zip(block.columns.get("before") or nulls, block.columns.get("after") or nulls, strict=True)
                schema = None if block.schema is None else block.schema.field("after")
                changed: list[dict[bool, list[str]]] = []
                for index, (before, after) in enumerate(parts):
                    try:
                        changed.append(_compared(before, after, schema))
                    except RecordError as error:
                        changed.append({True: [], False: []})
                        wrong[index] = error
                for name, is_changed in self._named():
                    if name.strip():
                        schema = Schema("array", optional=True, name=name, values=Schema("string", optional=True))
                        batch.headers.append(block.rows, name, schema, [names[is_changed] for names in changed])
            return block

        change_rows(batch.value, rows, errors, examine)
        return errors

    def _named(self) -> tuple[tuple[str, bool], ...]:
        return (self.header_changed_name or "", True), (self.header_unchanged_name or "", False)


def _compared(before: Value, after: Value, schema: Schema | None) -> dict[bool, list[str]]:
    """Return the names of changed fields, and of the others; none without both rows."""
    names: dict[bool, list[str]] = {True: [], False: []}
    if before is None or after is None:
        return names
    if not isinstance(before, dict) or not isinstance(after, dict):
        raise RecordError("expected objects as the rows of a change event")
    for name in after if schema is None else [field.name for field in schema.fields]:
        names[not _same(before.get(name), after.get(name))].append(str(name))
    return names


def _same(one: DynamicValue, other: DynamicValue) -> bool:
    """Return whether Java's ``equals`` holds: NaN equals itself, and a decimal only one of the same scale."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, Decimal):
        return isinstance(other, Decimal) and one.as_tuple() == other.as_tuple()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


_CHUNK: Final = re.compile(r"_hyper_(\d+)_\d+_chunk|compress_hyper_(\d+)_\d+_chunk")


class Table(NamedTuple):
    """Table of PostgreSQL."""

    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class TimescaleDb(Transform):
    """See ``summary``. Debezium's transform, which asks the database for what `hypertables` has here.

    Attributes:
        schemas: schemas of chunks.
        prefix: prefix of the new topics.
        hypertables: table by the number of its hypertable, or by the chunk's name.
        aggregates: continuous aggregate by the table of its hypertable.
    """

    summary: ClassVar[str] = "Routes change events of TimescaleDB's chunks to the topic of their hypertable."
    java_names: ClassVar[tuple[str, ...]] = ("io.debezium.connector.postgresql.transforms.timescaledb.TimescaleDb",)
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "hypertables",
            LIST,
            "`NUMBER:schema.table` for each hypertable, by `SELECT id, schema_name, table_name FROM "
            "_timescaledb_catalog.hypertable`; in place of the number, `schema.chunk` of one that is named otherwise.",
        ),
        Option(
            "aggregates",
            LIST,
            "`schema.table:schema.view` for each continuous aggregate: the table of its hypertable, and its view.",
            default=(),
        ),
        Option("schema.list", LIST, "Schemas of chunks.", default=("_timescaledb_internal",)),
        Option("target.topic.prefix", STRING, "Prefix of the new topics.", default="timescaledb", check=non_empty),
    )

    schemas: tuple[str, ...] = ()
    prefix: str = ""
    hypertables: tuple[tuple[str, Table], ...] = ()
    aggregates: tuple[tuple[Table, Table], ...] = ()

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the tables."""
        tables = tuple(_pair("hypertables", text, "NUMBER:schema.table") for text in options["hypertables"] or ())
        views = [_pair("aggregates", text, "schema.table:schema.view") for text in options["aggregates"] or ()]
        aggregates = tuple((_table("aggregates", table), view) for table, view in views)
        return cls(side, tuple(options["schema.list"] or ()), options["target.topic.prefix"], tables, aggregates)

    def needs_objects(self) -> tuple[Side, ...]:
        """See `Transform.needs_objects`."""
        return (Side.VALUE,)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`: names of tables become headers."""
        return tuple(
            Move((VALUE, "source", part), (HEADERS, f"{_HEADER}chunk_{part}"), copy=True)
            for part in ("table", "schema")
        )

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Route the events of these rows."""
        errors: Errors = {}
        found: list[tuple[int, Table, Table, Table | None]] = []
        tables, views = dict(self.hypertables), dict(self.aggregates)

        def change(block: Block, wrong: Errors) -> Block:
            if not is_envelope(block):
                return block
            sources = list(block.columns.get("source") or [None] * len(block))
            for index, source in enumerate(sources):
                chunk = self._chunk(source)
                if chunk is None:
                    continue
                number = _number_of(chunk.name)
                table = tables.get(".".join(chunk)) or tables.get(number)
                if table is None:
                    if number:
                        cure = f"add {number}:schema.table to hypertables"
                        wrong[index] = RecordError(f"the hypertable of {chunk.name} is not known: {cure}")
                    continue
                view = views.get(table)
                new = view or table
                sources[index] = {**source, "schema": new.schema, "table": new.name}
                found.append((int(block.rows[index]), chunk, table, view))
            columns: NewColumns = {**block.columns, "source": sources}
            return block.with_columns(block.schema, columns, checked=block.checked)

        change_rows(batch.value, rows, errors, change)
        topics = list(batch.topics)
        for row, _, table, view in found:
            topics[row] = f"{self.prefix}.{(view or table).schema}.{(view or table).name}"
        batch.topics = topics
        _append(batch, "chunk", [(row, chunk) for row, chunk, _, _ in found])
        _append(batch, "hypertable", [(row, table) for row, _, table, view in found if view is not None])
        return errors

    def _chunk(self, source: Value) -> Table | None:
        """Return the chunk that an event is of; None for one of another table."""
        if not isinstance(source, dict):
            return None
        schema, name = source.get("schema"), source.get("table")
        is_chunk = isinstance(schema, str) and isinstance(name, str) and schema in self.schemas
        return Table(str(schema), str(name)) if is_chunk else None


_HEADER: Final = "__debezium_timescaledb_"


def _append(batch: Batch, kind: str, tables: Sequence[tuple[int, Table]]) -> None:
    ordered = sorted(tables)
    rows = np.array([row for row, _ in ordered], np.intp)
    texts: Mapping[str, Iterable[str]] = {
        "table": [table.name for _, table in ordered],
        "schema": [table.schema for _, table in ordered],
    }
    for part, column in texts.items():
        batch.headers.append(rows, f"{_HEADER}{kind}_{part}", Schema("string"), list(column))


def _number_of(chunk: str) -> str:
    found = _CHUNK.fullmatch(chunk)
    return "" if found is None else found[1] or found[2]


def _pair(option: str, text: str, expected: str) -> tuple[str, Table]:
    name, colon, table = (part.strip() for part in text.partition(":"))
    if not colon or not name:
        raise OptionError(option, f"expected {expected}, found {text!r}")
    return name, _table(option, table)


def _table(option: str, text: str) -> Table:
    schema, dot, name = text.partition(".")
    if not dot or not schema or not name:
        raise OptionError(option, f"expected schema.table, found {text!r}")
    return Table(schema, name)
