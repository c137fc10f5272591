"""ReplaceField: keep, remove and rename fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, TypeAlias

from turnout.errors import RecordError
from turnout.records import Block, Field, Schema, Shape
from turnout.records.types import Column, DynamicValue, Entries
from turnout.transforms.base import (
    REPLACE_NULL,
    ByNames,
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
    FieldPath,
    Nesting,
    Tree,
    is_plain,
    nested_fields,
    nested_step,
    parse_field,
    parse_fields,
    read,
    require_object,
    store,
)
from turnout.transforms.java.values import in_hash_order
from turnout.transforms.options import LIST, Option, OptionError, Options, names_or_none

_PURPOSE = "field replacement"
_BUILDER = "org.apache.kafka.connect.errors.SchemaBuilderException"


_Change: TypeAlias = tuple[Literal["exclude", "include", "rename"], str]
"""Change of a field, and its new name."""


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
    """See ``summary``.

    Attributes:
        exclude: the steps to each field to remove.
        include: those to each field to keep.
        renames: those to each field to rename, and its new name, in the same object.
    """

    summary: ClassVar[str] = "Keeps only some fields, removes some, renames some."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "exclude",
            LIST,
            "Fields to remove; stronger than include. Paths where the syntax version is V2, as in the others.",
            default=(),
            check=names_or_none,
            distinct=True,
        ),
        Option("include", LIST, "Fields to keep; all if empty.", default=(), check=names_or_none, distinct=True),
        Option(
            "renames", LIST, "Entries old:new.", default=(), check=_check_renames, valid="old:new", last_counts=True
        ),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    exclude: tuple[FieldPath, ...] = ()
    include: tuple[FieldPath, ...] = ()
    renames: tuple[tuple[FieldPath, str], ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Cut the renames at their colons; where one field is named twice the last counts."""
        version = options["field.syntax.version"]
        entries = [_pair(entry) for entry in options["renames"] or ()]
        paths = parse_fields("renames", [old for old, _ in entries], version)
        renames = {path: _new_name(path, new, version) for path, (_, new) in zip(paths, entries, strict=True)}
        return cls(
            side,
            parse_fields("exclude", options["exclude"] or (), version),
            parse_fields("include", options["include"] or (), version),
            tuple(renames.items()),
            options["replace.null.with.default"],
        )

    def doubts(self) -> Iterator[OptionError]:
        """Connect removes what is also kept, and keeps one of two fields with one name."""
        if not (self.exclude or self.include or self.renames):
            yield OptionError("", "expected at least one of exclude, include, renames: it changes nothing")
        for path in self.include:
            if path in self.exclude:
                yield OptionError("include", f"{'.'.join(path)!r} is removed by exclude, which is stronger")
        kept = [
            one for one in self.renames if one[0] not in self.exclude and (not self.include or one[0] in self.include)
        ]
        targets = Counter((*old[:-1], new) for old, new in kept)
        for path in (path for path, count in targets.items() if count > 1):
            yield OptionError(
                "renames", f"{targets[path]} fields get the name {'.'.join(path)!r}, and one of them stays"
            )

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        yield from nested_fields("exclude", self.side, self.exclude)
        yield from nested_fields("include", self.side, self.include)
        yield from nested_fields("renames", self.side, (old for old, _ in self.renames))

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        return tuple(Move((self.root, *old), (self.root, *old[:-1], new)) for old, new in self.renames)

    def plan(self, shape: Shape) -> Step:
        """Decide by names alone, once for each schema or shape."""
        if shape.kind == "null":
            return Step(unchanged)
        require_object(shape, _PURPOSE)
        tree: Tree[_Change] = Tree(self._changes())
        if tree.children:
            return nested_step(tree, self._flat, Nesting(_PURPOSE, self.replace_null_with_default))
        names = _Names(tree)
        return self._of_map(shape.names, names) if shape.schema is None else self._of_struct(shape.schema, names)

    def mixed(self) -> ByNames | None:
        """See `Transform.mixed`."""
        tree: Tree[_Change] = Tree(self._changes())
        if tree.children:
            return None
        names = _Names(tree)
        return ByNames(lambda sources: {names.renamed(k): value for k, value in sources.items() if names.keeps(k)})

    def _changes(self) -> Iterator[tuple[FieldPath, _Change]]:
        yield from ((path, ("exclude", path[-1])) for path in self.exclude)
        yield from ((path, ("include", path[-1])) for path in self.include)
        yield from ((path, ("rename", new)) for path, new in self.renames)

    def _flat(self, tree: Tree[_Change]) -> ReplaceField | None:
        """Return the operations on an object's direct fields; fields with kept descendants are kept."""
        names = _Names(tree)
        if not (names.exclude or names.include or names.renames):
            return None
        return replace(
            self,
            exclude=tuple((name,) for name in names.exclude),
            include=tuple((name,) for name in names.include),
            renames=tuple(((old,), new) for old, new in names.renames.items()),
        )

    def _of_map(self, shape_names: tuple[Hashable, ...], names: _Names) -> Step:
        new_names: Entries = {}
        for name in shape_names:
            if type(name) is not str:
                raise RecordError(f"the key {name!r} of a map is not a string", "java.lang.ClassCastException")
            if names.keeps(name):
                new_names[names.renamed(name)] = name

        def run(block: Block, _where: object, _batch: object, _errors: Errors) -> Block:
            return block.with_columns(None, {new: block.columns[old] for new, old in new_names.items()})

        return Step(run)

    def _of_struct(self, schema: Schema, names: _Names) -> Step:
        fields: dict[str, Field] = {}
        for field in schema.fields:
            if names.keeps(field.name):
                new = names.renamed(field.name)
                if not new or new in fields:
                    raise RecordError(f'Cannot create field because of field name duplication "{new}"', _BUILDER)
                fields[new] = Field(new, field.schema)
        moves = [(field, names.source(schema, name)) for name, field in fields.items()]
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

    def _column(self, block: Block, field: Field, source: Field, errors: Errors) -> Column:
        column = read(block, source, defaults=self.replace_null_with_default)
        store(field, column, errors, checked=block.checked)
        if source.schema != field.schema:
            for index, value in enumerate(column):
                if not _is_storable(source.schema, field.schema, value):
                    problem = f'Invalid value for field "{field.name}", schema type {field.schema.type.upper()}'
                    errors.setdefault(index, RecordError(f"{problem}: {source.schema.type.upper()}"))
        return column


class _Names:
    """Changes of the own fields of one object.

    Attributes:
        exclude: the fields to remove.
        include: those to keep, all if there are none.
        renames: the new name of each field that gets one.
    """

    def __init__(self, tree: Tree[_Change]) -> None:
        self.exclude = {name for name, (kind, _) in tree.items if kind == "exclude"}
        self.include = {name for name, (kind, _) in tree.items if kind == "include"}
        self.include |= {name for name, child in tree.children.items() if _Names(child).include}
        self.renames = {name: new for name, (kind, new) in tree.items if kind == "rename"}

    def keeps(self, name: str) -> bool:
        """Return True if the field of that (old) name is kept."""
        return name not in self.exclude and (not self.include or name in self.include)

    def renamed(self, name: str) -> str:
        """Return the new name of a field."""
        return self.renames.get(name, name)

    def source(self, schema: Schema, new: str) -> Field:
        """Return the old field read for a new name: the reverse lookup that Connect does, with its oddities.

        Of several old names for one new name the last in the order of a HashMap counts.
        """
        name = {self.renames[old]: old for old in in_hash_order(self.renames)}.get(new, new)
        field_schema = schema.field(name)
        if field_schema is None:
            raise RecordError(f"{name} is not a valid field name")
        return Field(name, field_schema)


def _new_name(old: FieldPath, text: str, version: str) -> str:
    """Return the new name of a field: a name, or the path to it in the same object.

    Raises:
        OptionError: the path leads to another object.
    """
    new = parse_field("renames", text, version)
    if len(new) > 1 and new[:-1] != old[:-1]:
        raise mistake("renames", f"expected a new name for {'.'.join(old)!r} in the same object, found {text!r}")
    return new[-1]


def _is_storable(source: Schema, target: Schema, value: DynamicValue) -> bool:
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
        if not all(_is_storable(keys, into, key) for key in value):
            return False
    if source.type in ("array", "map") and source.values and target.values:
        inner, into = source.values, target.values
        items = value.values() if source.type == "map" else value
        return all(_is_storable(inner, into, item) for item in items)
    return True
