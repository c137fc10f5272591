"""Outgoing messages: a record's value and headers under a topic."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.deferred import pc
from turnout.engine.unfit_headers import CONNECT_PREFIX, TURNOUT_PREFIX
from turnout.records import Headers
from turnout.records.header_column import ARROW
from turnout.records.headers import as_type
from turnout.records.types import ArrowArray, ArrowBatch, Binaries, Strings

RECORDS: Final = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("headers", ARROW),
        pa.field("key", pa.binary()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns of the records that messages carry: the value is encoded once, however many messages there are."""


VALUE_LEFT_OUT: Final = f"{TURNOUT_PREFIX}value.left.out"
"""The header of a dead letter that is too large with its value: how many bytes that has."""

VALUE_DIGEST: Final = f"{TURNOUT_PREFIX}value.sha256"
"""The header with the digest of such a value, in hexadecimal digits: the letter's seal covers it."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of one batch: delivered ones in the order of their records, then the dead letters.

    Attributes:
        topics: topics of each message, as text.
        ids: ids of each message; null where the record's origin is unknown.
        sinks: index of each message's sink among the route's.
        rows: index of each message's record in *records*.
        records: the columns of `RECORDS`.
    """

    topics: Strings
    ids: Strings
    sinks: NDArray[np.int8]
    rows: NDArray[np.int64]
    records: ArrowBatch

    @classmethod
    def none(cls) -> Messages:
        """No messages."""
        nothing = pa.array([], pa.string())
        return cls(
            nothing,
            nothing,
            np.zeros(0, np.int8),
            np.zeros(0, np.int64),
            pa.RecordBatch.from_pylist([], schema=RECORDS),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def of_sink(self, sink: int) -> Messages:
        """Return the messages for the sink at this index of the route's sinks."""
        chosen = np.flatnonzero(self.sinks == sink)
        if len(chosen) == len(self):
            return self
        return self.take(chosen)

    def take(self, indices: NDArray[np.int64]) -> Messages:
        """Return the messages at *indices*, in that order."""
        chosen = pa.array(indices)
        return Messages(
            self.topics.take(chosen), self.ids.take(chosen), self.sinks[indices], self.rows[indices], self.records
        )

    def joined(self, others: Messages) -> Messages:
        """These and others behind them."""
        return Messages(
            pa.concat_arrays([self.topics, others.topics]),
            pa.concat_arrays([self.ids, others.ids]),
            np.concatenate([self.sinks, others.sinks]),
            np.concatenate([self.rows, others.rows + self.records.num_rows]),
            pa.concat_batches([self.records, others.records]),
        )

    def emptied(self, indices: NDArray[np.int64], *, alone: bool = True) -> Messages:
        """Return the messages at *indices* without their values, which are too large; a header gives the size of each.

        Args:
            indices: indices of the messages.
            alone: leave out nothing but the values; if not, the keys and the records' own headers as well.
        """
        rows = pa.array(self.rows[indices])
        records = self.records.take(rows)
        headers = Headers.of_arrow(records.column("headers") if alone else _context(records.column("headers")))
        everything = np.arange(len(indices))
        sizes = pc.fill_null(pc.binary_length(records.column("value")), 0).to_pylist()
        headers.append(everything, VALUE_LEFT_OUT, None, [str(size) for size in sizes])
        digests = [hashlib.sha256(value or b"").hexdigest() for value in records.column("value").to_pylist()]
        headers.append(everything, VALUE_DIGEST, None, digests)
        records = records.set_column(0, RECORDS.field("value"), pa.nulls(len(indices), pa.binary()))
        records = records.set_column(1, RECORDS.field("headers"), headers.to_arrow(everything))
        if not alone:
            records = records.set_column(2, RECORDS.field("key"), pa.nulls(len(indices), pa.binary()))
        chosen = pa.array(indices)
        return Messages(self.topics.take(chosen), self.ids.take(chosen), self.sinks[indices], everything, records)

    def without_times(self) -> Messages:
        """Return the messages without their records' times, for a server that refuses these."""
        index = RECORDS.get_field_index("timestamp")
        times = pa.nulls(self.records.num_rows, RECORDS.field(index).type)
        return replace(self, records=self.records.set_column(index, RECORDS.field(index), times))

    def column(self, name: str) -> ArrowArray:
        """Return a column of the records, with an entry for each message."""
        column = self.records.column(name)
        if len(self.rows) == len(column) and bool((self.rows == np.arange(len(self.rows))).all()):
            return column
        return column.take(pa.array(self.rows))


@dataclass(frozen=True)
class ListedMessages:
    """Deliveries of a few records as lists, all to the first sink: their Arrow arrays take longer than sending them.

    Attributes:
        topics: by message, as the next two.
        ids: message ids; None where the record's origin is unknown.
        rows: indices of the messages' records in the lists below.
        values: bytes of each record.
        headers: names and values of its headers.
        keys: bytes of its key; empty where the sink has no keys.
        partitions: its partition as it was read.
        times: its time in microseconds since 1970; None for one without.
        make: makes the messages with arrays.
    """

    topics: Sequence[str]
    ids: Sequence[str | None]
    rows: Sequence[int]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str | None, bytes | None]]]
    keys: Sequence[bytes | None]
    partitions: Sequence[int]
    times: Sequence[int | None]
    make: Callable[[], Messages] = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.topics)

    @cached_property
    def whole(self) -> Messages:
        """The messages with arrays."""
        return self.make()


def _context(headers: ArrowArray) -> ArrowArray:
    """Return only the dead letters' own headers, which give the reason, without those of their records."""
    ours = [
        None if pairs is None else [pair for pair in pairs if pair["key"].startswith((CONNECT_PREFIX, TURNOUT_PREFIX))]
        for pairs in headers.to_pylist()
    ]
    return pa.array(ours, ARROW)


def record_columns(
    batch: ArrowBatch, rows: Sequence[int], values: Binaries, headers: ArrowArray, keys: Binaries
) -> ArrowBatch:
    """Return the columns of `RECORDS` of some records.

    Args:
        batch: the record batch as it was read, which has their positions.
        rows: rows of the records.
        values: as they are sent, one for each of *rows*.
        headers: likewise.
        keys: likewise.
    """
    columns = {"value": values, "headers": headers, "key": keys}
    everything = list(rows) == list(range(batch.num_rows))
    source = None if everything else pa.array(rows, pa.int64())
    for name in ("partition", "offset", "timestamp"):
        kind = RECORDS.field(name).type
        if name not in batch.schema.names:
            columns[name] = pa.nulls(len(rows), kind)
            continue
        column = batch.column(name)
        columns[name] = as_type(column if source is None else column.take(source), kind)
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS)
