"""Flatten: nested fields as top-level fields with joined names."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import BigInt, Block, Field, Moment, Schema, Shape, Struct, group
from turnout.records.schema import default_of
from turnout.records.types import Column, Entries, NewColumns
from turnout.transforms.base import ContentPath, Errors, Step, Transform, unchanged
from turnout.transforms.fields import default_value, require_object, store
from turnout.transforms.options import STRING, Option

_PURPOSE = "flattening"
_BUILDER = "org.apache.kafka.connect.errors.SchemaBuilderException"
_REFUSED = (Decimal, Moment, BigInt, Struct)
"""Schemaless values that have no Connect type, or one that Flatten does not know."""


@dataclass(frozen=True, slots=True)
class Flatten(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Makes one flat struct or map of nested ones; names are joined by the delimiter."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("delimiter", STRING, "Separator of the names; may be empty.", default="."),
    )

    delimiter: str = "."

    def content_after(self, path: ContentPath) -> set[ContentPath]:
        """Return the path of the joined name, and the pattern of all leaves below it."""
        root, *names = path
        if root != self.root or not names:
            return {path}
        joined = self.delimiter.join(names)
        return {(root, joined), (root, f"{joined}{self.delimiter}*")}

    def content_before(self, path: ContentPath) -> set[ContentPath]:
        """Return the path itself, each split of its name in two, and its split at every delimiter."""
        root, *names = path
        if root != self.root or not names:
            return {path}
        name, *below = names
        width = len(self.delimiter)
        cuts = [at for at in range(1, len(name) - width) if name.startswith(self.delimiter, at)]
        found = {path, *((root, name[:at], name[at + width :], *below) for at in cuts)}
        return found | {(root, *name.split(self.delimiter), *below)} if self.delimiter else found

    def plan(self, shape: Shape) -> Step:
        """Leaves are laid out for a schema once; maps are opened column by column while all entries are alike."""
        if shape.kind == "null":
            return Step(unchanged)
        require_object(shape, _PURPOSE)
        if shape.schema is None:
            return Step(self._maps)
        leaves = _Leaves(self.delimiter)
        leaves.collect(shape.schema, "", (), optional=shape.schema.optional, default=shape.schema.default)
        schema = shape.schema.basics(tuple(leaf.target for leaf in leaves.leaves))

        def run(block: Block, _where: object, _batch: object, errors: Errors) -> Block:
            columns = {leaf.target.name: leaf.read(block, errors) for leaf in leaves.leaves}
            return block.with_columns(schema, columns, checked=block.checked)

        return Step(run)

    def _maps(self, block: Block, _where: object, _batch: object, errors: Errors) -> Block | list[Block]:
        columns: NewColumns = {}
        try:
            for name, column in block.columns.items():
                self._open(name, column, "", columns)
        except (_Mixed, RecordError):
            return group(block.rows, None, self._one_by_one(block, errors))
        return block.with_columns(None, columns)

    def _open(self, name: Hashable, column: Column, prefix: str, columns: NewColumns) -> None:
        """Add the leaves of a column; a later one of the same name wins."""
        joined = self._joined(prefix, name)
        kinds = set(map(type, column))
        if not kinds.isdisjoint(_REFUSED):
            raise _Mixed
        if dict not in kinds:
            # A column that is still encoded was read above: one value is written alike whatever its neighbours are.
            columns[joined] = list(column)
            return
        shapes = set(map(tuple, column)) if kinds == {dict} else set()
        if len(shapes) != 1:
            raise _Mixed
        for inner in shapes.pop():
            self._open(inner, [value[inner] for value in column], joined, columns)

    def _one_by_one(self, block: Block, errors: Errors) -> list[Entries]:
        flat: list[Entries] = []
        for index, value in enumerate(block.whole()):
            leaves: Entries = {}
            try:
                self._add(value, "", leaves)
            except RecordError as error:
                errors.setdefault(index, error)
            flat.append(leaves)
        return flat

    def _add(self, value: Entries, prefix: str, leaves: Entries) -> None:
        for name, inner in value.items():
            joined = self._joined(prefix, name)
            if type(inner) is dict:
                self._add(inner, joined, leaves)
            elif isinstance(inner, _REFUSED):
                raise RecordError(
                    f"Flatten transformation does not support {type(inner).__name__} for record without schemas "
                    f"(for field {joined})."
                )
            else:
                leaves[joined] = inner

    def _joined(self, prefix: str, name: Hashable) -> str:
        if type(name) is not str:
            raise RecordError(f"the key {name!r} of a map is not a string", "java.lang.ClassCastException")
        return f"{prefix}{self.delimiter}{name}" if prefix else name


class _Mixed(Exception):  # noqa: N818 - a signal inside this module, never seen outside
    """Raised where the values of a column are not alike."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One field of the flat struct: its path in the nested struct, and its new field."""

    path: tuple[Field, ...]
    target: Field

    def read(self, block: Block, errors: Errors) -> Column:
        """Its column. A null struct leaves its leaves null, which nothing checks; defaults apply to its fields."""
        first, *others = self.path
        column: Column = block.columns[first.name]
        absent: set[int] = set()
        for field in others:
            if None in column:
                absent.update(index for index, struct in enumerate(column) if struct is None)
            column = [None if struct is None else struct[field.name] for struct in column]
        default = default_value(self.path[-1].schema)
        if default is not None and None in column:
            column = [default if value is None and index not in absent else value for index, value in enumerate(column)]
        wrong: Errors = {}
        store(self.target, column, wrong, checked=block.checked)
        for index, error in wrong.items():
            if index not in absent:
                errors.setdefault(index, error)
        return column


class _Leaves:
    """Collects the leaves of a struct's schema."""

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter
        self.leaves: list[_Leaf] = []
        self._names: set[str] = set()

    def collect(self, schema: Schema, prefix: str, path: tuple[Field, ...], *, optional: bool, default: object) -> None:
        inherited = schema.with_(default=default)
        for field in schema.fields:
            name = f"{prefix}{self.delimiter}{field.name}" if prefix else field.name
            inner = field.schema
            fallback = inner.default if inner.default is not None else default_of(inherited, field.name)
            loose = optional or inner.optional
            if inner.type == "struct":
                self.collect(inner, name, (*path, field), optional=loose, default=fallback)
                continue
            if inner.type == "map":
                raise RecordError(
                    f"Flatten transformation does not support MAP for record with schemas (for field {name})."
                )
            if not name or name in self._names:
                raise RecordError(f'Cannot create field because of field name duplication "{name}"', _BUILDER)
            self._names.add(name)
            target = Field(name, inner.with_(optional=loose, default=fallback))
            self.leaves.append(_Leaf((*path, field), target))
