"""Transforms inside nested objects: paths of KIP-821, and a step that applies flat transforms at each parent.

Kafka 4.3 knows paths in ExtractField alone; for the other transforms that the KIP names, this is turnout's
reading of it: in its parent a path's last step means what a flat name means at the root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from turnout.base.deferred import np
from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Schema, Shape, group
from turnout.records.field_paths import PathError, parse_path
from turnout.records.schema import ANY
from turnout.records.types import Column, NewColumn
from turnout.transforms.base import Errors, NamedField, Side, Step, Transform, mistake
from turnout.transforms.checks import one_of
from turnout.transforms.options import Option
from turnout.transforms.shape_checks import require_object
from turnout.transforms.struct_fields import copied, read, store

FieldPath: TypeAlias = tuple[str, ...]
"""The steps to a field."""

Item = TypeVar("Item")

_PLANS: Final = 10_000
"""Maximum number of cached plans; the cache is cleared when it is full."""

_EMPTY: Final = Schema("struct")
"""The schema of an object that is created."""

FIELD_SYNTAX: Final = Option(
    "field.syntax.version",
    "STRING",
    "V1: the text is one name. V2: steps between dots, a step with dots inside backticks.",
    default="V1",
    check=one_of("V1", "V2", any_case=True),
    valid="V1, V2, in any case",
)


def parse_fields(option: str, texts: Iterable[str], version: str) -> tuple[FieldPath, ...]:
    """Return the path of each text of an option.

    Raises:
        OptionError: a path has no steps or a backtick that is never closed, or leads to a field inside another's.
    """
    paths = tuple(parse_field(option, text, version) for text in texts)
    ordered = sorted(set(paths))
    for outer, inner in pairwise(ordered):
        if inner[: len(outer)] == outer:
            shown = f"{'.'.join(inner)!r} is inside of {'.'.join(outer)!r}"
            raise mistake(option, f"expected fields that are not nested in each other, and {shown}")
    return paths


def parse_field(option: str, text: str, version: str) -> FieldPath:
    """Return the path of one text of an option.

    Raises:
        OptionError: it has no steps, or a backtick that is never closed.
    """
    try:
        path = parse_path(text, version)
    except PathError as error:
        raise mistake(option, str(error)) from None
    if not path:
        raise mistake(option, "expected a field, found an empty path")
    return path


def nested_fields(option: str, side: Side, paths: Iterable[FieldPath]) -> Iterator[NamedField]:
    """Yield the fields that an option names by paths."""
    return (NamedField(option, side, path) for path in paths)


class Tree(Generic[Item]):
    """Items by the parents of their paths.

    Attributes:
        items: those of this object's own fields, with their names.
        children: those inside of a field of it.

    >>> tree = Tree([(("a",), 1), (("b", "c"), 2)])
    >>> tree.items, tree.children["b"].items
    ([('a', 1)], [('c', 2)])
    """

    def __init__(self, items: Iterable[tuple[FieldPath, Item]]) -> None:
        self.items: list[tuple[str, Item]] = []
        self.children: dict[str, Tree[Item]] = {}
        for path, item in items:
            node = self
            for step in path[:-1]:
                node = node.children.setdefault(step, Tree(()))
            node.items.append((path[-1], item))


class Nesting(NamedTuple):
    """Manner of working inside of nested objects.

    Attributes:
        purpose: purpose of the fields, for error messages.
        defaults: whether a null is read as its field's default, in every field that is copied.
        create: whether parents that are missing are added as empty objects.
    """

    purpose: str
    defaults: bool
    create: bool = False


def nested_step(tree: Tree[Item], flat: Callable[[Tree[Item]], Transform | None], nesting: Nesting) -> Step:
    """Return the step that applies the transform of each object of *tree*, the innermost first.

    Parents that are null or missing are left alone; any other value in their place is a failure of the record.

    Args:
        tree: operations by path.
        flat: the transform for the fields of one object of the tree; None where there is nothing to do.
        nesting: how.
    """
    return Step(_NestedRun(tree, flat, nesting))


class _NestedRun:
    """The `Run` of one object of a tree. Its plans are kept for each shape, as a stage keeps them."""

    def __init__(self, tree: Tree[Item], flat: Callable[[Tree[Item]], Transform | None], nesting: Nesting) -> None:
        self.transform = flat(tree)
        self.nesting = nesting
        self.children = {name: _NestedRun(child, flat, nesting) for name, child in tree.children.items()}
        self._plans: dict[Shape, Step] = {}
        self._latest: tuple[Shape, Step] | None = None
        self._outer: dict[str, tuple[Schema, Schema, Schema]] = {}
        self._after: tuple[Schema, Schema, Schema] | None = None

    def __call__(self, block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> list[Block]:
        require_object(block.shape, self.nesting.purpose)
        for name, child in self.children.items():
            block = self._within(block, name, child, batch, errors)
        if self.transform is None:
            return [block]
        result = self._step(self.transform, block.shape).run(block, None, batch, errors)
        return result if isinstance(result, list) else [result]

    def _step(self, transform: Transform, shape: Shape) -> Step:
        if self._latest is not None and shape.schema is not None and self._latest[0].schema is shape.schema:
            return self._latest[1]
        step = self._plans.get(shape)
        if step is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            step = self._plans[shape] = transform.plan(shape)
        self._latest = shape, step
        return step

    def _within(self, block: Block, name: str, child: _NestedRun, batch: Batch, errors: Errors) -> Block:
        """Return the block after the child's work on the objects in a field."""
        schema = block.schema
        if schema is None:
            column = block.columns.get(name)
            if column is None and not self.nesting.create:
                return block
            column = self._created(column or [None] * len(block))
            changed, _ = child.inside(block, None, column, batch, errors)
            return block.with_columns(None, {**block.columns, name: changed})
        inner = schema.field(name)
        if inner is None:
            if not self.nesting.create:
                return block
            inner = _EMPTY
            column = [{} for _ in range(len(block))]
        else:
            column = read(block, Field(name, inner))
        columns: dict[str, Column] = copied(block, errors, defaults=self.nesting.defaults, without={name})
        changed, after = child.inside(block, inner, column, batch, errors)
        store(Field(name, after), changed, errors, checked=block.checked)
        outer = self._schema(schema, name, inner, after)
        columns[name] = changed
        return block.with_columns(outer, {field.name: columns[field.name] for field in outer.fields})

    def _created(self, column: Column) -> Column:
        return [{} if value is None else value for value in column] if self.nesting.create else column

    def _schema(self, schema: Schema, name: str, inner: Schema, after: Schema) -> Schema:
        """Return the schema of an object with a changed field's schema; cached, so equal ones are identical."""
        cached = self._outer.get(name)
        if cached is not None and cached[0] is schema and cached[1] is after:
            return cached[2]
        if inner == after and schema.field(name) is not None:
            outer = schema
        else:
            if schema.default is not None:
                raise RecordError(f"a struct with a default cannot change inside: its default has the old {name!r}")
            exists = any(field.name == name for field in schema.fields)
            fields = tuple(Field(name, after) if field.name == name else field for field in schema.fields)
            outer = schema.basics(fields if exists else (*fields, Field(name, after)))
            outer = outer.with_(optional=schema.optional)
        self._outer[name] = (schema, after, outer)
        return outer

    def inside(
        self, block: Block, schema: Schema | None, column: Column, batch: Batch, errors: Errors
    ) -> tuple[NewColumn, Schema]:
        """Return a column of objects after the work on them, with its schema.

        Args:
            block: the block that has the column.
            schema: schema of the column; None in schemaless objects.
            column: the objects, some of them null.
            batch: the batch.
            errors: by index in the block.
        """
        declared = None if schema is None or schema.type == ANY else schema
        present = np.array([index for index, value in enumerate(column) if value is not None], np.intp)
        parts = group(block.rows[present], declared, [column[index] for index in present], checked=block.checked)
        changed = list(column)
        after = declared
        for part in parts:
            indexes = np.searchsorted(block.rows, part.rows)
            wrong: Errors = {}
            results: list[Block] = []
            try:
                results = self(part, None, batch, wrong)
            except RecordError as refusal:
                wrong = dict.fromkeys(range(len(part)), refusal)
            for index, error in wrong.items():
                errors.setdefault(int(indexes[index]), error)
            for result in results:
                after = result.schema
                for index, value in zip(np.searchsorted(block.rows, result.rows), result.whole(), strict=True):
                    changed[index] = value
        if declared is None:
            return changed, Schema(ANY, optional=True) if schema is None else schema
        if not parts:
            after = self._schema_after(declared, block, batch)
        assert after is not None
        return changed, self._optional(declared, after)

    def _schema_after(self, schema: Schema, block: Block, batch: Batch) -> Schema | None:
        """Return the schema that the objects would have."""
        if schema.type != "struct":
            return schema
        empty = Block(block.rows[:0], schema, columns={field.name: [] for field in schema.fields})
        return self(empty, None, batch, {})[0].schema

    def _optional(self, schema: Schema, after: Schema) -> Schema:
        """Return the new schema, optional as the old one was; the same one for the same ones."""
        cached = self._after
        if cached is not None and cached[0] is schema and cached[1] is after:
            return cached[2]
        result = after if after.optional == schema.optional else after.with_(optional=schema.optional)
        self._after = (schema, after, result)
        return result
