"""Rows of record batches, and the records of dead letters made from them."""

from __future__ import annotations

import pyarrow as pa

from turnout.base.untrusted import JsonObject
from turnout.engine.sample_records import SampleRecord
from turnout.records.types import ArrowBatch


def rows_of(batch: ArrowBatch) -> list[JsonObject]:
    """Return the rows of a batch, their timestamps as numbers."""
    at = batch.schema.get_field_index("timestamp")
    rows: list[JsonObject] = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()
    return rows


def record_of(row: JsonObject, stream: str | None) -> SampleRecord:
    """Return a row as a record; without a stream for a source that has partitions."""
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    position = row["partition"], row["offset"], row["timestamp"]
    return SampleRecord(row["topic"], row["value"], row["key"], headers, *position, stream)
