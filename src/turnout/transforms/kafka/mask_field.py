"""MaskField: put a null-like value, or a replacement, in the place of named fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar, Self

from turnout.base.startup import np
from turnout.errors import RecordError
from turnout.records import Batch, BigInt, Block, Float32, Int8, Int16, Int32, Moment, Schema, Shape
from turnout.records.block import choosing
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, class_of
from turnout.records.spans import replaced
from turnout.records.types import Column, ConvertColumn, DynamicValue, Mask, NewColumns, Value
from turnout.transforms.base import REPLACE_NULL, ByFields, ContentPath, Errors, NamedField, Run, Side, Step, Transform
from turnout.transforms.fields import (
    FIELD_SYNTAX,
    FieldPath,
    Nesting,
    Tree,
    convert,
    is_plain,
    nested_fields,
    nested_step,
    parse_fields,
    read,
    require_object,
    store,
)
from turnout.transforms.java.values import double, low_bits, parsed_decimal, parsed_integer, single
from turnout.transforms.options import LIST, STRING, Option, Options, names, non_empty

_ZEROS: dict[type, Value] = {
    int: 0,
    Int8: Int8(0),
    Int16: Int16(0),
    Int32: Int32(0),
    BigInt: BigInt(0),
    float: 0.0,
    Float32: Float32(0.0),
    bool: False,
    str: "",
    Decimal: Decimal(0),
    Moment: Moment(0),
    list: [],
    dict: {},
}
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_WIDTHS: dict[type, int] = {int: 64, Int8: 8, Int16: 16, Int32: 32}
_MOMENTS = (DATE, TIME, TIMESTAMP)
_PURPOSE = "mask fields"


@dataclass(frozen=True, slots=True)
class MaskField(Transform):
    """See ``summary``.

    Attributes:
        paths: the steps to each field.
    """

    summary: ClassVar[str] = "Replaces fields by the zero of their type, or by a replacement for numbers and strings."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "fields",
            LIST,
            "The fields, paths where the syntax version is V2.",
            check=names,
            distinct=True,
            valid="not empty",
        ),
        Option("replacement", STRING, "What to put there.", default=None, check=non_empty, valid="not empty"),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    paths: tuple[FieldPath, ...] = ()
    replacement: str | None = None
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the paths."""
        paths = parse_fields("fields", options["fields"], options["field.syntax.version"])
        return cls(side, paths, options["replacement"], options["replace.null.with.default"])

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return nested_fields("fields", self.side, self.paths)

    def masks(self) -> Iterator[ContentPath]:
        """See `Transform.masks`."""
        return ((self.root, *path) for path in self.paths)

    def plan(self, shape: Shape) -> Step:
        """Mask the named fields; a null key or value fails, a null field stays null."""
        require_object(shape, _PURPOSE)
        tree = Tree((path, path) for path in self.paths)
        if tree.children:
            return nested_step(tree, self._flat, Nesting(_PURPOSE, self.replace_null_with_default))
        names = [name for name, _ in tree.items]
        mask = FieldMask(self.replacement)
        if shape.schema is None:
            # A field that is absent is added as null: then the values do not keep their shape.
            return Step(_of_maps(names, mask), in_place=set(names).issubset(shape.names))
        return Step(self._of_structs(shape.schema, frozenset(names), mask), in_place=True)

    def mixed(self) -> ByFields | None:
        """See `Transform.mixed`."""
        return ByFields.of(self.paths)

    def _flat(self, tree: Tree[FieldPath]) -> MaskField | None:
        return replace(self, paths=tuple((name,) for name, _ in tree.items)) if tree.items else None

    def _of_structs(self, schema: Schema, names: frozenset[str], mask: FieldMask) -> Run:
        defaults = self.replace_null_with_default

        def run(block: Block, where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
            columns: NewColumns = {}
            rows = _Rows(block, where, errors)
            for field in schema.fields:
                column, stored = read(block, field, defaults=defaults), block.columns.get(field.name)
                is_masked = field.name in names
                if column is stored and not is_masked and block.checked and is_plain(field.schema):
                    columns[field.name] = column
                    continue
                wrong: Errors = {}
                new = rows.chosen(column)
                if is_masked:
                    new = mask.of_typed(new, field.schema, wrong)
                store(field, new, wrong, checked=block.checked)
                columns[field.name] = rows.merged(new, column if stored is None else stored, wrong)
            return block.with_columns(schema, columns, checked=block.checked or where is None)

        return run


def _of_maps(names: Sequence[str], mask: FieldMask) -> Run:
    def run(block: Block, where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
        columns: NewColumns = dict(block.columns)
        rows = _Rows(block, where, errors)
        for name in names:
            column = columns.get(name)
            wrong: Errors = {}
            if column is None:
                columns[name] = [None] * len(block)
            else:
                columns[name] = rows.merged(mask.of_any(rows.chosen(column), wrong), column, wrong)
        return block.with_columns(None, columns)

    return run


class _Rows:
    """Rows of a block that a transform applies to.

    Args:
        block: the block.
        where: True for the rows; None for all.
        errors: those of the step, by index in the block.
    """

    def __init__(self, block: Block, where: Sequence[bool] | None, errors: Errors) -> None:
        self._errors = errors
        self._mask: Mask | None = None
        self.chosen: ConvertColumn = lambda column: column
        if where is not None:
            self._mask = np.array(where, np.bool_)
            self._indices = np.flatnonzero(self._mask)
            self.chosen = choosing(self._indices, len(block))

    def merged(self, new: Column, old: Column, wrong: Errors) -> Column:
        """Return new values in these rows and the old ones in the others, and note errors by index in the rows."""
        if self._mask is None:
            self._errors.update(wrong)
            return new
        self._errors.update((int(self._indices[index]), error) for index, error in wrong.items())
        return replaced(old, new, self._mask)


@dataclass(frozen=True, slots=True)
class FieldMask:
    """Mask for field values.

    Attributes:
        replacement: its text, None for the zero of each type.
    """

    replacement: str | None

    def of_typed(self, column: Column, schema: Schema, errors: Errors) -> Column:
        """The masked column of a field of that schema; nulls stay, and places that cannot be masked are noted."""
        try:
            masked = self._of_schema(schema)
        except RecordError as error:
            errors.update((index, error) for index, value in enumerate(column) if value is not None)
            return column
        if None in column:
            return [None if value is None else masked for value in column]
        return [masked] * len(column)

    def of_any(self, column: Column, errors: Errors) -> Column:
        """Return the same for schemaless values, each by its own type."""
        try:
            kinds = set(map(type, column)) - {type(None)}
            masked: dict[type, Value] = {kind: self._of_type(class_of(kind)) for kind in kinds}
        except RecordError:
            return convert(column, lambda value: self._of_type(class_of(type(value))), errors)
        return [masked.get(type(value)) for value in column]

    def _of_schema(self, schema: Schema) -> DynamicValue:
        """Return the masked value of a schema's type; a logical type counts by its name."""
        if schema.name in _MOMENTS:
            return self._of_type(Moment)
        if schema.name == DECIMAL:
            return self._of_type(Decimal)
        text = self.replacement
        if schema.type in _BITS:
            return 0 if text is None else low_bits(_number(text), _BITS[schema.type])
        if schema.type == "float32":
            return 0.0 if text is None else single(double(_number(text)))
        kinds: dict[str, type] = {"float64": float, "boolean": bool, "string": str, "array": list, "map": dict}
        kind = kinds.get(schema.type)
        if kind is None:
            raise RecordError(f"Cannot mask value of type: {schema.type}")
        return self._of_type(kind)

    def _of_type(self, kind: type) -> DynamicValue:
        """Return the masked value of a Python type."""
        text = self.replacement
        if text is None:
            if kind not in _ZEROS:
                raise RecordError(f"Cannot mask value of type: {kind.__name__}")
            return _ZEROS[kind]
        if kind is str:
            return text
        if kind in _WIDTHS:
            return kind(low_bits(_number(text), _WIDTHS[kind]))
        if kind is float:
            return double(_number(text))
        if kind is Float32:
            return Float32(single(double(_number(text))))
        if kind is Decimal:
            return _number(text)
        if kind is BigInt:
            whole = parsed_integer(text)
            if whole is None:
                raise _no_number(text)
            return BigInt(whole)
        raise RecordError(f"Cannot mask value of type {kind.__name__} with custom replacement.")


def _number(text: str) -> Decimal:
    number = parsed_decimal(text)
    if number is None:
        raise _no_number(text)
    return number


def _no_number(text: str) -> RecordError:
    return RecordError(f"Unable to convert {text} to number")
