"""Columns of a frame's Arrow batches as blocks of values with their Connect schemas."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.startup import pc
from turnout.codecs.variant import decode, encode
from turnout.errors import RecordError
from turnout.records import Block, Moment, Positions, Schema, Struct, group
from turnout.records.block import rows_of
from turnout.records.schema import ANY, DATE, DECIMAL, DIGITS, PRECISION, TIME, TIMESTAMP, Field
from turnout.records.spans import EncodedColumn
from turnout.records.types import Column, Value

_MILLI: Final = 1000


def blocks_of(column: pa.Array, schema: Schema | None) -> tuple[list[Block], dict[int, RecordError]]:
    """Return the values of a column as blocks, and the rows that cannot be read.

    Args:
        column: an Arrow array of the Spark type of *schema*.
        schema: result of `turnout.spark.columns.schema_of` for the column; None for a VARIANT.
    """
    column = whole(column)
    if column.null_count == len(column):
        return ([Block(rows_of(len(column)), schema)] if len(column) else []), {}
    if schema is None:
        return _schemaless(column)
    try:
        return _typed(column, schema), {}
    except RecordError:
        errors = _unreadable(column, schema)
        rows = [None if row in errors else row for row in range(len(column))]
        return _typed(column.take(pa.array(rows, pa.int64())), schema), errors


def _typed(column: pa.Array, schema: Schema) -> list[Block]:
    blocks = []
    rows = rows_of(len(column))
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        blocks.append(Block(np.flatnonzero(null), schema))
        rows = np.flatnonzero(~null)
        column = column.drop_null()
    if schema.type == "struct":
        fields = zip(schema.fields, column.flatten(), strict=True)
        columns = {
            field.name: _list_of(inner, field.schema)
            if _has_variants(field.schema)
            else ArrowColumn(inner, field.schema)
            for field, inner in fields
        }
        blocks.append(Block(rows, schema, columns=columns))
    else:
        blocks.append(Block(rows, schema, values=_list_of(column, schema)))
    return blocks


class ArrowColumn(EncodedColumn):
    """Column of an Arrow array, whose values are made at the first access: a field that nothing touches stays exact.

    Args:
        array: values of the schema.
        schema: schema of the values.
    """

    __slots__ = ("array", "schema")

    def __init__(self, array: pa.Array, schema: Schema) -> None:
        nowhere = np.zeros(0, np.int64)
        super().__init__(None, b"", (nowhere, nowhere), self._listed, nullable=array.null_count > 0)
        self.array = array
        self.schema = schema

    def _listed(self, _bounds: object) -> Column:
        return _list_of(self.array, self.schema)

    def chosen(self, indices: Positions, take: Callable[[Column], Column]) -> ArrowColumn:
        """See `EncodedColumn.chosen`."""
        part = ArrowColumn(self.array.take(pa.array(indices)), self.schema)
        if self._values is not None:
            part._values = take(self._values)
        return part

    def __len__(self) -> int:
        return len(self.array)


def _has_variants(schema: Schema | None) -> bool:
    if schema is None or schema.type == ANY:
        return True
    inner = (*(field.schema for field in schema.fields), *(one for one in (schema.keys, schema.values) if one))
    return (schema.type in ("array", "map") and schema.values is None) or any(map(_has_variants, inner))


def _unreadable(column: pa.Array, schema: Schema) -> dict[int, RecordError]:
    """Return row → error of the rows with an unreadable variant."""
    errors: dict[int, RecordError] = {}
    for row in range(len(column)):
        try:
            _list_of(column.slice(row, 1), schema)
        except RecordError as error:
            errors[row] = error
    return errors


def _schemaless(column: pa.Array) -> tuple[list[Block], dict[int, RecordError]]:
    values: list[Value] = []
    errors: dict[int, RecordError] = {}
    for row, (value, metadata) in enumerate(_pairs(column)):
        try:
            values.append(None if value is None else decode(value, metadata))
        except RecordError as error:
            errors[row] = error
            values.append(None)
    return group(rows_of(len(values)), None, values), errors


def _pairs(column: pa.Array) -> pa.Array:
    """Return the value and the metadata of each variant, None for both where it is null."""
    value, metadata = column.flatten()
    return zip(value.to_pylist(), metadata.to_pylist(), strict=True)


def _list_of(column: pa.Array, schema: Schema | None) -> list[object]:
    """Return the values of a column as Python has them in a batch; None for nulls."""
    if pa.types.is_null(column.type):
        return [None] * len(column)
    if schema is None or schema.type == ANY:
        return [None if value is None else decode(value, metadata) for value, metadata in _pairs(column)]
    if schema.logical is not None and schema.logical in _LOGICAL:
        return _LOGICAL[schema.logical](column)
    if schema.logical is not None:
        return _moments(millis_of(column), column)
    inner = _NESTED.get(schema.type)
    if inner is not None:
        return inner(column, schema)
    if schema.type == "string":
        return list(texts_of(column))
    return list(column.to_pylist())


def millis_of(column: pa.Array) -> pa.Array:
    """Return timestamps of any time zone in milliseconds, rounded down."""
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    # A quotient of integers is cut towards zero, but a moment before 1970 belongs to the millisecond before it.
    rest = pc.subtract(micros, pc.multiply(pc.divide(micros, _MILLI), _MILLI))
    return pc.subtract(pc.divide(micros, _MILLI), pc.less(rest, 0).cast(pa.int64()))


def _dates(column: pa.Array) -> list[object]:
    return _moments(pc.multiply(column.cast(pa.int32()).cast(pa.int64()), MILLISECONDS_PER_DAY), column)


def _times(column: pa.Array) -> list[object]:
    return _moments(column, column)


def _moments(millis: pa.Array, column: pa.Array) -> list[object]:
    if column.null_count:
        return [None if number is None else Moment(number) for number in millis.to_pylist()]
    return [Moment(number) for number in millis.to_pylist()]


def texts_of(column: pa.Array) -> list[str | None]:
    """Return the strings of a column."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        # Spark's strings need not be UTF-8; Java reads invalid bytes as replacement characters.
        raw = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
        return [None if text is None else text.decode("utf-8", "replace") for text in raw.to_pylist()]


def _structs(column: pa.Array, schema: Schema) -> list[object]:
    columns = [_list_of(inner, field.schema) for field, inner in zip(schema.fields, column.flatten(), strict=True)]
    names = [field.name for field in schema.fields]
    rows = zip(*columns, strict=True) if columns else ((),) * len(column)
    values: list[object] = [dict(zip(names, row, strict=True)) for row in rows]
    return _with_nulls(values, column)


def _arrays(column: pa.Array, schema: Schema) -> list[object]:
    items = _list_of(column.flatten(), schema.values)
    return _with_nulls([items[start:end] for start, end in _ranges(column)], column)


def _maps(column: pa.Array, schema: Schema) -> list[object]:
    # A map is a list of its entries; flattening it leaves out the entries behind nulls.
    entries = column.cast(pa.list_(column.type.field(0))) if column.null_count or column.offset else column
    if entries is column:
        keys, items = column.keys, column.items
    else:
        keys, items = entries.flatten().flatten()
    names, values = _list_of(keys, schema.keys), _list_of(items, schema.values)
    ranges = _ranges(column)
    return _with_nulls([dict(zip(names[start:end], values[start:end], strict=True)) for start, end in ranges], column)


def _ranges(column: pa.Array) -> list[tuple[int, int]]:
    """Return the start and end of each list in the flattened column; a null is empty."""
    offsets = np.asarray(column.offsets)
    sizes = np.diff(offsets)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    ends = np.cumsum(sizes).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []


def _with_nulls(values: list[object], column: pa.Array) -> list[object]:
    if column.null_count:
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[row] = None
    return values


def whole(column: pa.Array) -> pa.Array:
    """Return the column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


_LOGICAL: Mapping[str, Callable[[pa.Array], list[object]]] = {
    DATE: _dates,
    TIME: _times,
    DECIMAL: lambda column: column.to_pylist(),
}
_NESTED: Mapping[str, Callable[[pa.Array, Schema], list[object]]] = {"struct": _structs, "array": _arrays, "map": _maps}


VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # This mark distinguishes a variant from a struct in PySpark.
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
UTC_MICROS: Final = pa.timestamp("us", tz="UTC")

_PRIMITIVES: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_ARROW_TYPES: Final = {DATE: pa.date32(), TIME: pa.int32(), TIMESTAMP: UTC_MICROS}

_UNFIT = (pa.ArrowException, OverflowError, RecordError, TypeError, ValueError, struct.error)
"""Errors for a value that does not fit its column."""


def arrow_type(schema: Schema | None) -> pa.DataType:
    """Return the Arrow type that corresponds to the type from `turnout.spark.columns.spark_type`."""
    if schema is None or schema.type == ANY:
        return VARIANT
    if schema.logical == DECIMAL:
        return pa.decimal128(schema.digits, min(max(schema.scale, 0), 38))
    if schema.logical is not None:
        return _ARROW_TYPES[schema.logical]
    if schema.type == "struct":
        return pa.struct([pa.field(field.name, arrow_type(field.schema)) for field in schema.fields])
    if schema.type == "array":
        return pa.list_(pa.field("element", arrow_type(schema.values)))
    if schema.type == "map":
        return pa.map_(arrow_type(schema.keys), arrow_type(schema.values))
    return _PRIMITIVES[schema.type]


_READABLE: Final[tuple[tuple[Callable[[pa.DataType], bool], Schema], ...]] = (
    (pa.types.is_boolean, Schema("boolean", True)),
    (pa.types.is_int8, Schema("int8", True)),
    (lambda kind: pa.types.is_int16(kind) or pa.types.is_uint8(kind), Schema("int16", True)),
    (lambda kind: pa.types.is_int32(kind) or pa.types.is_uint16(kind), Schema("int32", True)),
    (lambda kind: pa.types.is_int64(kind) or pa.types.is_uint32(kind), Schema("int64", True)),
    (lambda kind: pa.types.is_float32(kind) or pa.types.is_float16(kind), Schema("float32", True)),
    (pa.types.is_float64, Schema("float64", True)),
    (
        lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
        Schema("string", True),
    ),
    (
        lambda kind: (
            pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
            or pa.types.is_binary_view(kind)
            or pa.types.is_fixed_size_binary(kind)
        ),
        Schema("bytes", True),
    ),
    (pa.types.is_date, Schema("int32", True, name=DATE, version=1)),
    (lambda kind: pa.types.is_timestamp(kind) and kind.unit != "ns", Schema("int64", True, name=TIMESTAMP, version=1)),
    (pa.types.is_null, Schema("string", True)),
)


def schema_of_arrow(type_: pa.DataType, path: str = "value") -> Schema:
    """Return the schema of values of an Arrow type: everything is optional.

    Args:
        type_: the type.
        path: name of the values, for the error.

    Raises:
        RecordError: Connect has no type for them.

    >>> schema_of_arrow(pa.struct({"total": pa.decimal128(10, 2)})).fields[0].schema.scale
    2
    """
    for fits, schema in _READABLE:
        if fits(type_):
            return schema
    if pa.types.is_decimal(type_) and type_.precision <= DIGITS and type_.scale >= 0:
        parameters = (("scale", str(type_.scale)), (PRECISION, str(type_.precision)))
        return Schema("bytes", True, name=DECIMAL, version=1, parameters=parameters)
    if pa.types.is_dictionary(type_):
        return schema_of_arrow(type_.value_type, path)
    if pa.types.is_struct(type_):
        fields = tuple(Field(field.name, schema_of_arrow(field.type, f"{path}.{field.name}")) for field in type_)
        return Schema("struct", True, fields=fields)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return Schema("array", True, values=schema_of_arrow(type_.value_type, f"{path}[]"))
    if pa.types.is_map(type_):
        keys, values = schema_of_arrow(type_.key_type, path), schema_of_arrow(type_.item_type, f"{path}[]")
        return Schema("map", True, keys=keys, values=values)
    raise RecordError(f"{path} is {type_}, which Connect has no type for: cast it, or leave the column out")


def arrow_blocks(column: pa.Array, path: str = "value") -> tuple[list[Block], dict[int, RecordError]]:
    """Return the values of a typed Arrow column as blocks.

    Args:
        column: values of any type of `schema_of_arrow`.
        path: name of the values, for the error.

    Raises:
        RecordError: Connect has no type for them.
    """
    schema = schema_of_arrow(column.type, path)
    return blocks_of(whole(column).cast(arrow_type(schema)), schema)


@dataclass(frozen=True, slots=True)
class WrittenColumn:
    """Values in a column.

    Attributes:
        rows: rows of the batch, for each value that is in the column.
        values: the column.
        problems: the rows whose values it cannot hold, and why.
    """

    rows: Positions
    values: pa.Array
    problems: Mapping[int, str]

    @classmethod
    def of(cls, blocks: Iterable[Block], schema: Schema | None) -> WrittenColumn:
        """Return the values of *blocks*, which have no row in common.

        Args:
            blocks: of one side of a batch.
            schema: schema of the column, of the Spark type that the schema of every block has; None for a VARIANT.
        """
        problems: dict[int, str] = {}
        parts = [_fitting(block, schema, problems) for block in blocks]
        if len(parts) == 1:
            return cls(*parts[0], problems)
        rows = np.concatenate([_NOWHERE, *(positions for positions, _ in parts)])
        return cls(
            rows, pa.concat_arrays([pa.nulls(0, arrow_type(schema)), *(values for _, values in parts)]), problems
        )

    def at(self, rows: Positions) -> pa.Array:
        """Return the values of these rows."""
        if np.array_equal(rows, self.rows):
            return self.values
        positions = np.zeros(max(self.rows.max(initial=0), rows.max(initial=0)) + 1, np.intp)
        positions[self.rows] = np.arange(len(self.rows))
        return self.values.take(pa.array(positions[rows]))


_NOWHERE: Final = np.array([], np.intp)


def _fitting(block: Block, schema: Schema | None, problems: dict[int, str]) -> tuple[Positions, pa.Array]:
    """Return the rows of a block that fit, and their column; after a failure each value is checked separately."""
    try:
        return block.rows, _of_block(block, schema)
    except _UNFIT:
        good = []
        for index, row in enumerate(block.rows.tolist()):
            try:
                _of_block(block.take(np.array([index], np.intp)), schema)
                good.append(index)
            except _UNFIT as error:
                problems[row] = str(error)
        fitting = block.take(np.array(good, np.intp))
        return fitting.rows, _of_block(fitting, schema) if good else pa.nulls(0, arrow_type(schema))


def _of_block(block: Block, schema: Schema | None) -> pa.Array:
    if block.kind == "null":
        return pa.nulls(len(block), arrow_type(schema))
    if schema is None:
        return _variants(block.whole(), block.schema)
    if block.schema is not schema and (block.schema is None or arrow_type(block.schema) != arrow_type(schema)):
        raise RecordError("the chain gave it another schema than its transforms had said")
    if block.kind == "object":
        return _struct([block.columns[field.name] for field in schema.fields], schema, len(block))
    return _array(block.values, schema)


def _array(values: Column, schema: Schema | None) -> pa.Array:
    """Return a column of values, None for nulls."""
    if schema is None or schema.type == ANY:
        return _variants(values, None)
    if isinstance(values, ArrowColumn) and values.array.type != VARIANT:
        # A type of fewer digits fits, and so does one without names of its own for the elements of its lists.
        return values.array.cast(arrow_type(schema))
    if schema.logical is not None:
        return _logical(values, schema)
    if schema.type == "struct":
        null = [value is None for value in values]
        dicts = [value.fields if isinstance(value, Struct) else value or {} for value in values]
        return _struct(
            [[struct.get(field.name) for struct in dicts] for field in schema.fields], schema, len(dicts), null
        )
    if schema.type == "array":
        lists = [() if value is None else value for value in values]
        items = _array([item for array in lists for item in array], schema.values)
        return pa.ListArray.from_arrays(_offsets(lists), items, type=arrow_type(schema), mask=_mask(values))
    if schema.type == "map":
        maps: list[Mapping[object, object]] = [{} if value is None else value for value in values]
        keys = _array([key for mapping in maps for key in mapping], schema.keys)
        items = _array([item for mapping in maps for item in mapping.values()], schema.values)
        return pa.MapArray.from_arrays(_offsets(maps), keys, items, type=arrow_type(schema), mask=_mask(values))
    return pa.array(values, _PRIMITIVES[schema.type])


def _logical(values: Column, schema: Schema) -> pa.Array:
    type_ = arrow_type(schema)
    if schema.logical == DECIMAL:
        return pa.array(values, type_)
    if schema.logical == TIME:
        return pa.array(values, pa.int32())
    if schema.logical == DATE:
        days = [None if value is None else int(value) // MILLISECONDS_PER_DAY for value in values]
        return pa.array(days, pa.int32()).cast(type_)
    return pc.multiply_checked(pa.array(values, pa.int64()), _MILLI).cast(type_)


def _struct(columns: Sequence[Column], schema: Schema, count: int, null: list[bool] | None = None) -> pa.Array:
    type_ = arrow_type(schema)
    mask = pa.array(null) if null is not None and any(null) else None
    if not columns:
        return pa.array([None if null and null[at] else {} for at in range(count)], type_)
    arrays = [_array(column, field.schema) for column, field in zip(columns, schema.fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=mask)


def _variants(values: Column, schema: Schema | None) -> pa.Array:
    pairs = [None if value is None else encode(value, schema) for value in values]
    bodies = pa.array([b"" if pair is None else pair[0] for pair in pairs], pa.binary())
    metadata = pa.array([b"" if pair is None else pair[1] for pair in pairs], pa.binary())
    return pa.StructArray.from_arrays([bodies, metadata], fields=list(VARIANT), mask=_mask(values))


def _mask(values: Sequence[object]) -> pa.Array:
    return pa.array([value is None for value in values]) if None in values else None


def _offsets(lists: Sequence[Sized]) -> pa.Array:
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(array) for array in lists], out=offsets[1:])
    return pa.array(offsets)
