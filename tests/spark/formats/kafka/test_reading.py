"""Rows of the tasks of a Kafka source, without a broker."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import InputPartition
from tests.spark.formats.listing_stage import ListingStage

from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PartitionRange
from turnout.runtime.kafka.source import KafkaSourceOptions
from turnout.runtime.offsets import encoded, splits_of
from turnout.spark.formats.kafka.source import KafkaSplit, rows_of

OPTIONS = KafkaSourceOptions(KafkaOptions.of("127.0.0.1:9"), topics=("T",))
SPLIT = KafkaSplit(PartitionRange("T", 0, 3, 8), revision=12)


def test_a_split_is_a_row() -> None:
    """With its revision; an empty one, and a partition that Spark makes where none is planned, is none."""
    (row,) = rows_of(OPTIONS, SPLIT)

    assert list(splits_of(row)) == [(OPTIONS, SPLIT)]
    assert list(rows_of(OPTIONS, KafkaSplit(None))) == []
    assert list(rows_of(OPTIONS, InputPartition(0))) == []


def test_a_task_runs_the_stage_of_a_route() -> None:
    """On its split, which does not have the stage once more; without one too, so that each task has counts."""
    options = replace(OPTIONS, stage=encoded(ListingStage()))

    read = [row.column("counts").to_pylist() for part in (SPLIT, KafkaSplit(None)) for row in rows_of(options, part)]

    assert read == [[str([(None, str(SPLIT))])], ["[]"]]
