"""ReplaceField: keep, remove and rename fields."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.errors import RecordError
from turnout.records import Block, Field, Schema, Shape
from turnout.records.types import Column, DynamicValue, Entries
from turnout.transforms.base import REPLACE_NULL, Errors, NamedField, Side, Step, Transform, flat_fields, unchanged
from turnout.transforms.checks import names_or_none
from turnout.transforms.flow import Move
from turnout.transforms.java.map import in_hash_order
from turnout.transforms.mixed import EachObject
from turnout.transforms.options import Option, Options
from turnout.transforms.requirements import require_object
from turnout.transforms.storing import is_plain, read, store

_PURPOSE = "field replacement"
_BUILDER = "org.apache.kafka.connect.errors.SchemaBuilderException"


def _pair(entry: str) -> list[str]:
    parts = entry.split(":")
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _check_renames(entries: Sequence[str] | None) -> str | None:
    wrong = [entry for entry in entries or () if len(_pair(entry)) != 2]
    return f"expected entries old:new, and {wrong[0]!r} is none" if wrong else None


@dataclass(frozen=True, slots=True)
class ReplaceField(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Keeps only some fields, removes some, renames some. Names are flat."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "exclude",
            "LIST",
            "Fields to remove; stronger than include.",
            default=(),
            check=names_or_none,
            distinct=True,
        ),
        Option("include", "LIST", "Fields to keep; all if empty.", default=(), check=names_or_none, distinct=True),
        Option("renames", "LIST", "Entries old:new.", default=(), check=_check_renames, valid="old:new"),
        REPLACE_NULL,
    )

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Cut the renames at their colons; where one field is named twice the last counts."""
        renames: dict[str, str] = {}
        for entry in options["renames"] or ():
            old, new = _pair(entry)
            renames[old] = new
        return cls(
            side,
            options["exclude"] or (),
            options["include"] or (),
            tuple(renames.items()),
            options["replace.null.with.default"],
        )

    def keeps(self, name: str) -> bool:
        """Return True if the field of that (old) name is kept."""
        return name not in self.exclude and (not self.include or name in self.include)

    def renamed(self, name: str) -> str:
        """The new name of a field."""
        return dict(self.renames).get(name, name)

    def source_of(self, name: str) -> str:
        """Return the old field read for a new name: the reverse lookup that Connect does, with its oddities.

        Of several old names for one new name the last in the order of a HashMap counts.
        """
        renames = dict(self.renames)
        return {renames[old]: old for old in in_hash_order(renames)}.get(name, name)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        yield from flat_fields("exclude", self.side, self.exclude)
        yield from flat_fields("include", self.side, self.include)
        yield from flat_fields("renames", self.side, (old for old, _ in self.renames))

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        return tuple(Move((self.root, old), (self.root, new)) for old, new in self.renames)

    def plan(self, shape: Shape) -> Step:
        """Decide by names alone, once for each schema or shape."""
        if shape.kind == "null":
            return Step(unchanged)
        require_object(shape, _PURPOSE)
        return self._of_map(shape.names) if shape.schema is None else self._of_struct(shape.schema)

    def mixed(self) -> EachObject:
        """See `Transform.mixed`."""
        renamed = dict(self.renames).get
        exclude, include = frozenset(self.exclude), frozenset(self.include)
        if include:
            kept = include - exclude
            return EachObject(lambda entries: {renamed(k, k): value for k, value in entries.items() if k in kept})
        return EachObject(lambda entries: {renamed(k, k): value for k, value in entries.items() if k not in exclude})

    def _of_map(self, names: tuple[Hashable, ...]) -> Step:
        new_names: Entries = {}
        for name in names:
            if type(name) is not str:
                raise RecordError(f"the key {name!r} of a map is not a string", "java.lang.ClassCastException")
            if self.keeps(name):
                new_names[self.renamed(name)] = name

        def run(block: Block, _where: object, _batch: object, _errors: Errors) -> Block:
            return block.with_columns(None, {new: block.columns[old] for new, old in new_names.items()})

        return Step(run)

    def _of_struct(self, schema: Schema) -> Step:
        fields: dict[str, Field] = {}
        for field in schema.fields:
            if self.keeps(field.name):
                new = self.renamed(field.name)
                if not new or new in fields:
                    raise RecordError(f'Cannot create field because of field name duplication "{new}"', _BUILDER)
                fields[new] = Field(new, field.schema)
        moves = [(field, self._source(schema, name)) for name, field in fields.items()]
        result_schema = schema.basics(tuple(fields.values()))
        plain = {field.name for field, source in moves if is_plain(field.schema) and source.schema == field.schema}

        def run(block: Block, _where: object, _batch: object, errors: Errors) -> Block:
            stored, checked = block.columns, block.checked
            columns = {
                field.name: stored[source.name]
                if checked and field.name in plain and source.name in stored
                else self._column(block, field, source, errors)
                for field, source in moves
            }
            return block.with_columns(result_schema, columns, checked=checked)

        return Step(run)

    def _source(self, schema: Schema, new: str) -> Field:
        name = self.source_of(new)
        field_schema = schema.field(name)
        if field_schema is None:
            raise RecordError(f"{name} is not a valid field name")
        return Field(name, field_schema)

    def _column(self, block: Block, field: Field, source: Field, errors: Errors) -> Column:
        column = read(block, source, defaults=self.replace_null_with_default)
        store(field, column, errors, checked=block.checked)
        if source.schema != field.schema:
            for index, value in enumerate(column):
                if not _fits(source.schema, field.schema, value):
                    problem = f'Invalid value for field "{field.name}", schema type {field.schema.type.upper()}'
                    errors.setdefault(index, RecordError(f"{problem}: {source.schema.type.upper()}"))
        return column


def _fits(source: Schema, target: Schema, value: DynamicValue) -> bool:
    """Return True if a value of one schema can be stored under another."""
    if value is None:
        return target.optional
    kinds = [schema.logical or schema.type for schema in (source, target)]
    if kinds[0] != kinds[1]:
        return False
    if source.type == "struct":
        return source == target
    if source.type == "map" and source.keys and target.keys:
        keys, into = source.keys, target.keys
        if not all(_fits(keys, into, key) for key in value):
            return False
    if source.type in ("array", "map") and source.values and target.values:
        inner, into = source.values, target.values
        items = value.values() if source.type == "map" else value
        return all(_fits(inner, into, item) for item in items)
    return True
