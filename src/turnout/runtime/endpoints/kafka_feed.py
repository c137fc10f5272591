"""Records of Kafka topics for feeds, read by consumers without a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from turnout.base.untrusted import is_whole
from turnout.errors import ConfigError, Mistake
from turnout.kafka.group import OffsetReader
from turnout.kafka.reader import record_batch
from turnout.nats.wire.positions import position_of
from turnout.routes.values import listed
from turnout.runtime.endpoints.feed_records import RecordKey, by_stream, in_order, wrong_cursor
from turnout.runtime.endpoints.kafka_history import hasty
from turnout.runtime.feeds.cursors import cursor_among, offsets_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnout.nats.wire.positions import StreamPosition
    from turnout.records.types import ArrowBatch
    from turnout.routes.endpoints import KafkaSource
    from turnout.runtime.committed_offsets import Offsets
    from turnout.runtime.endpoints.kafka import KafkaAdapter
    from turnout.runtime.feeds.cursors import FeedCursor

_SECONDS: Final = 3.0


class KafkaFeedRecords:
    """Records of Kafka topics. A cursor has the offsets of partitions, and names the topics if there are several.

    Args:
        adapter: adapter of the source, which names them.
    """

    def __init__(self, adapter: KafkaAdapter, source: KafkaSource) -> None:
        self._adapter = adapter
        self._client = hasty(source.client, _SECONDS)
        self._topics = listed(source.topics)
        self._only = self._topics[0] if len(self._topics) == 1 else None
        self._readers: dict[str, OffsetReader] = {}

    def close(self) -> None:
        """Close the consumers."""
        for reader in self._readers.values():
            reader.close()

    def streams(self, committed: Offsets) -> Sequence[str]:
        """Return the partitions that runs have read, topic by topic."""
        offsets = {topic: committed.next.get(topic) for topic in sorted(self._topics)}
        return [
            f"{topic}:{number}"
            for topic, numbers in offsets.items()
            if isinstance(numbers, dict)
            for number in sorted(map(int, numbers))
        ]

    def offsets(self, cursor: FeedCursor) -> dict[str, int]:
        """Return the offsets by partition."""
        offsets = offsets_in(cursor)
        if offsets is not None and self._only is not None:
            offsets = {f"{self._only}:{number}": at for number, at in offsets.items()}
        if offsets is None or not all(map(self._is_partition, offsets)):
            example = "0:17,2:4" if self._only is not None else f"{self._topics[0]}:0:17"
            raise wrong_cursor(cursor, f"the offsets of partitions, as in {example}")
        return offsets

    def _is_partition(self, name: str) -> bool:
        topic, _, number = name.rpartition(":")
        return topic in self._topics and number.isascii() and number.isdigit()

    def cursor(self, offsets: Mapping[str, int]) -> FeedCursor:
        """Return the offsets as text."""
        return cursor_among(offsets, self._only)

    def ends(self, streams: Sequence[str]) -> dict[str, int]:
        """Return the offsets behind the last records of partitions."""
        with self._adapter.history() as history:
            return {stream: history.bounds(stream).next for stream in streams}

    def start(self, position: StreamPosition) -> FeedCursor:
        """Return the offsets before a position in each partition."""
        if is_whole(position):
            problem = f"{position} is no position in a topic, where each partition has its offsets"
            raise ConfigError([Mistake("from", f"{problem}: expected earliest, latest or a time")], what="bad position")
        start = position_of("from", position)
        with self._adapter.history() as history:
            starts = {name: history.resolve(name, start) for name in history.streams}
        return self.cursor({name: following - 1 for name, following in starts.items() if following > 0})

    def read(
        self,
        keys: Sequence[RecordKey],
        committed: Offsets,  # noqa: ARG002 - the offsets have the ids of topics
    ) -> tuple[list[RecordKey], ArrowBatch]:
        """Return the records, partition by partition from the brokers."""
        found: list[RecordKey] = []
        batches: list[ArrowBatch] = []
        for stream, offsets in by_stream(keys).items():
            topic, _, number = stream.rpartition(":")
            records = self._reader(topic).read(int(number), offsets)
            found += [(stream, offset) for offset in records]
            batches.append(record_batch(topic, int(number), list(records.values())))
        return in_order(keys, found, batches)

    def _reader(self, topic: str) -> OffsetReader:
        if topic not in self._readers:
            self._readers[topic] = OffsetReader(self._client, topic)
        return self._readers[topic]
