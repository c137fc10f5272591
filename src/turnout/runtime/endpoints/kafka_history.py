"""History of Kafka topics: records by partition and offset, read by consumers that commit nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Final

from turnout.base.untrusted import JsonMapping, JsonObject, is_whole
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.kafka.admin import KafkaAdmin, TopicPartition
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.runtime.endpoints.adapter import StreamEnd
from turnout.runtime.kafka_source import partitions_of

if TYPE_CHECKING:
    from turnout.nats.wire.positions import StreamPosition
    from turnout.records.types import ArrowBatch

_WAIT_SECONDS: Final = 0.5
_NOT_FOUND: Final = 404


class KafkaHistory:
    """Reading of partitions, each named ``topic:partition``.

    Args:
        admin: an open connection.
        client: options of the consumers.
        topics: topics to read, which exist.

    Attributes:
        topic_ids: id of each topic; None for brokers that give none.

    Raises:
        StreamError: a topic does not exist.
        ConnectionLostError: no broker answers.
    """

    def __init__(self, admin: KafkaAdmin, client: KafkaOptions, topics: Sequence[str]) -> None:
        self._admin = admin
        self._client = client
        infos = admin.describe(topics)
        self._partitions = partitions_of(infos)
        self.topic_ids = {name: info.id for name, info in infos.items()}

    @property
    def streams(self) -> Sequence[str]:
        """The partitions, in order."""
        return tuple(f"{topic}:{number}" for topic, number in self._partitions)

    def bounds(self, stream: str) -> StreamEnd:
        """Return the bounds of a partition now."""
        partition = self._partition(stream)
        end = self._admin.ends([partition])[partition]
        return StreamEnd(end.first, end.next)

    def resolve(self, stream: str, position: StreamPosition) -> int:
        """Return the offset in a partition that a place means now."""
        if isinstance(position, datetime):
            partition = self._partition(stream)
            return self._admin.offsets_at([partition], int(position.timestamp() * 1000))[partition]
        if isinstance(position, str):
            return self.bounds(stream).first if position == "earliest" else self.bounds(stream).next
        if isinstance(position, int):
            raise ConfigError([no_single_offset("place", position)], what="bad range")
        if stream not in position:
            problem = f"has no offset for {stream}: the partitions are {', '.join(self.streams)}"
            raise ConfigError([Mistake("place", problem)], what="bad range")
        return position[stream]

    def read(self, stream: str, start: int, end: int) -> Iterator[ArrowBatch]:
        """Yield the records of a range; removed ones are left out."""
        span = PartitionRange(*self._partition(stream), start, end)
        yield from RangeReader(self._client, span, fail_on_data_loss=False).batches()

    def record_at(self, stream: str, offset: int) -> ArrowBatch:
        """Return the record at an offset.

        Raises:
            StreamError: there is none, with the reason if known.
        """
        bounds = self.bounds(stream)
        if not bounds.first <= offset < bounds.next:
            held_text = "is empty" if bounds.first == bounds.next else f"has {bounds.first:,} to {bounds.next - 1:,}"
            raise StreamError(f"there is no record {stream}:{offset}: the partition {held_text}", code=_NOT_FOUND)
        found = next(self.read(stream, offset, offset + 1), None)
        if found is None:
            reasons = "it was compacted away, or is a mark of a transaction or in one that was aborted"
            raise StreamError(f"there is no record {stream}:{offset}: {reasons}", code=_NOT_FOUND)
        return found

    def count(self, stream: str, start: int, end: int, filters: Sequence[str]) -> int:  # noqa: ARG002 - NATS has them
        """Return the number of offsets, as brokers do not count: compaction and transactions leave some without."""
        return max(0, end - start)

    def wait(self, positions: Mapping[str, int], stop: Event) -> None:  # noqa: ARG002 - would be a read from the brokers
        """Wait for a moment."""
        stop.wait(_WAIT_SECONDS)

    def _partition(self, stream: str) -> TopicPartition:
        topic, _, number = stream.rpartition(":")
        partition = (topic, int(number))
        if partition not in self._partitions:
            raise StreamError(f"there is no partition {stream}: there are {', '.join(self.streams)}", code=_NOT_FOUND)
        return partition


def hasty(client: KafkaOptions, seconds: float) -> KafkaOptions:
    """Return the options with short timeouts, as a caller waits for the answer."""
    return replace(client, timeout=seconds, patience=max(seconds, 10.0))


def no_single_offset(name: str, offset: int) -> Mistake:
    """Return the mistake of a bare number as a place."""
    problem = f"{offset} is no place in Kafka, where each partition has offsets of its own"
    return Mistake(name, f'{problem}: give a time, or {{"topic:partition": offset}}')


def offsets_by_topic(position: JsonMapping) -> JsonObject:
    """Return offsets by ``topic:partition`` as offsets by topic and partition; others stay as they are.

    >>> offsets_by_topic({"orders:0": 17, "orders:1": 4})
    {'orders': {'0': 17, '1': 4}}
    """
    grouped: JsonObject = {}
    for name, value in position.items():
        topic, colon, number = name.rpartition(":")
        if colon and is_whole(value, -2):
            grouped.setdefault(topic, {})[number] = value
        else:
            grouped[name] = value
    return grouped
