"""Transforms of the whole key or value: ExtractField, HoistField, ValueToKey, SetSchemaMetadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

from turnout.base.startup import np
from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Positions, Schema, Shape, group
from turnout.records.field_paths import PathError, parse_path
from turnout.records.schema import ANY
from turnout.records.types import Column
from turnout.transforms.base import (
    KEY,
    REPLACE_NULL,
    VALUE,
    Errors,
    Move,
    NamedField,
    Side,
    Step,
    Transform,
    mistake,
    unchanged,
)
from turnout.transforms.fields import (
    FIELD_SYNTAX,
    SCHEMA_BUILDER,
    FieldPath,
    Nesting,
    Tree,
    copied,
    fields_on,
    nested_fields,
    nested_step,
    parse_field,
    read_map,
    read_struct,
    require_object,
    schema_at,
    store,
)
from turnout.transforms.options import INT, LIST, STRING, Option, Options, names

_EXTRACTION = "field extraction"


@dataclass(frozen=True, slots=True)
class ExtractField(Transform):
    """See ``summary``.

    Attributes:
        path: the steps to the field; no steps at all make every record fail (KIP-821, an empty V2 path).
        field: the option's text.
    """

    summary: ClassVar[str] = "Replaces the key or value by one of its fields, which may be nested (KIP-821)."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("field", STRING, "The field's name, or its path where the syntax version is V2."),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    field: str = ""
    path: tuple[str, ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the path."""
        field = options["field"] or ""
        try:
            path = parse_path(field, options["field.syntax.version"])
        except PathError as error:
            raise mistake("field", str(error)) from None
        return cls(side, field, path, options["replace.null.with.default"])

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        if self.path:
            yield NamedField("field", self.side, self.path)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        return (Move((self.root, *self.path), (self.root,)),)

    def plan(self, shape: Shape) -> Step:
        """Resolve the path in the schema, if the value has one, so that it fails for nulls, too."""
        if shape.schema is None and shape.kind == "null":
            # Kafka resolves no path for it, not even an empty one.
            return Step(unchanged)
        if not self.path:
            raise RecordError("the path is empty", "java.lang.IndexOutOfBoundsException")
        if shape.schema is not None:
            return self._of_struct(shape.schema)
        require_object(shape, _EXTRACTION)
        return Step(self._of_map)

    def _of_map(self, block: Block, _where: object, _batch: Batch, errors: Errors) -> Block | list[Block]:
        column = read_map(block, self.path, _EXTRACTION, errors)
        return block.nulls(None) if column is None else _in_place(block, None, column)

    def _of_struct(self, schema: Schema) -> Step:
        if schema.type != "struct":
            raise RecordError(f"Cannot look up fields on non-struct type: {schema.type}")
        fields = fields_on(schema, self.path)
        if fields is None:
            raise RecordError(f"Unknown field: {self.field}", "java.lang.IllegalArgumentException")
        last = fields[-1].schema
        field_schema = None if last.type == ANY else last

        def run(block: Block, _where: object, _batch: Batch, _errors: Errors) -> Block | list[Block]:
            if block.kind == "null":
                return block.nulls(field_schema)
            column = read_struct(block, fields, defaults=self.replace_null_with_default)
            return _in_place(block, field_schema, column)

        return Step(run)


def _in_place(block: Block, schema: Schema | None, column: Column) -> Block | list[Block]:
    """Return the column in the place of the block's values."""
    if schema is not None and schema.type != "struct" and None not in column:
        return block.with_values(schema, column, checked=block.checked)
    return group(block.rows, schema, column, checked=block.checked)


_HOISTING = "field hoisting"


@dataclass(frozen=True, slots=True)
class HoistField(Transform):
    """See ``summary``.

    Attributes:
        field: the name of the field that wraps.
        hoisted: the steps to the field that is wrapped, none for the whole key or value.
    """

    summary: ClassVar[str] = "Wraps the key or value, null too, or a field of it, as the only field of a struct or map."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("field", STRING, "The name of the field that wraps."),
        Option(
            "hoisted",
            STRING,
            "The field to wrap with its name, a path where the syntax version is V2; empty for the whole (KIP-821).",
            default="",
        ),
        FIELD_SYNTAX,
    )

    field: str = ""
    hoisted: FieldPath = ()

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the path."""
        hoisted = options["hoisted"]
        path = parse_field("hoisted", hoisted, options["field.syntax.version"]) if hoisted else ()
        return cls(side, options["field"], path)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return nested_fields("hoisted", self.side, [self.hoisted] if self.hoisted else [])

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        *parents, hoisted = (self.root, *self.hoisted)
        wrapped = (*parents, self.field, hoisted) if self.hoisted else (hoisted, self.field)
        return (Move((*parents, hoisted), wrapped),)

    def plan(self, shape: Shape) -> Step:
        """Wrap every value the same way; a null fails if the schema is not optional."""
        if self.hoisted:
            return self._of_field(shape)
        if shape.schema is None:
            return Step(self._in_map)
        if not self.field:
            raise RecordError("fieldName cannot be null.", SCHEMA_BUILDER)
        field = Field(self.field, shape.schema)
        schema = Schema("struct", fields=(field,))

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            column = block.whole()
            store(field, column, errors, checked=block.checked)
            return block.with_columns(schema, {self.field: column}, checked=block.checked)

        return Step(run)

    def _in_map(self, block: Block, _where: object, _batch: Batch, _errors: Errors) -> Block:
        return block.with_columns(None, {self.field: block.whole()})

    def _of_field(self, shape: Shape) -> Step:
        """Wrap one field with its name; a value without it is unchanged."""
        if shape.kind == "null":
            return Step(unchanged)
        require_object(shape, _HOISTING)
        if len(self.hoisted) > 1:
            inner = replace(self, hoisted=self.hoisted[-1:])
            tree = Tree([(self.hoisted, inner)])
            return nested_step(tree, lambda tree: inner if tree.items else None, Nesting(_HOISTING, defaults=True))
        return Step(self._field_of_map) if shape.schema is None else self._field_of_struct(shape.schema)

    def _field_of_struct(self, schema: Schema) -> Step:
        name = self.hoisted[0]
        hoisted = schema.field(name)
        if hoisted is None:
            return Step(unchanged)
        wrapped = Field(self.field, Schema("struct", fields=(Field(name, hoisted),)))
        fields = tuple(wrapped if field.name == name else field for field in schema.fields)
        if not self.field or sum(field.name == self.field for field in fields) > 1:
            raise RecordError(f'Cannot create field because of field name duplication "{self.field}"', SCHEMA_BUILDER)
        changed = schema.basics(fields).with_(optional=schema.optional)

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            columns = copied(block, errors)
            columns[self.field] = [{name: value} for value in columns[name]]
            return block.with_columns(changed, {field.name: columns[field.name] for field in fields})

        return Step(run)

    def _field_of_map(self, block: Block, _where: object, _batch: Batch, _errors: Errors) -> Block:
        name = self.hoisted[0]
        if name not in block.columns:
            return block
        columns = {other: column for other, column in block.columns.items() if other not in (name, self.field)}
        return block.with_columns(None, {**columns, self.field: [{name: value} for value in block.columns[name]]})


_COPYING = "copying fields from value to key"


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
            LIST,
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
        require_object(block.shape, _COPYING)
        if block.schema is None:
            nulls = [None] * len(block)
            found = {path[-1]: read_map(block, path, _COPYING, errors) or nulls for path in self.fields}
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


@dataclass(frozen=True, slots=True)
class SetSchemaMetadata(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Sets the name, the version or both of a struct's schema."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("schema.name", STRING, "The name.", default=None),
        Option("schema.version", INT, "The version.", default=None),
        REPLACE_NULL,
    )

    schema_name: str | None = None
    schema_version: int | None = None
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check that the options set a name or a version."""
        if options["schema.name"] is None and options["schema.version"] is None:
            raise mistake("", "expected schema.name, schema.version or both")
        return super(SetSchemaMetadata, cls).from_options(options, side)

    def plan(self, shape: Shape) -> Step:
        """Copies structs under the new schema; Connect lists the fields of every schema, and so takes no other type."""
        if shape.schema is None:
            if shape.kind == "null":
                return Step(unchanged)
            raise RecordError("Schema required for [updating schema metadata]")
        if shape.schema.type != "struct":
            raise RecordError(f"Cannot list fields on non-struct type: {shape.schema.type}")
        schema = self._renamed(shape.schema)

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            if block.kind == "null":
                return block.nulls(schema)
            columns = copied(block, errors, defaults=self.replace_null_with_default)
            return block.with_columns(schema, columns, checked=block.checked)

        return Step(run)

    def _renamed(self, schema: Schema) -> Schema:
        if self.schema_name is not None:
            schema = schema.with_(name=self.schema_name)
        return schema if self.schema_version is None else schema.with_(version=self.schema_version)
