"""Splits of Kafka topics: a range of one partition, read by the stage itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.clients import NOT_FOUND
from turnout.kafka.reader import LastRecord, PartitionRange, RangeReader, check_topic, other_record
from turnout.records.listed import TOPIC_ID
from turnout.runtime.kafka.source import KafkaSourceOptions
from turnout.runtime.splits import task_rows

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KafkaSplit(InputPartition):
    """Range of one partition; empty without one.

    Attributes:
        span: span to read.
        revision: revision of the subscriptions that the records are matched with; None without.
    """

    span: PartitionRange | None
    revision: int | None = None

    def __repr__(self) -> str:
        return str(self.span)

    def reader(self, options: KafkaSourceOptions) -> KafkaSplitReader:
        """Return a reader for this split."""
        return KafkaSplitReader(options, self)


def rows_of(options: KafkaSourceOptions, part: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows that Spark gets for one of its partitions: its split, or the counts of the stage that reads it."""
    # Spark makes an InputPartition of its own where a reader plans none.
    is_empty = not isinstance(part, KafkaSplit) or part.span is None
    yield from task_rows(replace(options, stage=None), None if is_empty else part, options.stage)


class KafkaSplitReader:
    """Reads one split, once.

    Attributes:
        revision: revision of the subscriptions that its records are matched with; None where there are none.
        not_read: always 0, as brokers filter nothing.
        stream: the partition, as ``topic:partition``; "" where there is no range.
        start: the first offset.
        end: the offset behind the last.
    """

    def __init__(self, options: KafkaSourceOptions, split: KafkaSplit) -> None:
        self._options = options
        self._span = span = split.span
        self.stream, self.start, self.end = (
            ("", 0, 0) if span is None else (f"{span.topic}:{span.partition}", span.start, span.end)
        )
        self.revision = split.revision
        self.not_read = 0

    def batches_with_stream(self) -> Iterator[pa.RecordBatch]:
        """Yield the records; each with topic, partition and offset, and the topic's id if message ids have it.

        Raises:
            StreamError: records of the range were deleted, or the topic was recreated, and ``failOnDataLoss`` is on.
        """
        span, options = self._span, self._options
        if span is None:
            return
        strict = options.fail_on_data_loss
        with KafkaAdmin(options.client) as admin:
            reader = RangeReader(options.client, span, fail_on_data_loss=strict)
            for batch in reader.batches():
                # The next micro-batch reads a topic that is made anew from its first record: this one must not.
                if not (strict or self._is_planned(admin, span)):
                    return
                if span.identified and span.topic_id is not None:
                    yield batch.append_column(TOPIC_ID, pa.repeat(pa.scalar(span.topic_id), batch.num_rows))
                else:
                    yield batch
            # No topic has the id of an earlier one: if it is the planned one now, it was so all the time.
            if self._is_planned(admin, span):
                self._compare(span, reader.last)

    def _compare(self, span: PartitionRange, found: LastRecord | None) -> None:
        """Compare the last record of the range with that of the plan: in between, a broker may have been restored.

        Without ``failOnDataLoss`` the next micro-batch compares it too, and begins with the partition's first record.
        """
        if span.last is None or found is None or found.offset != span.last.offset or found.is_same(span.last):
            return
        failure = other_record(span.topic, span.partition, span.last, found, span.end)
        if self._options.fail_on_data_loss:
            raise failure
        _log.warning("%s", failure)

    def _is_planned(self, admin: KafkaAdmin, span: PartitionRange) -> bool:
        """Return True if the topic is the one that the range was planned for, False after a warning.

        Raises:
            StreamError: it is not, and ``failOnDataLoss`` is on; or nothing is known about it.
        """
        try:
            check_topic(admin, span)
        except StreamError as failure:
            if self._options.fail_on_data_loss or failure.code != NOT_FOUND:
                raise
            _log.warning("%s", failure)
            return False
        return True
