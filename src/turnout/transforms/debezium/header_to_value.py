"""HeaderToValue: headers as fields of the value, which may be inside of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias

import numpy as np

from turnout.base.untrusted import JsonObject
from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Header, Positions, Schema
from turnout.records.types import DynamicValue, NewColumns
from turnout.transforms.base import HEADERS, VALUE, Errors, Move, Side, Transform, change_rows, mistake
from turnout.transforms.debezium.extract_new_record_state import PACKAGE
from turnout.transforms.fields import copied, default_value, require_object, store
from turnout.transforms.options import LIST, STRING, Option, Options, names, one_of

_PURPOSE: Final = "Header field insertion"
Path: TypeAlias = tuple[str, ...]


class _Entry(NamedTuple):
    """Field to add, with the schema of its value."""

    path: Path
    schema: Schema


def _words(value: Sequence[str] | None) -> str | None:
    return names(value) or ("expected names without spaces" if any(" " in name for name in value or ()) else None)


@dataclass(frozen=True, slots=True)
class HeaderToValue(Transform):
    """See ``summary``. Debezium's transform, which takes structs alone. Headers off the wire are texts, or bytes.

    Attributes:
        paths: the field of each header.
        moves_headers: whether the headers are removed.
    """

    summary: ClassVar[str] = "Adds the listed headers to the value as fields; other records are unchanged."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "HeaderToValue",)
    sided: ClassVar[bool] = False
    keeps_topic: ClassVar[bool] = True
    schemas_by_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("headers", LIST, "The headers.", check=_words),
        Option("fields", LIST, "The field for each of them; dots are between the steps of a path.", check=_words),
        Option(
            "operation",
            STRING,
            "What happens to the headers.",
            check=one_of("move", "copy", any_case=True),
            valid="move, copy",
        ),
    )

    paths: tuple[tuple[str, Path], ...] = ()
    moves_headers: bool = False

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check that each header has a field."""
        headers, fields = options["headers"], options["fields"]
        if len(headers) != len(fields):
            raise mistake("fields", f"expected as many as headers, {len(headers)}, found {len(fields)}")
        # Of a header that is listed twice the first field counts.
        paths = dict(reversed([(name, tuple(path.split("."))) for name, path in zip(headers, fields, strict=True)]))
        return cls(side, tuple((name, paths[name]) for name in dict.fromkeys(headers)), options["operation"] == "move")

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_headers`."""
        return (("headers", name) for name, _ in self.paths)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        return tuple(Move((HEADERS, name), (VALUE, *path), copy=not self.moves_headers) for name, path in self.paths)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Add the fields to the values of these rows, those with headers of the same names and schemas together."""
        errors: Errors = {}
        paths = dict(self.paths)
        found = batch.headers.named(paths, rows)

        def change(block: Block, wrong: Errors) -> list[Block]:
            if block.kind == "null":
                for row in block.rows.tolist():
                    found.pop(row, None)
                return [block]
            require_object(block.shape, _PURPOSE)
            together: dict[tuple[_Entry, ...], list[int]] = {}
            for index, row in enumerate(block.rows.tolist()):
                entries: dict[Path, Schema] = {}
                try:
                    for header in found.get(row, ()):
                        entries.setdefault(paths[header.name], _schema_of(header))
                except RecordError as error:
                    wrong[index] = error
                    entries = {}
                together.setdefault(tuple(_Entry(*item) for item in entries.items()), []).append(index)
            blocks: list[Block] = []
            for key, indices in together.items():
                part = block.take(np.array(indices, np.intp))
                own: Errors = {}
                try:
                    blocks.append(self._added(part, key, found, own) if key else part)
                except RecordError as error:
                    own = dict.fromkeys(range(len(indices)), error)
                    blocks.append(part)
                wrong.update({indices[at]: error for at, error in own.items()})
            return blocks

        change_rows(batch.value, rows, errors, change)
        if self.moves_headers:
            batch.headers.drop(paths, np.array(sorted(found), np.intp))
        return errors

    def _added(
        self, block: Block, entries: Sequence[_Entry], headers: dict[int, list[Header]], errors: Errors
    ) -> Block:
        paths = dict(self.paths)
        values = [{paths[header.name]: _value_of(header) for header in headers[row]} for row in block.rows.tolist()]
        columns: NewColumns = dict(block.columns if block.schema is None else copied(block, errors))
        schema = None if block.schema is None else _with_fields(block.schema, entries)
        for name in dict.fromkeys(entry.path[0] for entry in entries):
            old = columns.get(name)
            inner = None if schema is None else schema.field(name)
            columns[name] = [
                _with_values(value, inner, {path[1:]: item for path, item in found.items() if path[0] == name})
                for value, found in zip(old or [_NEW] * len(block), values, strict=True)
            ]
        if schema is None:
            return block.with_columns(None, columns)
        for field in schema.fields:
            store(field, columns[field.name], errors, checked=False)
        return block.with_columns(schema, {field.name: columns[field.name] for field in schema.fields})


def _schema_of(header: Header) -> Schema:
    """Return the schema of a header's field.

    Raises:
        RecordError: it has none, and is no text or bytes.
    """
    if header.schema is not None:
        return header.schema
    value = _value_of(header)
    if value is None or isinstance(value, str | bytes):
        return Schema("bytes" if isinstance(value, bytes) else "string", optional=value is None)
    raise RecordError(f"the header {header.name!r} has no schema: {value!r:.60}")


def _value_of(header: Header) -> DynamicValue:
    """Return the value of a header; bytes are a text if they can be."""
    if header.schema is not None or not isinstance(header.value, bytes):
        return header.value
    try:
        return header.value.decode()
    except UnicodeDecodeError:
        return header.value


def _with_fields(schema: Schema, entries: Sequence[_Entry]) -> Schema:
    """Return a struct's schema with fields, direct ones before new structs; an existing one keeps its schema."""
    fields = {field.name: field for field in schema.fields}
    inside: dict[str, list[_Entry]] = {}
    for path, inner in entries:
        if len(path) == 1:
            fields.setdefault(path[0], Field(path[0], inner))
        else:
            inside.setdefault(path[0], []).append(_Entry(path[1:], inner))
    for name, own in inside.items():
        old = fields[name].schema if name in fields else Schema("struct", optional=True)
        if old.type != "struct":
            raise RecordError(f"expected {name!r} to be a struct that gets fields, found {old.type}")
        fields[name] = Field(name, _with_fields(old, own).with_(optional=old.optional))
    return schema.basics(tuple(fields.values()))


_NEW: Final[JsonObject] = {}
"""Object in which a field is added that nothing was at."""


def _with_values(value: DynamicValue, schema: Schema | None, found: dict[Path, DynamicValue]) -> DynamicValue:
    """Return a value with those at the paths below it; a null that there is stays one, as in Debezium.

    Args:
        value: the old value.
        schema: schema of the new one.
        found: the values by path.
    """
    if () in found:
        return found[()]
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RecordError(f"expected an object that gets fields, found {type(value).__name__}")
    fields = None if schema is None else schema.fields
    changed: JsonObject = dict(value)
    if fields is not None:
        stored = {field.name: value.get(field.name) for field in fields}
        changed = {
            field.name: default_value(field.schema) if stored[field.name] is None else stored[field.name]
            for field in fields
        }
    for name in dict.fromkeys(path[0] for path in found):
        inner = {path[1:]: item for path, item in found.items() if path[0] == name}
        below = None if schema is None else schema.field(name)
        changed[name] = _with_values(value.get(name, _NEW), below, inner)
    return changed
