"""Cast: change the type of a whole key or value, or of named fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Schema, Shape
from turnout.records.schema import LOGICAL
from turnout.records.types import NewColumns
from turnout.transforms.base import REPLACE_NULL, Errors, NamedField, Side, Step, Transform, unchanged
from turnout.transforms.cast_conversions import caster, keeps
from turnout.transforms.java.text import trim
from turnout.transforms.nested import FIELD_SYNTAX, FieldPath, Nesting, Tree, nested_fields, nested_step, parse_fields
from turnout.transforms.options import Option, Options
from turnout.transforms.shape_checks import require_object
from turnout.transforms.struct_fields import SCHEMA_BUILDER, convert, copied, default_value, read, store

_PURPOSE = "cast types"
TARGETS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")


def _parts(entry: str) -> list[str]:
    """Return the entry cut at its colons; empty parts at the end do not count, so ``x:`` is a lone ``x``."""
    parts = entry.split(":")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return [trim(part) for part in parts]


def _type(text: str) -> str:
    """Return the type that a text names in any case: Java compares in upper case."""
    return text.upper().lower()


def _check(entries: Sequence[str] | None) -> str | None:
    if not entries:
        return "expected at least one field:type or one type"
    for entry in entries:
        parts = _parts(entry)
        if len(parts) > 2:
            return f"expected field:type, found the entry {entry!r}"
        if _type(parts[-1]) not in TARGETS:
            return f"expected a type of {', '.join(TARGETS)} in the entry {entry!r}"
        if len(parts) == 1 and len(entries) > 1:
            return f"expected the type of the whole value, {parts[0]!r}, to be the only entry"
    return None


@dataclass(frozen=True, slots=True)
class Cast(Transform):
    """See ``summary``.

    Attributes:
        whole: the type of the whole key or value, if it is cast as a whole.
        fields: the steps to each named field, and its type.
    """

    summary: ClassVar[str] = "Casts fields, or the whole key or value, to a primitive type."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "spec",
            "LIST",
            "Entries field:type, or one type for the whole; a field is a path where the syntax version is V2.",
            check=_check,
            valid=f"types: {', '.join(TARGETS)}, in any case",
        ),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    whole: str | None = None
    fields: tuple[tuple[FieldPath, str], ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the spec; where a field is named twice the last type wins."""
        parts = [_parts(entry) for entry in options["spec"]]
        nulls = options["replace.null.with.default"]
        if len(parts[0]) == 1:
            return cls(side=side, whole=_type(parts[0][0]), replace_null_with_default=nulls)
        paths = parse_fields("spec", [name for name, _ in parts], options["field.syntax.version"])
        fields = {path: _type(type_) for path, (_, type_) in zip(paths, parts, strict=True)}
        return cls(side=side, fields=tuple(fields.items()), replace_null_with_default=nulls)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return nested_fields("spec", self.side, (path for path, _ in self.fields))

    def plan(self, shape: Shape) -> Step:
        """Cast the value as a whole, or its named fields; null stays null."""
        if shape.kind == "null":
            return Step(unchanged)
        if self.whole is not None:
            return _whole(shape, self.whole)
        require_object(shape, _PURPOSE)
        tree = Tree(self.fields)
        if tree.children:
            return nested_step(tree, self._flat, Nesting(_PURPOSE, self.replace_null_with_default))
        if shape.schema is None:
            return _fields_of_map(tree.items)
        return self._fields_of_struct(shape.schema, dict(tree.items))

    def _flat(self, tree: Tree[str]) -> Cast | None:
        return replace(self, fields=tuple(((name,), type_) for name, type_ in tree.items)) if tree.items else None

    def _fields_of_struct(self, schema: Schema, targets: dict[str, str]) -> Step:
        if schema.default is not None:
            raise RecordError("a struct with a default cannot be cast: its default has the old types", SCHEMA_BUILDER)
        fields = tuple(
            Field(field.name, _cast_schema(field.schema, targets[field.name])) if field.name in targets else field
            for field in schema.fields
        )
        changed = schema.basics(fields).with_(optional=schema.optional)
        casts = [
            (old, new, caster(old.schema, targets[old.name]), keeps(old.schema, targets[old.name]))
            for old, new in zip(schema.fields, fields, strict=True)
            if old.name in targets
        ]
        defaults = self.replace_null_with_default

        def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
            columns = copied(block, errors, defaults=defaults, without=targets)
            for old, new, cast, same in casts:
                column = read(block, old, defaults=defaults)
                if not (same and block.checked):
                    column = convert(column, cast, errors)
                store(new, column, errors)
                columns[new.name] = column
            return block.with_columns(changed, {field.name: columns[field.name] for field in fields})

        return Step(run)


def _cast_schema(schema: Schema, target: str) -> Schema:
    """Return the schema of a field after the cast: nothing is kept but whether it is optional, and its default."""
    default = None if schema.default is None else caster(schema, target)(default_value(schema))
    return Schema(target, schema.optional, default)


def _fields_of_map(targets: Sequence[tuple[str, str]]) -> Step:
    casts = [(name, caster(None, target)) for name, target in targets]

    def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
        columns: NewColumns = dict(block.columns)
        for name, cast in casts:
            # A field that is absent is added as null.
            columns[name] = convert(columns[name], cast, errors) if name in columns else [None] * len(block)
        return block.with_columns(None, columns)

    return Step(run)


def _whole(shape: Shape, target: str) -> Step:
    """The cast of plain values; their schema keeps all but its type, its logical name included, as in Connect."""
    schema = shape.schema
    cast = caster(schema, target)
    if shape.kind == "object":
        cast({})
    changed = None
    if schema is not None:
        default = None if schema.default is None else cast(default_value(schema))
        if default is not None and schema.name in LOGICAL:
            raise RecordError("Invalid default value", SCHEMA_BUILDER)
        changed = Schema(
            target, schema.optional, default,
            name=schema.name, version=schema.version, doc=schema.doc, parameters=schema.parameters,
        )  # fmt: skip
    is_checked = schema is None or schema.name not in LOGICAL

    def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
        return block.with_values(changed, convert(block.values, cast, errors), checked=is_checked)

    return Step(run)
