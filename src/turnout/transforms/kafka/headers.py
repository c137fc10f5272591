"""Transforms of headers: InsertHeader, DropHeaders, HeaderFrom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import ClassVar, Self

from turnout.base.deferred import np
from turnout.base.terminal import plural
from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Positions, Schema, Shape
from turnout.records.types import Column
from turnout.transforms.base import HEADERS, REPLACE_NULL, Errors, Move, NamedField, Side, Step, Transform, mistake
from turnout.transforms.fields import (
    FIELD_SYNTAX,
    NULL_POINTER,
    FieldPath,
    copied,
    fields_on,
    fits,
    nested_fields,
    parse_field,
    parse_fields,
    read_map,
    read_struct,
    require_object,
    schema_at,
)
from turnout.transforms.java.literal import Literal, parse_literal
from turnout.transforms.kafka.replace_field import ReplaceField
from turnout.transforms.options import LIST, STRING, Option, Options, names, non_empty_list, non_null, one_of


@dataclass(frozen=True, slots=True)
class InsertHeader(Transform):
    """See ``summary``.

    Attributes:
        literal: the value with the schema that its text gave it.
    """

    summary: ClassVar[str] = "Appends one header with a fixed value, whose type follows from its text."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("header", STRING, "The header's name; may be empty.", check=non_null),
        Option(
            "value.literal", STRING, "The value's text: a number, a date, JSON, or words.", check=non_null, block=True
        ),
    )

    header: str = ""
    literal: Literal | None = None

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the literal, once for all records."""
        return cls(side, options["header"], parse_literal(options["value.literal"]))

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Append one header to each record, with the same value for all."""
        assert self.literal is not None
        batch.headers.append(rows, self.header, self.literal.schema, [self.literal.value] * len(rows))
        return {}


@dataclass(frozen=True, slots=True)
class DropHeaders(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Removes every header whose name is listed; the others keep their order."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("headers", LIST, "The names, exact and case-sensitive.", check=names, distinct=True, valid="not empty"),
    )

    headers: tuple[str, ...] = ()

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_headers`."""
        return (("headers", name) for name in self.headers)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop them."""
        batch.headers.drop(self.headers, rows)
        return {}


@dataclass(frozen=True, slots=True)
class HeaderFrom(Transform):
    """See ``summary``.

    Attributes:
        fields: the steps to each field.
    """

    summary: ClassVar[str] = "Appends a header for each listed field; move also removes the fields."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "fields",
            LIST,
            "The fields, paths where the syntax version is V2.",
            check=non_empty_list,
            valid="not empty",
        ),
        Option("headers", LIST, "The header for each of them.", check=non_empty_list, valid="as many as fields"),
        Option("operation", STRING, "What happens to the fields.", check=one_of("move", "copy"), valid="move, copy"),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    fields: tuple[FieldPath, ...] = ()
    headers: tuple[str, ...] = ()
    operation: str = "copy"
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check that the options name one header for each field."""
        if len(options["fields"]) != len(options["headers"]):
            counts = f"{plural(len(options['headers']), 'header')} for {plural(len(options['fields']), 'field')}"
            raise mistake("headers", f"expected one header for each field, found {counts}")
        texts, version = options["fields"], options["field.syntax.version"]
        paths = tuple(parse_field("fields", text, version) for text in texts)
        if options["operation"] == "move":
            paths = parse_fields("fields", texts, version)
        return cls(side, paths, options["headers"], options["operation"], options["replace.null.with.default"])

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return nested_fields("fields", self.side, self.fields)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        copy = self.operation == "copy"
        pairs = zip(self.fields, self.headers, strict=True)
        return tuple(Move((self.root, *field), (HEADERS, header), copy) for field, header in pairs)

    def plan(self, shape: Shape) -> Step:
        """Append the headers; to move the fields takes them out as well. A null key or value fails."""
        require_object(shape, self._purpose)
        sources = self._sources(shape.schema)
        move = self.operation == "move"
        removal = self._removal(shape)

        def run(block: Block, where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block | list[Block]:
            rows = block.rows if where is None else block.rows[np.array(where)]
            for header, path, fields in sources:
                wrong: Errors = {}
                column = self._column(block, path, fields, wrong)
                errors.update((index, error) for index, error in wrong.items() if where is None or where[index])
                if where is not None:
                    column = list(compress(column, where))
                batch.headers.append(rows, header, None if fields is None else schema_at(fields), column)
            return removal.run(block, None, batch, errors) if move else block

        return Step(run, in_place=not move)

    @property
    def _purpose(self) -> str:
        return f"header {self.operation}"

    def _removal(self, shape: Shape) -> Step:
        """Return the step that takes the fields out."""
        if any(len(path) > 1 for path in self.fields):
            exclude = ReplaceField(
                self.side, exclude=self.fields, replace_null_with_default=self.replace_null_with_default
            )
            return exclude.plan(shape)
        names = {name for (name,) in self.fields}
        schema = shape.schema
        changed = None
        if schema is not None:
            changed = schema.basics(tuple(field for field in schema.fields if field.name not in names))

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            if changed is not None:
                columns = copied(block, errors, defaults=self.replace_null_with_default, without=names)
                return block.with_columns(changed, columns)
            remaining = {name: column for name, column in block.columns.items() if name not in names}
            return block.with_columns(None, remaining)

        return Step(run)

    def _sources(self, schema: Schema | None) -> list[tuple[str, FieldPath, tuple[Field, ...] | None]]:
        """Return the header, the path and the fields on it of each entry; no fields without a schema."""
        sources: list[tuple[str, FieldPath, tuple[Field, ...] | None]] = []
        for path, header in zip(self.fields, self.headers, strict=True):
            fields = None if schema is None else fields_on(schema, path)
            if schema is not None and fields is None:
                raise RecordError(f"no field {'.'.join(path)!r}", NULL_POINTER)
            sources.append((header, path, fields))
        return sources

    def _column(self, block: Block, path: FieldPath, fields: tuple[Field, ...] | None, errors: Errors) -> Column:
        """Return the values of a header; values that it cannot have are entered in *errors*."""
        if fields is None:
            return read_map(block, path, self._purpose, errors) or [None] * len(block)
        column = read_struct(block, fields, defaults=self.replace_null_with_default)
        schema = schema_at(fields)
        if block.checked and (schema.optional or None not in column):
            return column
        for index, value in enumerate(column):
            if value is None and not schema.optional:
                errors.setdefault(index, RecordError(f"A null value requires an optional schema but was {schema.type}"))
            elif value is not None and not block.checked and not fits(schema, value):
                problem = f"The value is not of the type {schema.type}: {type(value).__name__}"
                errors.setdefault(index, RecordError(problem))
        return column
