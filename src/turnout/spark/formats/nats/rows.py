"""Rows of a split for Spark: its records; for a route, the counts of its stage, or the split for a next stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from turnout.base.startup import freeze_gc
from turnout.runtime.nats.source import SourceOptions
from turnout.runtime.splits import splits_of, task_rows
from turnout.spark.formats.nats.reading import ArrowColumns, OpenSplit, Split, SplitReader


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a source.

    Attributes:
        options: how it is read.
        columns: columns of the records; None where each row is a split.
    """

    options: SourceOptions
    columns: ArrowColumns | None

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> Self:
        """Return the rows that the options and Spark's schema require.

        Raises:
            ConfigError: the schema is not supported.
        """
        return cls(options, None if options.splits else ArrowColumns(schema))

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches that Spark gets for one of its partitions.

        Raises:
            StreamError: messages of the range were deleted and ``failOnDataLoss`` is on.
        """
        # Spark makes an InputPartition of its own where a reader plans none.
        split = part if isinstance(part, OpenSplit) or (isinstance(part, Split) and part.end > part.start) else None
        if self.columns is None:
            yield from task_rows(replace(self.options, stage=None), split, self.options.stage)
        elif isinstance(split, Split):
            freeze_gc()
            for batch in SplitReader(self.options, split).batches():
                yield self.columns.of(batch, split)


def open_split_of(rows: pa.RecordBatch) -> tuple[SourceOptions, OpenSplit] | None:
    """Return the open split of rows that have one only, with its read strategy; None without one."""
    return next(((options, part) for options, part in splits_of(rows) if isinstance(part, OpenSplit)), None)
