"""The Kafka source of a route: its options, its offsets in a checkpoint, and the splits between two of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self, TypeAlias

from turnout.base.clocks import parse_time
from turnout.base.untrusted import JsonMapping, JsonObject, decimal, is_whole
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.kafka.admin import KafkaAdmin, PartitionEnds, TopicInfo, TopicPartition
from turnout.kafka.clients import NOT_FOUND
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import LastRecord, PartitionRange, lost_records, other_record, recreated
from turnout.routes.endpoints import KafkaSource
from turnout.routes.values import listed
from turnout.runtime.offsets import OPEN, REVISION, SPLITS, TOPIC_IDS, even_spans
from turnout.transforms.java.regex import JavaRegex

_FROM, _IDENTIFIED, _LAST = ":from", ":identified", ":last"
"""Keys of an offset beside the topics, whose names have no colon."""

_EARLIEST, _LATEST = -2, -1

KafkaPosition: TypeAlias = "str | datetime | JsonMapping"
"""``earliest``, ``latest``, a time, or offsets by topic and partition."""


@dataclass(frozen=True, slots=True)
class KafkaSourceOptions:
    """Options of a Kafka source, as tasks get them.

    Attributes:
        client: options of the client.
        topics: topics to read; empty with a *pattern*.
        pattern: Java regular expression of the topics; None with *topics*.
        only: the one partition of the only topic to read; None for all.
        start: of a query without a checkpoint, or of a bounded read.
        end: end of a run that does all there is, or of a bounded read.
        max_records: the most offsets in one micro-batch; None for no limit.
        partitions: tasks that a micro-batch is read by, about; a small one has fewer.
        poll_wait: seconds that a poll without news waits.
        pause_file: as long as there is a file of this name, nothing is new.
        revisions_url: URL of the subscriptions' revision; None without subscriptions.
        open_splits: address of the progress of open splits: `turnout.runtime.driver`; None without.
        stays_open: micro-batches are open splits, unless there is much to catch up with.
        stage: encoded stage that tasks run on their splits; None where a next stage reads them.
    """

    client: KafkaOptions
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    only: int | None = None
    start: KafkaPosition = "earliest"
    end: KafkaPosition = "latest"
    max_records: int | None = None
    partitions: int = 1
    fail_on_data_loss: bool = True
    poll_wait: float = 0.0
    pause_file: str | None = None
    revisions_url: str | None = None
    open_splits: str | None = field(default=None, repr=False)
    stays_open: bool = False
    stage: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, source: KafkaSource, task_slots: int | None = None, **more: Any) -> Self:
        """Return the options of a route's source.

        Args:
            source: as the route has it.
            task_slots: tasks to plan for, where the source does not say; None for the processors of this machine.
            more: options that are not the source's.

        Raises:
            ConfigError: an option is wrong.
        """
        return cls(
            source.client,
            listed(source.topics),
            source.topic_pattern,
            None,
            position_of(source.start),
            position_of("latest" if source.end is None else source.end),
            source.max_records_per_trigger,
            source.partitions or task_slots or os.cpu_count() or 1,
            source.fail_on_data_loss is not False,
            **more,
        )

    def found_topics(self, admin: KafkaAdmin) -> dict[str, TopicInfo]:
        """Return the topics to read that exist."""
        if self.pattern is None:
            return admin.existing(self.topics)
        pattern = JavaRegex.of(self.pattern)
        return admin.existing(name for name in admin.topics() if pattern.matches(name))


def position_of(value: object) -> KafkaPosition:
    """Parse a position.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(value, datetime | Mapping):
        return value
    text = str(value).strip()
    if text in ("earliest", "latest"):
        return text
    try:
        if text.startswith("{"):
            offsets = json.loads(text)
            return offsets if isinstance(offsets, Mapping) else {}
        return parse_time(text)
    except ValueError:
        problem = f"expected earliest, latest, an ISO time or offsets by topic and partition, found {text!r:.60}"
        raise ConfigError([Mistake("start", problem)], what="bad offsets") from None


@dataclass(frozen=True, slots=True)
class KafkaOffsets:
    """Position in topics, as a checkpoint has it: Spark's connector writes the same without ids, begins and splits.

    Attributes:
        next: next offset by topic and partition.
        ids: topic id by topic, which distinguishes it from others of its name.
        begins: where the micro-batch before this position begins, as far as no position before it says so.
        splits: number of tasks that the micro-batch was planned for; None where it is not written.
        revision: revision of the subscriptions that the micro-batch is matched with; None without.
        identified: the topics whose records have message ids with the id of the topic. An earlier release wrote none:
            those of its checkpoint stay without as long as they are the same.
        last: the last record before each position, as far as it is known; an earlier release wrote none.
        open: number of the first of *splits* open splits, which begin here; None for the end of a micro-batch.
    """

    next: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    begins: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    splits: int | None = None
    revision: int | None = None
    identified: frozenset[str] = frozenset()
    last: Mapping[TopicPartition, LastRecord] = field(default_factory=dict)
    open: int | None = None

    @classmethod
    def of_json(cls, document: JsonMapping) -> Self:
        """Return the position that a checkpoint has.

        Raises:
            StreamError: it is none.
        """
        try:
            topics = {name: _numbers(value) for name, value in document.items() if ":" not in name and name != REVISION}
            begins = {name: _numbers(value) for name, value in document.get(_FROM, {}).items()}
            ids = {name: str(text) for name, text in document.get(TOPIC_IDS, {}).items()}
            identified = frozenset(map(str, document.get(_IDENTIFIED, ())))
            last = {
                (name, int(number)): LastRecord(*map(int, record))
                for name, records in document.get(_LAST, {}).items()
                for number, record in records.items()
            }
        except (AttributeError, TypeError, ValueError):
            raise StreamError(f"the checkpoint's offset is none of Kafka: {json.dumps(document)[:200]}") from None
        splits, number = document.get(SPLITS), document.get(OPEN)
        return cls(topics, ids, begins, splits, document.get(REVISION), identified, last, number)

    def to_json(self) -> JsonObject:
        """Inverse of `of_json`; topics and partitions in order, as Spark compares texts."""
        document: JsonObject = _texts(self.next)
        if self.ids:
            document[TOPIC_IDS] = dict(sorted(self.ids.items()))
        if self.begins:
            document[_FROM] = _texts(self.begins)
        if self.splits is not None:
            document[SPLITS] = self.splits
        if self.revision is not None:
            document[REVISION] = self.revision
        if self.identified:
            document[_IDENTIFIED] = sorted(self.identified)
        if self.last:
            records: dict[str, dict[str, list[int]]] = {}
            for (topic, number), record in sorted(self.last.items()):
                records.setdefault(topic, {})[str(number)] = [record.offset, record.time, record.epoch]
            document[_LAST] = records
        if self.open is not None:
            document[OPEN] = self.open
        return document

    def of_split(self, index: int) -> KafkaOffsets:
        """Return the beginning of one of the open splits: each has every n-th partition."""
        names = sorted(self.next_offsets())[index :: self.splits or 1]
        next_offsets = self.next_offsets()
        last = {name: self.last[name] for name in names if name in self.last}
        part = by_topic({name: next_offsets[name] for name in names})
        return KafkaOffsets(part, {topic: self.ids[topic] for topic in part if topic in self.ids}, last=last,
                            identified=self.identified & part.keys())  # fmt: skip

    def reached(self, position: object) -> KafkaOffsets:
        """Return the offsets with the position that an open split has reached, as its progress has it."""
        if not isinstance(position, Mapping):
            return self
        split = KafkaOffsets.of_json(position)
        following = {topic: {**self.next.get(topic, {}), **numbers} for topic, numbers in split.next.items()}
        return replace(self, next={**self.next, **following}, last={**self.last, **split.last})

    def identified_among(self, ids: Mapping[str, str]) -> frozenset[str]:
        """Return the topics that have identified message ids behind this position.

        Args:
            ids: id of each topic that has one now.
        """
        known = {topic for topic in self.next if topic not in self.identified}
        return frozenset(topic for topic, now in ids.items() if topic not in known or self.ids.get(topic, now) != now)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition."""
        return {(topic, number): at for topic, offsets in self.next.items() for number, at in offsets.items()}


def _numbers(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(number): int(offset) for number, offset in offsets.items()}


def _texts(offsets: Mapping[str, Mapping[int, int]]) -> JsonObject:
    return {
        topic: {str(number): offset for number, offset in sorted(numbers.items())}
        for topic, numbers in sorted(offsets.items())
    }


def by_topic(next_offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """Return offsets of partitions by topic."""
    grouped: dict[str, dict[int, int]] = {}
    for (topic, number), offset in next_offsets.items():
        grouped.setdefault(topic, {})[number] = offset
    return grouped


def partitions_of(infos: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    """Return the partitions of topics, in order."""
    return [(name, number) for name, info in sorted(infos.items()) for number in info.partitions]


def resolved(
    admin: KafkaAdmin,
    position: KafkaPosition,
    infos: Mapping[str, TopicInfo],
    ends: Mapping[TopicPartition, PartitionEnds],
) -> dict[TopicPartition, int]:
    """Return the offset of each partition that a place means now.

    Raises:
        ConfigError: offsets are given, and not for every partition.
    """
    if isinstance(position, datetime):
        return admin.offsets_at(ends, int(position.timestamp() * 1000))
    if isinstance(position, str):
        return {name: end.first if position == "earliest" else end.next for name, end in ends.items()}
    mistakes = [*_missing(position, infos)]
    if mistakes:
        raise ConfigError(mistakes, what="bad offsets")
    found = {}
    for (topic, number), end in ends.items():
        offset = position[topic].get(str(number), position[topic].get(number))
        found[topic, number] = {_EARLIEST: end.first, _LATEST: end.next}.get(offset, offset)
    return found


def _missing(position: JsonMapping, infos: Mapping[str, TopicInfo]) -> Iterator[Mistake]:
    for topic, info in infos.items():
        offsets = position.get(topic)
        numbers = offsets if isinstance(offsets, Mapping) else {}
        for number in info.partitions:
            if not is_whole(numbers.get(str(number), numbers.get(number)), _EARLIEST):
                yield Mistake(f"start.{topic}.{number}", "an offset is missing: -2 for earliest, -1 for latest")
    for topic, offsets in position.items():
        if topic not in infos:
            yield Mistake(f"start.{topic}", "there is no such topic among the source's topics")
            continue
        for number in offsets if isinstance(offsets, Mapping) else ():
            if decimal(str(number)) is None or int(number) not in infos[topic].partitions:
                yield Mistake(f"start.{topic}.{number}", "there is no such partition")


def planned(begins: Mapping[TopicPartition, int], end: KafkaOffsets, partitions: int) -> list[PartitionRange]:
    """Return the splits of a micro-batch: the same for the same arguments, so that a repeated one has them again.

    Args:
        begins: first offset of each partition.
        end: end of the micro-batch.
        partitions: tasks to plan for; every partition with records has a split of its own at least.
    """
    spans = {
        (topic, number): (begins[topic, number], stop)
        for (topic, number), stop in sorted(end.next_offsets().items())
        if stop > begins.get((topic, number), stop)
    }
    total = sum(stop - start for start, stop in spans.values())
    return [
        PartitionRange(
            topic,
            number,
            low,
            high,
            end.ids.get(topic),
            topic in end.identified,
            end.last.get((topic, number)) if high == stop else None,
        )
        for (topic, number), (start, stop) in spans.items()
        for low, high in even_spans(start, stop, partitions * (stop - start) // total)
    ]


def admitted(
    next_offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int | None
) -> KafkaOffsets:
    """Return the end of a micro-batch with at most so many offsets: each partition has its share, at least one.

    Args:
        next_offsets: next offset of each partition.
        ends: end offsets.
        most: offsets in all; None for no limit.
    """
    waiting = {name: max(0, ends.get(name, at) - at) for name, at in next_offsets.items()}
    total = sum(waiting.values())
    if most is None or total <= most:
        return KafkaOffsets(by_topic({name: at + waiting[name] for name, at in next_offsets.items()}))
    shares = {name: min(count, max(1, most * count // total)) if count else 0 for name, count in waiting.items()}
    return KafkaOffsets(by_topic({name: at + shares[name] for name, at in next_offsets.items()}))


def planned_between(options: KafkaSourceOptions) -> list[PartitionRange]:
    """Return the splits of a bounded read, from the options' start to their end.

    Raises:
        ConfigError: one of both is no place of these topics.
        StreamError: a topic does not exist.
    """
    with KafkaAdmin(options.client) as admin:
        infos = options.found_topics(admin)
        if options.pattern is None:
            infos = admin.describe(options.topics)
        if options.only is not None:
            infos = {name: replace(info, partitions=(options.only,)) for name, info in infos.items()}
        ends = admin.ends(partitions_of(infos))
        begins = resolved(admin, options.start, infos, ends)
        stops = resolved(admin, options.end, infos, ends)
    begins = {name: max(at, ends[name].first) for name, at in begins.items()}
    stops = {name: min(at, ends[name].next) for name, at in stops.items()}
    ids = {name: info.id for name, info in infos.items() if info.id is not None}
    return planned(begins, KafkaOffsets(by_topic(stops), ids, identified=frozenset(ids)), options.partitions)


NextOffsets: TypeAlias = dict[TopicPartition, int]
"""Topic and partition → offset of the next record."""


def records_to_compare(
    before: KafkaOffsets, infos: Mapping[str, TopicInfo], ends: Mapping[TopicPartition, PartitionEnds]
) -> dict[TopicPartition, LastRecord]:
    """Return the records by which the partitions with something to read may be known again, and still have.

    Args:
        before: offset in the checkpoint.
        infos: the source's topics that exist.
        ends: first and next offset of each of their partitions.
    """
    offsets, records = before.next_offsets(), {}
    for name, record in before.last.items():
        info, end = infos.get(name[0]), ends.get(name)
        if info is None or end is None or before.ids.get(info.name, info.id) != info.id:
            continue
        if end.first <= record.offset and end.next > offsets.get(name, end.next):
            records[name] = record
    return records


def next_offsets_after(
    before: KafkaOffsets,
    options: KafkaSourceOptions,
    infos: Mapping[str, TopicInfo],
    ends: Mapping[TopicPartition, PartitionEnds],
    others: Mapping[TopicPartition, LastRecord | None] = {},
) -> tuple[NextOffsets, list[StreamError]]:
    """Return where each partition continues, and an error for each loss before that.

    New partitions, those of a topic with another id than in the checkpoint, and those with another record before the
    position, begin with their first record: which of their records were read is not known.

    Args:
        before: offset in the checkpoint, with the ids of its topics.
        options: options of the source.
        infos: the source's topics that exist.
        ends: first and next offset of each of their partitions.
        others: the record that a partition has now in the place of the last one that was read, where that is another
            one or none.
    """
    former_offsets = before.next_offsets()
    missing = {topic for topic in (*before.next, *options.topics) if topic not in infos}
    losses = [_lost_topic(topic, options.client.servers) for topic in sorted(missing)]
    new = {topic for topic, info in infos.items() if before.ids.get(topic, info.id) != info.id}
    losses += [recreated(topic, before.ids[topic], infos[topic].id) for topic in sorted(new)]
    next_offsets: NextOffsets = {}
    for (topic, number), end in ends.items():
        at = end.first if topic in new else former_offsets.get((topic, number), end.first)
        if not end.first <= at <= max(end.first, end.next):
            upper = end.first if at < end.first else at
            losses.append(lost_records(topic, number, min(at, end.next), upper, end.first, end.next))
            at = end.first if at < end.first else end.next
        elif (topic, number) in others and topic not in new:
            read, found = before.last[topic, number], others[topic, number]
            losses.append(other_record(topic, number, read, found, at))
            at = end.first
        next_offsets[topic, number] = at
    return next_offsets, losses


def _lost_topic(topic: str, servers: Sequence[str]) -> StreamError:
    problem = "records that were not read are lost, if it existed; set failOnDataLoss=false to continue without it"
    return StreamError(f"there is no topic {topic!r} at {', '.join(servers)}: {problem}", code=NOT_FOUND)
