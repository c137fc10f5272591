"""Objects as texts, for options of Spark's sources; only for texts of this application's own."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, Protocol

import pyarrow as pa

from turnout.base.startup import freeze_gc


def encoded(value: object) -> str:
    """Return an object as one text."""
    return base64.b64encode(pickle.dumps(value)).decode()


def decoded(text: str) -> Any:
    """Inverse of `encoded`."""
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - of the same application


_MIN_SPLIT_RECORDS: Final = 10_000
"""A task costs more than reading fewer records takes."""


def even_spans(start: int, end: int, max_spans: int) -> list[tuple[int, int]]:
    """Return the spans of a range as pairs of begin and end (exclusive); none for an empty range.

    The same arguments give the same spans, so a repeated micro-batch can be divided in the same way.

    Args:
        start: first number.
        end: number behind the last one.
        max_spans: spans at most; there are fewer where a span would have less than 10,000 numbers.

    >>> even_spans(10, 30_010, 2)
    [(10, 15010), (15010, 30010)]
    >>> even_spans(10, 19_000, 2)
    [(10, 19000)]
    """
    length = end - start
    if length <= 0:
        return []
    count = max(1, min(max_spans, length // _MIN_SPLIT_RECORDS))
    return list(pairwise(start + length * index // count for index in range(count + 1)))


SPLIT_COLUMNS: Final = "split binary"
"""The column of a source whose rows are splits: how to read one, and which, pickled together."""

_ROW = pa.schema([pa.field("split", pa.binary())])


class RecordReader(Protocol):
    """Reader of one split, to be used once.

    Attributes:
        revision: revision of the subscriptions that its records are matched with; None where there are none.
        not_read: once all is read, how many records of the range, counted here, were left unread.
        stream: stream of the records, or ``topic:partition``; "" where there is no range.
        start: the first sequence or offset.
        end: that behind the last.
    """

    revision: int | None
    not_read: int
    stream: str
    start: int
    end: int

    def batches_with_stream(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, with a column ``stream`` if they are from one."""


def task_rows(options: object, split: object | None, stage: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task: the split as a row, or the counts of the stage that reads and publishes it.

    Args:
        options: how the source is read.
        split: split of the task; None for one with nothing to read.
        stage: encoded `turnout.spark.stage.SparkStage` of a route that publishes; None for a next stage that reads.
    """
    rows = [] if split is None else [split_row(options, split)]
    if stage is None:
        freeze_gc()
        yield from rows
    else:
        yield from decoded(stage).publish(rows)


def split_row(options: object, split: object) -> pa.RecordBatch:
    """Return a split as a row, with how to read its source."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps((options, split))], pa.binary())], schema=_ROW)


def splits_of(rows: pa.RecordBatch) -> Iterator[tuple[Any, Any]]:
    """Yield the splits of some rows, each behind the options of its source."""
    for pickled in rows.column(0).to_pylist():
        options, split = pickle.loads(pickled)  # noqa: S301 - what `split_row` has written, in a task of this query
        yield options, split


def open_split_of(rows: pa.RecordBatch) -> tuple[Any, Any] | None:
    """Return the open split of rows that have one only, behind the options of its source; None without one."""
    return next(((options, part) for options, part in splits_of(rows) if hasattr(part, "opens")), None)


def readers_of(rows: pa.RecordBatch) -> Iterator[RecordReader]:
    """Yield a reader for each split of some rows."""
    for options, split in splits_of(rows):
        yield split.reader(options)


def records_of(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of the splits of some rows, each with its stream; revisions are left out."""
    for reader in readers_of(rows):
        yield from reader.batches_with_stream()
