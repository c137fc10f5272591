"""Rows of a micro-batch: its splits, or the counts of the stage that reads them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType
from tests.spark.formats.listing_stage import ListingStage

from turnout.embedded import NatsServer
from turnout.runtime.nats.source import SourceOptions
from turnout.runtime.offsets import encoded, even_spans, readers_of
from turnout.spark.formats.nats.reading import Rows, Split

pytestmark = pytest.mark.jetstream


def test_a_row_for_each_split_that_has_something(nats_server: NatsServer, stream: str) -> None:
    """It says how the split is read as well; Spark makes a partition of its own where a reader plans none."""
    options = SourceOptions.from_mapping(
        {"servers": nats_server.url, "stream": stream, "splits": "true"}, streaming=False
    )
    rows = Rows.of(options, StructType())

    (row,) = rows.read(Split(stream, 3, 8, revision=12))
    (reader,) = readers_of(row)

    assert row.schema.names == ["split"]
    assert (reader.revision, reader.not_read) == (12, 0)
    assert list(rows.read(Split(stream, 8, 8))) == []
    assert list(rows.read(InputPartition(0))) == []
    several = pa.Table.from_batches([row, row]).combine_chunks().to_batches()[0]
    assert len(list(readers_of(several.slice(1)))) == 1


def test_a_task_runs_the_stage_of_a_route(nats_server: NatsServer, stream: str) -> None:
    """On its one split, which does not have the stage once more; without a split too, so that each task has counts."""
    options = SourceOptions.from_mapping(
        {"servers": nats_server.url, "stream": stream, "splits": "true"}, streaming=False
    )
    rows = Rows.of(replace(options, stage=encoded(ListingStage())), StructType())
    split = Split(stream, 3, 8)

    read = [row.column("counts").to_pylist() for part in (split, Split(stream, 8, 8)) for row in rows.read(part)]

    assert read == [[str([(None, str(split))])], ["[]"]]


@given(start=st.integers(0, 2**62), length=st.integers(0, 10**9), most=st.integers(0, 64))
def test_spans_cover_the_range_without_gap_or_overlap(start: int, length: int, most: int) -> None:
    """They differ in length by one at most, and none is shorter than 10,000 unless it is the only one."""
    spans = even_spans(start, start + length, most)

    assert spans[:1] == ([(start, spans[0][1])] if length else [])
    assert [high for _, high in spans[-1:]] == ([start + length] if length else [])
    assert all(high == low for (_, high), (low, _) in pairwise(spans))
    lengths = [high - low for low, high in spans]
    assert len(spans) <= max(1, most)
    assert max(lengths, default=0) - min(lengths, default=0) <= 1
    assert len(spans) <= 1 or min(lengths) >= 10_000
