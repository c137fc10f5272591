"""Set: fields computed by expressions of CEL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias

import numpy as np
import yaml

from turnout.base.yaml_values import load, position_of
from turnout.errors import MissingExtraError, RecordError
from turnout.expressions import BatchReader, Expression, ExpressionError
from turnout.records import Batch, Block, Field, Positions, Schema, Shape, group
from turnout.records.block import rows_of
from turnout.records.field_paths import PathError, parse_path
from turnout.records.schema import ANY, TIMESTAMP
from turnout.records.types import DynamicValue, NewColumn, NewColumns
from turnout.transforms.base import (
    HEADERS,
    KEY,
    VALUE,
    ContentPath,
    Errors,
    Move,
    NamedField,
    Side,
    Step,
    Transform,
    change_rows,
    fits,
    mistake,
)
from turnout.transforms.fields import (
    SCHEMA_BUILDER,
    FieldPath,
    Nesting,
    Tree,
    convert,
    copied,
    nested_step,
    require_object,
    store,
)
from turnout.transforms.options import STRING, Option, OptionError, Options

_PURPOSE: Final = "computed fields"
_SIDES: Final = {KEY: Side.KEY, VALUE: Side.VALUE}
_TOPIC: Final = "topic"
_TIMESTAMP: Final = "timestamp"
_ATTRIBUTES: Final = ((_TOPIC, 1), (_TIMESTAMP, 1), (HEADERS, 2))
"""Attributes of a record that can be set, each with the number of its steps."""

_SCHEMAS: Final[Mapping[str, Schema]] = {
    "BOOL": Schema("boolean", optional=True),
    "INT": Schema("int64", optional=True),
    "DOUBLE": Schema("float64", optional=True),
    "STRING": Schema("string", optional=True),
    "BYTES": Schema("bytes", optional=True),
    "TIMESTAMP": Schema("int64", optional=True, name=TIMESTAMP, version=1),
}
"""Schema of a new field, by the type that CEL knows of its expression."""
_KEPT_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "BOOL": frozenset({"boolean"}),
    "INT": frozenset({"int8", "int16", "int32", "int64"}),
    "DOUBLE": frozenset({"float32", "float64"}),
    "STRING": frozenset({"string"}),
    "BYTES": frozenset({"bytes"}),
    "TIMESTAMP": frozenset({TIMESTAMP}),
}
"""Types of an existing field that accept the values of such an expression."""

_Values: TypeAlias = dict[int, DynamicValue]
"""Row of the batch → value."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Field with its new value.

    Attributes:
        path: `KEY` or `VALUE`, and the steps to the field; none for the whole. Else one of `_ATTRIBUTES`.
        expression: its new value.
    """

    path: ContentPath
    expression: Expression


@dataclass(frozen=True, slots=True)
class Set(Transform):
    """See ``summary``. Not part of Connect."""

    summary: ClassVar[str] = (
        "Sets fields of key and value, or the whole of them, headers, topic and timestamp to the values of "
        "expressions (CEL)."
    )
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "fields",
            STRING,
            "The expression of each field, as JSON or YAML: `{value.gross: value.net * 1.24}`.",
            valid="value.…, key.…, headers.NAME, topic, timestamp",
            block=True,
        ),
    )

    assignments: tuple[Assignment, ...] = ()

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the fields, and compile their expressions."""
        try:
            document = load(options["fields"] or "{}", max_depth=2)
        except yaml.YAMLError as error:
            raise OptionError("fields", f"neither JSON nor YAML: {position_of(error)[0]}") from None
        if not isinstance(document, Mapping) or not document:
            raise OptionError("fields", f"expected an expression for each field, found {document!r}")
        assignments = tuple(_assignment(path, text) for path, text in document.items())
        ordered = sorted(assignment.path for assignment in assignments)
        for outer, inner in pairwise(ordered):
            if fits(outer, inner):
                shown = f"{'.'.join(inner)!r} is inside of {'.'.join(outer)!r}"
                raise mistake("fields", f"expected fields that are not nested in each other, and {shown}")
        return cls(side, assignments)

    @property
    def keeps_topic(self) -> bool:  # type: ignore[override]
        """See `Transform.keeps_topic`."""
        return all(one.path[0] != _TOPIC for one in self.assignments)

    @property
    def constant_topic(self) -> str | None:
        """The topic of every record, if its expression is a plain text."""
        texts = [one.expression.text.strip() for one in self.assignments if one.path[0] == _TOPIC]
        plain = re.fullmatch(r"""(["'])([^"'\\]+)\1""", texts[0]) if texts else None
        return None if plain is None else plain[2]

    @property
    def sets_time(self) -> bool:  # type: ignore[override]
        """See `Transform.sets_time`."""
        return any(one.path[0] == _TIMESTAMP for one in self.assignments)

    def set_headers(self) -> list[str]:
        """See `Transform.set_headers`."""
        return [one.path[1] for one in self.assignments if one.path[0] == HEADERS]

    def named_fields(self) -> Iterator[NamedField]:
        """Yield the fields that the expressions name, so that a mistyped one is found before the run."""
        for path in sorted({path for one in self.assignments for path in one.expression.references.paths}):
            if path[0] in _SIDES and len(path) > 1:
                yield NamedField("fields", _SIDES[path[0]], path[1:])

    def named_tables(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_tables`."""
        for one in self.assignments:
            yield from sorted(one.expression.references.lookups)

    def needs_objects(self) -> set[Side]:
        """See `Transform.needs_objects`."""
        return {_SIDES[one.path[0]] for one in self.assignments if one.path[0] in _SIDES and len(one.path) > 1}

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        contents = [one for one in self.assignments if one.path[0] in (*_SIDES, HEADERS)]
        return tuple(Move(source, one.path, copy=True) for one in contents for source in _sources(one))

    def content_after(self, path: ContentPath) -> set[ContentPath]:
        """Return the path, and the paths of the fields whose expression names it or one of its parents."""
        return {path, *(move.target for move in self.moves() if _touch(move.source, path))}

    def content_before(self, path: ContentPath) -> set[ContentPath]:
        """Return the path, and the names in the expressions of fields there."""
        return {path, *(move.source for move in self.moves() if _touch(move.target, path))}

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Evaluate every expression on the record as it is before, then set the fields."""
        errors: Errors = {}
        values = self._evaluated(batch, rows, errors)
        right = np.array([row for row in rows.tolist() if row not in errors], np.intp)
        for root, side in ((KEY, batch.key), (VALUE, batch.value)):
            computed = self._computed(root, values)
            if computed:
                change_rows(side, right, errors, partial(_set_in_block, batch, computed))
        for one in self.assignments:
            if one.path[0] not in _SIDES:
                _set_attribute(batch, one.path, {row: values[one][row] for row in right.tolist()}, errors)
        return errors

    def shapes_after(self, key: Shape, value: Shape) -> set[tuple[Shape, Shape]]:
        """See `Transform.shapes_after`; the schemas follow from the expressions."""
        keys, values = self._shapes(KEY, key), self._shapes(VALUE, value)
        return {(one, other) for one in keys for other in values}

    def _shapes(self, root: str, shape: Shape) -> set[Shape]:
        fields = self._computed(root)
        if not fields:
            return {shape}
        if () in fields:
            return {Shape("object", None), Shape("null", None)}
        schema = shape.schema
        if schema is None:
            return {Shape("object", None)}
        if shape.kind != "object":
            return set()
        empty = Block(rows_of(0), schema, columns={field.name: [] for field in schema.fields})
        try:
            return {Shape("object", block.schema) for block in _set_in_block(Batch.of_records([]), fields, empty, {})}
        except RecordError:
            return set()

    def _computed(self, root: str, values: Mapping[Assignment, _Values] | None = None) -> dict[FieldPath, _Computed]:
        """Return the fields of a side, with the values of each."""
        return {
            one.path[1:]: _Computed(one.expression.type, {} if values is None else values[one])
            for one in self.assignments
            if one.path[0] == root
        }

    def _evaluated(self, batch: Batch, rows: Positions, errors: Errors) -> dict[Assignment, _Values]:
        """Return the values of each expression for each row; a row that has none is entered in *errors*."""
        reader = BatchReader(batch, {path for one in self.assignments for path in one.expression.references.paths})
        values: dict[Assignment, _Values] = {one: {} for one in self.assignments}
        for row in rows.tolist():
            try:
                inputs = reader.inputs(row)
                for one, own in values.items():
                    try:
                        own[row] = one.expression.evaluate(inputs)
                    except RecordError as error:
                        raise RecordError(f"{'.'.join(one.path)}: {error}") from None
            except RecordError as error:
                errors[row] = error
        return values


def _assignment(path: object, text: object) -> Assignment:
    """Return an assignment.

    Raises:
        OptionError: the path leads nowhere, or the text is no expression.
    """
    try:
        steps = parse_path(str(path))
    except PathError as error:
        raise OptionError("fields", str(error)) from None
    if not steps or (steps[0] not in _SIDES and (steps[0], len(steps)) not in _ATTRIBUTES):
        raise OptionError("fields", f"expected value.…, key.…, headers.NAME, topic or timestamp, found {path!r}")
    if isinstance(text, bool | int | float):
        text = str(text).lower() if isinstance(text, bool) else str(text)
    if not isinstance(text, str):
        raise OptionError("fields", f"expected an expression for {path!r}, found {text!r}")
    expression = Expression(text)
    try:
        expression.check(tables=True)
    except (ExpressionError, MissingExtraError) as error:
        raise OptionError("fields", f"{path}: {error}") from None
    return Assignment(steps, expression)


def _sources(assignment: Assignment) -> Iterator[ContentPath]:
    """Yield the content that an expression names."""
    for path in assignment.expression.references.paths:
        if path[0] in (KEY, VALUE):
            yield path
        elif path[0] == HEADERS:
            yield path[:2]


def _touch(one: ContentPath, other: ContentPath) -> bool:
    return fits(one, other) or fits(other, one)


def _set_attribute(batch: Batch, path: ContentPath, values: _Values, errors: Errors) -> None:
    """Set the topic, the timestamp or a header of the rows that have a value."""
    if path[0] == HEADERS:
        name = path[1]
        rows = np.array([row for row, value in values.items() if value is not None], np.intp)
        batch.headers.drop((name,), np.array(list(values), np.intp))
        batch.headers.append(rows, name, None, [values[row] for row in rows.tolist()])
        return
    column: NewColumn = list(batch.topics if path[0] == _TOPIC else batch.timestamps)
    for row, value in values.items():
        problem = _attribute_problem(path[0], value)
        if problem is None:
            column[row] = value if path[0] == _TOPIC else int(value)
        else:
            errors[row] = RecordError(f"{path[0]}: expected {problem}, found {value!r:.60}")
    if path[0] == _TOPIC:
        batch.topics = column
    else:
        batch.timestamps = column


def _attribute_problem(name: str, value: DynamicValue) -> str | None:
    """Return what was expected of a topic or a timestamp; None for a value that can be one."""
    if name == _TOPIC:
        return None if isinstance(value, str) and value else "a text that is not empty"
    is_time = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if is_time else "a time, or milliseconds since 1970"


def _set_in_block(batch: Batch, fields: Mapping[FieldPath, _Computed], block: Block, errors: Errors) -> list[Block]:
    whole = fields.get(())
    if whole is not None:
        return group(block.rows, None, whole.column(block))
    if block.kind == "null" and block.schema is None:
        block = block.with_columns(None, {})
    require_object(block.shape, _PURPOSE)
    nesting = Nesting(_PURPOSE, defaults=True, create=True)
    found = nested_step(Tree(fields.items()), _FlatSet.of, nesting).run(block, None, batch, errors)
    return found if isinstance(found, list) else [found]


class _Computed(NamedTuple):
    """A field that is set: the type that CEL knows of its expression, and the values by row of the batch."""

    type: str
    values: _Values

    def column(self, block: Block) -> NewColumn:
        return [self.values[row] for row in block.rows.tolist()]

    def schema(self, existing: Schema | None, name: str) -> Schema:
        """Return the schema of the field in a struct; *existing* is the one that it has already.

        Raises:
            RecordError: it is known of each value only.
        """
        default = _SCHEMAS.get(self.type)
        if existing is not None:
            is_kept = (
                default is None or existing.type == ANY or (existing.logical or existing.type) in _KEPT_TYPES[self.type]
            )
            return existing if is_kept or default is None else default
        if default is None:
            raise RecordError(
                f"the type of {name!r} is not known before the values are, and its struct needs it: convert the value, "
                "as by string(…), double(…) or int(…)"
            )
        return default


@dataclass(frozen=True, slots=True)
class _FlatSet(Transform):
    """Fields of one object, set to the computed values."""

    fields: tuple[tuple[str, _Computed], ...] = ()

    @classmethod
    def of(cls, tree: Tree[_Computed]) -> _FlatSet | None:
        return cls(fields=tuple(tree.items)) if tree.items else None

    def plan(self, shape: Shape) -> Step:
        schema = shape.schema
        return Step(self._into_maps) if schema is None else self._into_structs(schema)

    def _into_maps(self, block: Block, _where: object, _batch: Batch, _errors: Errors) -> Block:
        return block.with_columns(None, {**block.columns, **{name: one.column(block) for name, one in self.fields}})

    def _into_structs(self, schema: Schema) -> Step:
        fields = {field.name: field for field in schema.fields}
        for name, one in self.fields:
            if not name:
                raise RecordError("fieldName cannot be null.", SCHEMA_BUILDER)
            fields[name] = Field(name, one.schema(schema.field(name), name))
        changed = schema.basics(tuple(fields.values()))
        changed = schema if changed.fields == schema.fields else changed.with_(optional=schema.optional)
        computed = dict(self.fields)

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            columns: NewColumns = dict(copied(block, errors, without=computed))
            for name, one in computed.items():
                target = fields[name].schema
                column = convert(one.column(block), partial(_shaped, target), errors)
                store(fields[name], column, errors, checked=False)
                columns[name] = column
            return block.with_columns(changed, {field.name: columns[field.name] for field in changed.fields})

        return Step(run)


def _shaped(schema: Schema, value: DynamicValue) -> DynamicValue:
    """Return a value as a field of that schema has it: whole numbers where it has fractions, every field of a struct.

    Raises:
        RecordError: an object has a name that the struct does not have.
    """
    if schema.type in ("float32", "float64") and type(value) is int:
        return float(value)
    if schema.type == "struct" and type(value) is dict:
        extra = next((name for name in value if schema.field(name) is None), None)
        if extra is not None:
            raise RecordError(f"the struct has no field {extra!r}")
        return {field.name: _shaped(field.schema, value.get(field.name)) for field in schema.fields}
    if schema.type == "array" and type(value) is list and schema.values is not None:
        return [_shaped(schema.values, item) for item in value]
    return value
