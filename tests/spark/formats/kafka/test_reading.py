"""Rows of the tasks of a Kafka source, without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PartitionRange
from turnout.runtime.kafka_source import KafkaSourceOptions
from turnout.spark.formats.kafka.reading import KafkaSplit, rows_of
from turnout.spark.formats.splits import encoded_stage, splits_of

OPTIONS = KafkaSourceOptions(KafkaOptions.of("127.0.0.1:9"), topics=("T",))
SPLIT = KafkaSplit(PartitionRange("T", 0, 3, 8), revision=12)


class ListingStage:
    """A stage whose counts are the splits that it gets."""

    def publish(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        splits = [(options.stage, str(split)) for rows in batches for options, split in splits_of(rows)]
        yield pa.RecordBatch.from_pydict({"counts": [str(splits)]})


def test_a_split_is_a_row() -> None:
    """With its revision; an empty one, and a partition that Spark makes where none is planned, is none."""
    (row,) = rows_of(OPTIONS, SPLIT)

    assert list(splits_of(row)) == [(OPTIONS, SPLIT)]
    assert list(rows_of(OPTIONS, KafkaSplit(None))) == []
    assert list(rows_of(OPTIONS, InputPartition(0))) == []


def test_a_task_runs_the_stage_of_a_route() -> None:
    """On its split, which does not have the stage once more; without one too, so that each task has counts."""
    options = replace(OPTIONS, stage=encoded_stage(ListingStage()))

    read = [row.column("counts").to_pylist() for part in (SPLIT, KafkaSplit(None)) for row in rows_of(options, part)]

    assert read == [[str([(None, str(SPLIT))])], ["[]"]]
