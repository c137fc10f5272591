"""A chain of transforms over a frame of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from turnout.base.deferred import pc
from turnout.codecs.frames.columns import UTC_MICROS, WrittenColumn, blocks_of, millis_of, texts_of, whole
from turnout.errors import RecordError, RunError
from turnout.records import Batch, Failure, Headers, Positions, Schema
from turnout.records.header_column import ARROW as HEADERS_ARROW
from turnout.spark.frames.columns import (
    ERROR,
    ERROR_TYPE,
    HEADERS,
    RECORD,
    case_rule,
    column_schema,
    complete,
    refused,
    schemas_of,
    value_field,
    with_record_names,
)
from turnout.spark.map_in_arrow import map_in_arrow
from turnout.transforms.chain import Chain, ChainRunner
from turnout.transforms.schemas import schemas_after

Tolerance = Literal["none", "all"]

_CONVERTER: Final = "turnout.spark.apply_chain"
_SIDES: Final = ("key", "value")
_PLACE: Final = ("topic", "partition", "offset")
_ERROR_ARROW: Final = pa.struct([pa.field(field.name, pa.string()) for field in ERROR_TYPE])


@dataclass(frozen=True)
class Applied:
    """Result of `apply_chain`.

    Attributes:
        records: records that passed.
        dead_letters: the consumed records that failed, unchanged, with ``_error``.
    """

    records: DataFrame
    dead_letters: DataFrame


def apply_chain(chain: Chain, records: DataFrame, tolerance: Tolerance = "none") -> Applied:
    """Return the records after the chain, and the failed records as they were before it.

    The frame needs ``topic`` and ``value`` at least; it may be a streaming one. Columns of a record get its names, in
    lower case, where Spark takes them for the same (``spark.sql.caseSensitive``). Columns that are no part of a record
    are carried along. Each of the two frames runs the chain when it is used.

    A key or value is a struct (or another type) where the chain can give it one type only, with the Connect schema in
    the column's metadata, and a VARIANT where it is schemaless or its type depends on the record. Decimals come out
    with 38 digits, and timestamps within keys and values in milliseconds, which is what Connect has. Plug-ins must be
    installed where Spark's workers run.

    Args:
        chain: the stages.
        records: consumed records.
        tolerance: ``none`` stops the job at the first failure with its place and reason; ``all`` sets the record aside.

    Raises:
        ConfigError: for columns whose types a record cannot have, missing ones, and several of one name.
    """
    frame = complete(with_record_names(records, ("topic", "value")))
    refused(frame.schema)
    rule = case_rule(records.sparkSession)
    others = [field for field in frame.schema if rule(field.name) != ERROR]
    task = _ChainTask.of(chain, frame.schema, tolerance)
    good = T.StructType([task.field(field) for field in frame.schema])
    dead = T.StructType([*others, T.StructField(ERROR, ERROR_TYPE)])
    return Applied(
        map_in_arrow(frame, _Records(task, tuple(good.names)), good),
        map_in_arrow(frame, _DeadLetters(task, tuple(dead.names)), dead),
    )


@dataclass(frozen=True)
class _ChainTask:
    """Serialisable task that runs the chain in Spark's workers.

    Attributes:
        before: the schemas of keys and values before it.
        after: those after it.
    """

    chain: Chain
    before: tuple[Schema | None, Schema | None]
    after: tuple[Schema | None, Schema | None]
    tolerance: Tolerance

    @classmethod
    def of(cls, chain: Chain, schema: T.StructType, tolerance: Tolerance) -> _ChainTask:
        key, value = schemas_of(schema)
        possible = schemas_after(chain, key, value)
        after = column_schema(possible.keys, key), column_schema(possible.values, value)
        return cls(chain, (key, value), after, tolerance)

    def field(self, before: T.StructField) -> T.StructField:
        """Return a column of the frame after the chain."""
        if before.name in _SIDES:
            return value_field(before.name, self.after[_SIDES.index(before.name)])
        if before.name == "headers":
            return T.StructField("headers", HEADERS, nullable=True)
        if before.name in RECORD:
            return T.StructField(before.name, before.dataType, nullable=True, metadata=before.metadata)
        return before

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_ChainResult]:
        """Yield each batch after the chain.

        Raises:
            RunError: at the first failure, without tolerance.
        """
        runner = ChainRunner(self.chain)
        for arrow in batches:
            if not arrow.num_rows:
                continue
            passed = _ChainResult.of(arrow, self.before)
            runner.apply(passed.batch)
            passed.write(self.after)
            if passed.batch.failures and self.tolerance == "none":
                raise RunError(passed.first_failure())
            yield passed


@dataclass
class _ChainResult:
    """Arrow batch with the result of the chain.

    Attributes:
        arrow: as it was consumed.
        partitions: as they were before any stage.
        timestamps: the same, in milliseconds.
        written: the keys and values after the chain.
    """

    arrow: pa.RecordBatch
    batch: Batch
    partitions: Sequence[int | None]
    timestamps: Sequence[int | None]
    written: dict[str, WrittenColumn] = field(default_factory=dict)

    @classmethod
    def of(cls, arrow: pa.RecordBatch, schemas: tuple[Schema | None, Schema | None]) -> _ChainResult:
        names = arrow.schema.names
        (key, wrong_keys), (value, wrong_values) = (
            blocks_of(arrow.column(name), schema) for name, schema in zip(_SIDES, schemas, strict=True)
        )
        partitions = arrow.column("partition").to_pylist()
        timestamps = millis_of(arrow.column("timestamp")).to_pylist()
        batch = Batch(
            texts_of(arrow.column("topic")),
            list(partitions),
            arrow.column("offset").to_pylist() if "offset" in names else None,
            list(timestamps),
            key,
            value,
            Headers.of_arrow(arrow.column("headers")),
        )
        batch.fail({row: _failure("key", error) for row, error in wrong_keys.items()})
        batch.fail({row: _failure("value", error) for row, error in wrong_values.items()})
        return cls(arrow, batch, partitions, timestamps)

    def write(self, schemas: tuple[Schema | None, Schema | None]) -> None:
        """Write keys and values to columns; records that a column cannot hold fail."""
        batch = self.batch
        for name, schema, blocks in zip(_SIDES, schemas, (batch.key, batch.value), strict=True):
            written = self.written[name] = WrittenColumn.of(blocks, schema)
            batch.fail({row: _failure(name, RecordError(problem)) for row, problem in written.problems.items()})

    def first_failure(self) -> str:
        """Describe the first failed record, its stage and the reason."""
        row = min(self.batch.failures)
        failure = self.batch.failures[row]
        names = [name for name in _PLACE if name in self.arrow.schema.names]
        values = [self.arrow.column(name)[row].as_py() for name in names]
        position = ", ".join(
            f"{name} {'?' if value is None else value}" for name, value in zip(names, values, strict=True)
        )
        return ": ".join((position, failure.stage, failure.class_name, failure.message))

    def column(self, name: str, rows: Positions) -> pa.Array:
        """Return a column of the frame after the chain, for these rows."""
        batch = self.batch
        if name in self.written:
            return self.written[name].at(rows)
        if name == "topic":
            return pa.array(batch.by_row(batch.topics, rows), pa.string())
        original = whole(self.arrow.column(name))
        before = _rows_of(original, rows)
        if name == "headers":
            return self._headers(before, rows)
        if name == "partition" and list(batch.partitions) != self.partitions:
            return pa.array(batch.by_row(batch.partitions, rows), original.type)
        if name == "timestamp" and list(batch.timestamps) != self.timestamps:
            return self._timestamps(before, rows)
        return before

    def _headers(self, before: pa.Array, rows: Positions) -> pa.Array:
        after = self.batch.headers.to_arrow(rows)
        if not before.null_count:
            return after
        # Absent headers are unchanged, null or an empty list.
        untouched = pc.and_(before.is_null(), pc.equal(pc.list_value_length(after), 0))
        return pc.if_else(untouched, pa.scalar(None, HEADERS_ARROW), after)

    def _timestamps(self, before: pa.Array, rows: Positions) -> pa.Array:
        """Return the timestamps; timestamps that no stage has changed keep their microseconds."""
        now = self.batch.by_row(self.batch.timestamps, rows)
        same = [now == old for now, old in zip(now, self.batch.by_row(self.timestamps, rows), strict=True)]
        changed = pc.multiply_checked(pa.array(now, pa.int64()), 1000).cast(UTC_MICROS).cast(before.type)
        return pc.if_else(pa.array(same), before, changed)


def _failure(side: str, error: RecordError) -> Failure:
    return Failure.of(error, f"{side.upper()}_CONVERTER", _CONVERTER)


def _rows_of(column: pa.Array, rows: Positions) -> pa.Array:
    return column if len(rows) == len(column) else column.take(pa.array(rows))


@dataclass(frozen=True)
class _Records:
    """Yields the records that passed the chain."""

    task: _ChainTask
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for passed in self.task.run(batches):
            rows = passed.batch.alive
            columns = [passed.column(name, rows) for name in self.names]
            yield pa.RecordBatch.from_arrays(columns, names=list(self.names))


@dataclass(frozen=True)
class _DeadLetters:
    """Yields the records that failed, in their original form, with the reason."""

    task: _ChainTask
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for passed in self.task.run(batches):
            rows = np.array(sorted(passed.batch.failures), np.intp)
            if not len(rows):
                continue
            consumed = passed.arrow.take(pa.array(rows))
            failures = [passed.batch.failures[row] for row in rows.tolist()]
            texts = [
                pa.array([getattr(failure, name) for failure in failures], pa.string()) for name in ERROR_TYPE.names
            ]
            errors = pa.StructArray.from_arrays(texts, fields=list(_ERROR_ARROW))
            arrays = [errors if name == ERROR else consumed.column(name) for name in self.names]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self.names))
