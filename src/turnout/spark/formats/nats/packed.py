"""Record batches as single rows: what the JVM carries from the source to the stage without looking inside.

A row is an Arrow IPC stream of one record batch: the columns of `turnout.wire.records.SCHEMA`, and ``stream`` as a
dictionary of one text. Spark copies a row's bytes, and makes no row of its own of each record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = ["PACKED_COLUMNS", "not_read_in", "not_read_row", "pack", "unpack"]

PACKED_COLUMNS: Final = "batch binary, revision bigint, not_read bigint"
"""The columns of a packed source: a record batch, and the revision of the subscriptions that it is matched with; or, in
a row without a batch, how many records of a range were not read."""

_ROW = pa.schema([pa.field("batch", pa.binary()), pa.field("revision", pa.int64()), pa.field("not_read", pa.int64())])


def pack(batch: Any, stream: str, revision: int | None) -> Any:
    """A record batch of one row that holds the records of *batch*."""
    name = pa.DictionaryArray.from_arrays(np.zeros(batch.num_rows, np.int8), pa.array([stream], pa.string()))
    batch = batch.append_column("stream", name)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed = sink.getvalue()
    edges = pa.py_buffer(np.array([0, packed.size], dtype=np.int32))
    # Made from buffers: the records are not copied once more.
    column = pa.Array.from_buffers(pa.binary(), 1, [None, edges, packed])
    return pa.RecordBatch.from_arrays(
        [column, pa.array([revision], pa.int64()), pa.array([0], pa.int64())], schema=_ROW
    )


def not_read_row(count: int) -> Any:
    """A record batch of one row that holds no records, and says how many were not read."""
    return pa.RecordBatch.from_pylist([{"batch": b"", "revision": None, "not_read": count}], schema=_ROW)


def not_read_in(rows: Any) -> int:
    """How many records packed rows say were not read."""
    return int(sum(filter(None, rows.column(2).to_pylist())))


def unpack(rows: Any) -> Iterator[tuple[Any, int | None]]:
    """The record batches of packed rows with their revisions; they refer to the rows' own memory."""
    column = rows.column(0)
    _, edges, memory = column.buffers()
    # A scalar of the column would be a copy.
    ends = np.frombuffer(edges, np.int32)[column.offset : column.offset + len(column) + 1].tolist()
    for place, revision in enumerate(rows.column(1).to_pylist()):
        if ends[place] == ends[place + 1]:
            continue
        for batch in pa.ipc.open_stream(memory.slice(ends[place], ends[place + 1] - ends[place])):
            yield batch, revision
