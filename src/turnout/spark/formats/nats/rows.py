"""Rows of a split for Spark: its records, or, for a route, the split itself, which the next stage reads.

The JVM carries then which parts of the streams a task has, and not what they hold: a record goes from the socket
through the engine in one process. Carried through the JVM, it was copied five times between four processes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from turnout.gc_tools import freeze_gc
from turnout.runtime.source_options import SourceOptions
from turnout.spark.formats.nats.reading import ArrowColumns, OpenSplit, Split, SplitReader

SPLIT_COLUMNS: Final = "split binary"
"""The column of a source whose rows are splits: how to read one, and which, pickled together."""

_ROW = pa.schema([pa.field("split", pa.binary())])


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a source.

    Attributes:
        options: how it is read.
        columns: of the records; None where each row is a split.
    """

    options: SourceOptions
    columns: ArrowColumns | None

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> Self:
        """Return the rows that the options and Spark's schema require.

        Raises:
            ConfigError: when the schema asks for what cannot be.
        """
        return cls(options, None if options.splits else ArrowColumns(schema))

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches that Spark gets for one of its partitions.

        Raises:
            StreamError: when messages of the range are gone and ``failOnDataLoss`` is on.
        """
        freeze_gc()
        if isinstance(part, OpenSplit):
            yield self._row(part)
            return
        # Spark makes an InputPartition of its own where a reader plans none.
        if not isinstance(part, Split) or part.end <= part.start:
            return
        if self.columns is None:
            yield self._row(part)
            return
        for batch in SplitReader(self.options, part).batches():
            yield self.columns.of(batch, part)

    def _row(self, part: Split | OpenSplit) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([pickle.dumps((self.options, part))], pa.binary())], schema=_ROW)


def open_split_of(rows: pa.RecordBatch) -> tuple[SourceOptions, OpenSplit] | None:
    """Return the open split of some rows, which is alone in them, and how to read it; None if there is none."""
    for pickled in rows.column(0).to_pylist():
        options, part = pickle.loads(pickled)  # noqa: S301 - what `Rows.read` has written, in a task of this query
        if isinstance(part, OpenSplit):
            return options, part
    return None


def readers_of(rows: pa.RecordBatch) -> Iterator[SplitReader]:
    """A reader for each split of some rows."""
    for pickled in rows.column(0).to_pylist():
        yield SplitReader(*pickle.loads(pickled))  # noqa: S301 - what `Rows.read` has written, in a task of this query


def records_of(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The record batches of the splits of some rows, each with its stream; revisions are left out."""
    for reader in readers_of(rows):
        yield from reader.batches_with_stream()
