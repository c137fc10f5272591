"""Blocks of values as columns of a frame's Arrow batches."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.deferred import pc
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema, Struct
from turnout.records.schema import ANY, DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.types import Column
from turnout.runtime.frames.variant import encode

VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # This mark distinguishes a variant from a struct in PySpark.
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
UTC_MICROS: Final = pa.timestamp("us", tz="UTC")

_MILLI: Final = 1000
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
_LOGICAL: Final = {DATE: pa.date32(), TIME: pa.int32(), TIMESTAMP: UTC_MICROS}

_UNFIT = (pa.ArrowException, OverflowError, RecordError, TypeError, ValueError, struct.error)
"""Errors for a value that does not fit its column."""


def arrow_type(schema: Schema | None) -> pa.DataType:
    """Return the Arrow type that corresponds to the type from `turnout.spark.frames.columns.spark_type`."""
    if schema is None or schema.type == ANY:
        return VARIANT
    if schema.logical == DECIMAL:
        return pa.decimal128(38, min(max(schema.scale, 0), 38))
    if schema.logical is not None:
        return _LOGICAL[schema.logical]
    if schema.type == "struct":
        return pa.struct([pa.field(field.name, arrow_type(field.schema)) for field in schema.fields])
    if schema.type == "array":
        return pa.list_(pa.field("element", arrow_type(schema.values)))
    if schema.type == "map":
        return pa.map_(arrow_type(schema.keys), arrow_type(schema.values))
    return _PRIMITIVES[schema.type]


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
        maps: list[Mapping[Any, Any]] = [{} if value is None else value for value in values]
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
