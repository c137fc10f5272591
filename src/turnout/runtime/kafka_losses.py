"""Losses between two micro-batches of a Kafka source: a topic was deleted or recreated, or unread records were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from turnout.errors import StreamError
from turnout.kafka.admin import PartitionEnds, TopicInfo, TopicPartition
from turnout.kafka.clients import NOT_FOUND
from turnout.kafka.reader import lost_records, recreated
from turnout.runtime.kafka_source import KafkaOffsets, KafkaSourceOptions

NextOffsets: TypeAlias = dict[TopicPartition, int]
"""Topic and partition → offset of the next record."""


def next_offsets_after(
    before: KafkaOffsets,
    options: KafkaSourceOptions,
    infos: Mapping[str, TopicInfo],
    ends: Mapping[TopicPartition, PartitionEnds],
) -> tuple[NextOffsets, list[StreamError]]:
    """Return where each partition continues, and an error for each loss before that.

    New partitions, and those of a topic with another id than in the checkpoint, begin with their first record.

    Args:
        before: offset in the checkpoint, with the ids of its topics.
        options: options of the source.
        infos: the source's topics that exist.
        ends: first and next offset of each of their partitions.
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
        next_offsets[topic, number] = at
    return next_offsets, losses


def _missing(topic: str, servers: Sequence[str]) -> StreamError:
    problem = "records that were not read are lost, if it existed; set failOnDataLoss=false to continue without it"
    return StreamError(f"there is no topic {topic!r} at {', '.join(servers)}: {problem}", code=NOT_FOUND)
