"""Streaming side of the Kafka source: offsets with topic ids, admission, and what becomes of changed topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from turnout.base.untrusted import JsonObject
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin, PartitionEnds, TopicInfo, TopicPartition
from turnout.kafka.reader import LastRecord, LastRecords
from turnout.runtime.driver import AskedRevisions
from turnout.runtime.kafka.source import (
    KafkaOffsets,
    KafkaSourceOptions,
    NextOffsets,
    admitted,
    by_topic,
    next_offsets_after,
    partitions_of,
    planned,
    records_to_compare,
    resolved,
)
from turnout.runtime.offsets import WARNING
from turnout.spark.formats.kafka.reading import KafkaSplit, rows_of

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.05
"""Poll interval of idle partitions, in seconds."""

_RETRY_SECONDS: Final = 0.5

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
        before = KafkaOffsets.of_json(start)
        deadline = time.monotonic() + (self._options.poll_wait if self._target is None else 0)
        while True:
            if self._options.pause_file and Path(self._options.pause_file).exists():
                return start
            infos = self._query(self._topics)
            ends = self._ends(infos)
            self._latest = by_topic({name: end.next for name, end in ends.items()})
            next_offsets = self._next_offsets(before, infos, ends)
            tops = self._tops(next_offsets, ends)
            if any(top > next_offsets[name] for name, top in tops.items()):
                return self._end(start, before, next_offsets, tops, infos, limit)
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
        begins = KafkaOffsets.of_json(start).next_offsets() | KafkaOffsets(stop.begins).next_offsets()
        revision = self._revision(stop)
        spans = planned(begins, stop, stop.splits or self._options.partitions)
        return [KafkaSplit(span, revision) for span in spans] or [KafkaSplit(None)]

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
        deadline = time.monotonic() + self._options.client.patience
        while True:
            try:
                if self._admin is None:
                    self._admin = KafkaAdmin(self._options.client)
                return question(self._admin)
            except ConnectionLostError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)

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
    ) -> JsonObject:
        most = None if isinstance(limit, ReadAllAvailable) else self._options.max_records
        # No checkpoint has the place where a query begins. One that dies in this micro-batch does it again from here.
        former_offsets = {} if start == self._initial else before.next_offsets()
        begins = {name: at for name, at in next_offsets.items() if former_offsets.get(name) != at}
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
