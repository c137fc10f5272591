"""Columns of a frame's Arrow batches as blocks of values with their Connect schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.deferred import pc
from turnout.errors import RecordError
from turnout.records import Block, Moment, Schema, group
from turnout.records.block import rows_of
from turnout.records.schema import ANY, DATE, DECIMAL, TIME
from turnout.records.types import Value
from turnout.runtime.frames.variant import decode

_MILLI: Final = 1000


def blocks_of(column: pa.Array, schema: Schema | None) -> tuple[list[Block], dict[int, RecordError]]:
    """Return the values of a column as blocks, and the rows that cannot be read.

    Args:
        column: an Arrow array of the Spark type of *schema*.
        schema: result of `turnout.spark.frames.columns.schema_of` for the column; None for a VARIANT.
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
        columns = {field.name: _list_of(inner, field.schema) for field, inner in fields}
        blocks.append(Block(rows, schema, columns=columns))
    else:
        blocks.append(Block(rows, schema, values=_list_of(column, schema)))
    return blocks


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
