"""Losses between two micro-batches of a Kafka source: a topic was deleted, recreated or set back, or records were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from turnout.errors import StreamError
from turnout.kafka.admin import PartitionEnds, TopicInfo, TopicPartition
from turnout.kafka.clients import NOT_FOUND
from turnout.kafka.reader import LastRecord, lost_records, other_record, recreated
from turnout.runtime.kafka_source import KafkaOffsets, KafkaSourceOptions

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
    losses = [_missing(topic, options.client.servers) for topic in sorted(missing)]
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


def _missing(topic: str, servers: Sequence[str]) -> StreamError:
    problem = "records that were not read are lost, if it existed; set failOnDataLoss=false to continue without it"
    return StreamError(f"there is no topic {topic!r} at {', '.join(servers)}: {problem}", code=NOT_FOUND)
