"""Spark data source of a route's Kafka topics, whose rows are splits; Spark's own connector has the name ``kafka``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from turnout.base.untrusted import JsonObject
from turnout.engine import Messages
from turnout.engine.messages import RECORDS
from turnout.errors import RunError, StreamError
from turnout.kafka.admin import KafkaAdmin, PartitionEnds, TopicInfo, TopicPartition
from turnout.kafka.clients import NOT_FOUND, patiently
from turnout.kafka.reader import LastRecord, LastRecords, PartitionRange, RangeReader, check_topic, other_record
from turnout.records.batch import TOPIC_ID
from turnout.records.headers import as_type
from turnout.runtime.driver import AskedRevisions, ask_plan
from turnout.runtime.kafka.open_reader import opened
from turnout.runtime.kafka.publisher import KafkaSinkOptions
from turnout.runtime.kafka.source import (
    KafkaOffsets,
    KafkaSourceOptions,
    NextOffsets,
    admitted,
    by_topic,
    next_offsets_after,
    partitions_of,
    planned,
    planned_between,
    records_to_compare,
    resolved,
)
from turnout.runtime.offsets import SPLIT_COLUMNS, WARNING, Backlog, decoded, task_rows
from turnout.runtime.open_splits import Plan
from turnout.spark.columns import map_in_arrow

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from turnout.runtime.open_task import OpensRecords


@dataclass(frozen=True)
class KafkaOpenSplit(InputPartition):
    """Partitions from their positions on, which one task reads until it gets a request to stop.

    Attributes:
        start: the first positions, unless the driver knows those of an earlier task.
        number: number of the split, among the open ones of a checkpoint.
        group: number of the first split of the same micro-batch.
        topics: number of partitions of each topic of the source: another number ends the split.
        revision: revision of the subscriptions at the beginning; None without.
    """

    start: JsonObject
    number: int
    group: int
    topics: Mapping[str, int]
    revision: int | None = None

    time: ClassVar[None] = None

    def __repr__(self) -> str:
        names = [f"{topic}:{number}" for topic, number in sorted(KafkaOffsets.of_json(self.start).next_offsets())]
        return f"open {self.number}: {', '.join(names)}"

    @property
    def label(self) -> str:
        """The partitions."""
        return repr(self)

    def opens(self, options: KafkaSourceOptions) -> OpensRecords:
        """Return what opens the partitions."""
        return partial(opened, options, self.topics)


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
    is_empty = not isinstance(part, KafkaOpenSplit) and (not isinstance(part, KafkaSplit) or part.span is None)
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


_PAUSE_SECONDS: Final = 0.05
"""Poll interval of idle partitions, in seconds."""

_Answer = TypeVar("_Answer")


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics in micro-batches. Spark keeps one instance for a query, in its own process."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options
        self._admin: KafkaAdmin | None = None
        self._records: LastRecords | None = None
        self._initial: JsonObject | None = None
        self._target: NextOffsets | None = None
        self._latest: JsonObject | None = None
        self._reported: dict[str, None] = {}
        self._backlog = Backlog()
        self._revisions = AskedRevisions(options.revisions_url) if options.revisions_url else None

    def __getstate__(self) -> dict[str, object]:
        # The tasks get a copy; connections stay where they are.
        return {**self.__dict__, "_admin": None, "_records": None}

    # Spark's names

    def initialOffset(self) -> JsonObject:  # noqa: N802
        """Return the start of a query without a checkpoint, resolved once so that ``latest`` does not move."""
        if self._initial is None:
            infos = self._query(self._topics)
            ends = self._ends(infos)
            next_offsets = self._query(lambda admin: resolved(admin, self._options.start, infos, ends))
            ids = _ids(infos)
            self._initial = KafkaOffsets(by_topic(next_offsets), ids, identified=frozenset(ids)).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the read limit of the options."""
        most = self._options.max_records
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run; later records belong to the next run."""
        infos = self._query(self._topics)
        ends = self._ends(infos)
        self._target = self._query(lambda admin: resolved(admin, self._options.end, infos, ends))

    def latestOffset(self, start: JsonObject, limit: ReadLimit) -> JsonObject:  # noqa: N802
        """Return the end of the next micro-batch: all records that may be read, or as many as the limit admits.

        Raises:
            StreamError: unread records, or a topic, were deleted, and ``failOnDataLoss`` is on.
        """
        planned_before = KafkaOffsets.of_json(start)
        before, plan = self._reached(planned_before)
        was_open = planned_before.open is not None
        opens = plan is not None and plan.opens and self._target is None
        # An open split waits for records itself, and the position that one has reached is committed at once.
        waits = self._target is None and not (opens or was_open)
        deadline = time.monotonic() + (self._options.poll_wait if waits else 0)
        while True:
            if self._options.pause_file and Path(self._options.pause_file).exists():
                # The offset left by a stop has the position of the run.
                return replace(before, begins=before.next, open=None).to_json() if was_open else start
            infos = self._query(self._topics)
            ends = self._ends(infos)
            self._latest = by_topic({name: end.next for name, end in ends.items()})
            next_offsets = self._next_offsets(before, infos, ends)
            tops = self._tops(next_offsets, ends)
            waiting = sum(max(0, top - next_offsets[name]) for name, top in tops.items())
            if opens and plan is not None and next_offsets and not self._backlog.is_large(waiting):
                return self._opened(before, next_offsets, infos, plan)
            if was_open or any(top > next_offsets[name] for name, top in tops.items()):
                return self._end(start, before, next_offsets, tops, infos, limit, is_first=was_open)
            if time.monotonic() > deadline:
                # Spark compares texts; changes without records are detected again.
                return start
            time.sleep(_PAUSE_SECONDS)

    def reportLatestOffset(self) -> JsonObject | None:  # noqa: N802
        """Return the ends of the partitions as the last poll saw them: Spark shows them in the query's progress.

        ``:N.warning`` beside them are the losses that were stepped over: this process has no log of the query's own.
        """
        if self._latest is None:
            return None
        latest: JsonObject = {
            topic: {str(number): at for number, at in numbers.items()} for topic, numbers in self._latest.items()
        }
        return latest | {f":{number}{WARNING}": text for number, text in enumerate(self._reported)}

    def partitions(self, start: JsonObject, end: JsonObject) -> Sequence[InputPartition]:
        """Return the splits between two offsets: for a micro-batch that is done again, the same as before."""
        stop = KafkaOffsets.of_json(end)
        if stop.open is not None:
            return self._open_splits(stop) or [KafkaSplit(None)]
        begins = KafkaOffsets.of_json(start).next_offsets() | KafkaOffsets(stop.begins).next_offsets()
        revision = self._revision(stop)
        spans = planned(begins, stop, stop.splits or self._options.partitions)
        return [KafkaSplit(span, revision) for span in spans] or [KafkaSplit(None)]

    def _open_splits(self, beginning: KafkaOffsets) -> list[InputPartition]:
        """Return the open splits of an offset; none if this run has no driver for them, which reads them again."""
        if beginning.open is None or self._options.open_splits is None:
            return []
        topics, revision = {name: len(numbers) for name, numbers in beginning.next.items()}, self._revision(beginning)
        return [
            KafkaOpenSplit(
                beginning.of_split(index).to_json(), beginning.open + index, beginning.open, topics, revision
            )
            for index in range(beginning.splits or 1)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split as a row, or the counts of the stage that reads it."""
        yield from rows_of(self._options, partition)

    def commit(self, end: JsonObject) -> None:
        """Do nothing: the checkpoint alone holds the position."""

    def stop(self) -> None:
        """Close the connections."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._records is not None:
            self._records.close()
            self._records = None

    # Topics

    def _query(self, question: Callable[[KafkaAdmin], _Answer]) -> _Answer:
        """Return the answer of the cluster; the request is repeated while no broker answers."""
        if self._admin is None:
            self._admin = KafkaAdmin(self._options.client)
        return patiently(self._options.client, partial(question, self._admin))

    def _topics(self, admin: KafkaAdmin) -> dict[str, TopicInfo]:
        return self._options.found_topics(admin)

    def _ends(self, infos: Mapping[str, TopicInfo]) -> dict[TopicPartition, PartitionEnds]:
        return self._query(lambda admin: admin.ends(partitions_of(infos)))

    def _next_offsets(
        self, before: KafkaOffsets, infos: Mapping[str, TopicInfo], ends: Mapping[TopicPartition, PartitionEnds]
    ) -> NextOffsets:
        """Return the next offset of each partition, and report what was lost before it."""
        others = self._others(before, records_to_compare(before, infos, ends))
        next_offsets, losses = next_offsets_after(before, self._options, infos, ends, others)
        for loss in losses:
            self._report(loss)
        return next_offsets

    def _others(
        self, before: KafkaOffsets, records: Mapping[TopicPartition, LastRecord]
    ) -> dict[TopicPartition, LastRecord | None]:
        """Return what is now in the places of records that were read, where it is another record, or none.

        A topic that is compacted, or whose settings may not be described, may lack any record.
        """
        if not records:
            return {}
        found = self._query(lambda _: self._last_records.now_before(before.next_offsets(), records))
        others: dict[TopicPartition, LastRecord | None]
        others = {name: one for name, one in found.items() if not records[name].is_same(one)}
        if absent := records.keys() - found.keys():
            rules = self._query(lambda admin: admin.topic_rules({topic for topic, _ in absent}))
            others |= {name: None for name in absent if name[0] in rules and not rules[name[0]].is_compacted}
        return others

    @property
    def _last_records(self) -> LastRecords:
        if self._records is None:
            self._records = LastRecords(self._options.client)
        return self._records

    def _report(self, failure: StreamError) -> None:
        if self._options.fail_on_data_loss:
            raise failure
        # A loss is found at each poll until the next micro-batch begins behind it.
        if str(failure) not in self._reported:
            self._reported[str(failure)] = None
            _log.warning("%s", failure)

    # The next micro-batch

    def _reached(self, before: KafkaOffsets) -> tuple[KafkaOffsets, Plan | None]:
        """Return the offset with the positions that its open splits have reached, and the driver's plan."""
        address = self._options.open_splits
        if address is None or (before.open is None and not self._options.stays_open):
            return before, None
        numbers = [None] if before.open is None else range(before.open, before.open + (before.splits or 1))
        for number in numbers:
            plan = ask_plan(address, number)
            before = before.reached(plan.next)
        return before, plan if self._options.stays_open else replace(plan, opens=False)

    def _opened(
        self, before: KafkaOffsets, next_offsets: NextOffsets, infos: Mapping[str, TopicInfo], plan: Plan
    ) -> JsonObject:
        """Return the offset of the next open splits, which begin where the last ones have ended."""
        ids, unmoved = _ids(infos), next_offsets.items() & before.next_offsets().items()
        return KafkaOffsets(
            by_topic(next_offsets),
            ids,
            splits=min(plan.tasks, len(next_offsets)),
            revision=None if self._revisions is None else self._revisions.newest(),
            identified=before.identified_among(ids),
            last={name: before.last[name] for name, _ in unmoved if name in before.last},
            open=plan.number,
        ).to_json()

    def _tops(self, next_offsets: NextOffsets, ends: Mapping[TopicPartition, PartitionEnds]) -> NextOffsets:
        tops = {name: end.next for name, end in ends.items()}
        if self._target is None:
            return tops
        # New partitions belong to the next run.
        return {name: min(top, self._target.get(name, next_offsets[name])) for name, top in tops.items()}

    def _end(
        self,
        start: JsonObject,
        before: KafkaOffsets,
        next_offsets: NextOffsets,
        tops: NextOffsets,
        infos: Mapping[str, TopicInfo],
        limit: ReadLimit,
        *,
        is_first: bool = False,
    ) -> JsonObject:
        most = None if isinstance(limit, ReadAllAvailable) else self._options.max_records
        # No checkpoint has the place where a query begins, or an open split has ended. A run that dies in this
        # micro-batch does it again from here.
        former_offsets = before.next_offsets()
        is_first = is_first or start == self._initial
        begins = {name: at for name, at in next_offsets.items() if is_first or former_offsets.get(name) != at}
        ids = _ids(infos)
        bounded = admitted(next_offsets, tops, most)
        moved = {name: at for name, at in bounded.next_offsets().items() if at > next_offsets[name]}
        unmoved = next_offsets.items() & former_offsets.items()
        kept = {name: before.last[name] for name, _ in unmoved if name in before.last and name not in moved}
        end = replace(
            bounded,
            last=kept | self._query(lambda _: self._last_records.before(moved)),
            ids=ids,
            identified=before.identified_among(ids),
            begins=by_topic(begins),
            splits=self._options.partitions,
            revision=None if self._revisions is None else self._revisions.newest(),
        )
        return end.to_json()

    def _revision(self, end: KafkaOffsets) -> int | None:
        if self._revisions is None:
            return None
        return self._revisions.newest() if end.revision is None else self._revisions.usable(end.revision)


def _ids(infos: Mapping[str, TopicInfo]) -> dict[str, str]:
    return {name: info.id for name, info in infos.items() if info.id is not None}


def write_rows(messages: DataFrame, message_id: str, options: KafkaSinkOptions) -> None:
    """Write the messages of a frame; after the return brokers have acknowledged all of them.

    Args:
        messages: with the columns ``topic``, ``value``, ``headers``, ``key``, ``partition``, ``offset``, ``timestamp``.
        message_id: name of the column of message ids, which deliveries to webhooks carry as a header.
        options: options of the sink.
    """
    rows = messages.select("topic", message_id, *RECORDS.names)

    def publish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(options.publisher()) as publisher:
            for batch in batches:
                publisher.send(_messages(batch, message_id), _refuse)
            stored = publisher.flush().stored
        yield pa.RecordBatch.from_pydict({"stored": [stored]})

    map_in_arrow(rows, publish, "stored bigint").write.format("noop").mode("append").save()


def _messages(batch: pa.RecordBatch, message_id: str) -> Messages:
    records = [as_type(batch.column(field.name), field.type) for field in RECORDS]
    count = batch.num_rows
    return Messages(
        batch.column("topic"),
        batch.column(message_id),
        np.zeros(count, np.int8),
        np.arange(count),
        pa.RecordBatch.from_arrays(records, schema=RECORDS),
    )


def _refuse(_index: int, reason: StreamError) -> None:
    raise RunError(f"a message is refused by Kafka: {reason}")


FORMAT: Final = "turnout-kafka"
OPTIONS: Final = "encodedSecret"
"""Option with the encoded `KafkaSourceOptions`; Spark redacts the values of such names."""


class KafkaDataSource(DataSource):
    """Splits of Kafka topics, for the stage of a route."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the column of splits."""
        return SPLIT_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is always the same
        """Return a reader of one batch."""
        return KafkaReader(self._decoded)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """Return a reader of micro-batches."""
        return KafkaStreamReader(self._decoded)

    @property
    def _decoded(self) -> KafkaSourceOptions:
        options: KafkaSourceOptions = decoded(self.options[OPTIONS])
        return options


class KafkaReader(DataSourceReader):
    """Reads topics between two positions."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits; an empty one if nothing is to be read."""
        return [KafkaSplit(span) for span in planned_between(self._options)] or [KafkaSplit(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split as a row, or the counts of the stage that reads it."""
        yield from rows_of(self._options, partition)
