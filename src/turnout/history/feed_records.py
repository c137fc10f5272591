"""Records of a feed: read again from the stream of a route, or from the partitions of its topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias, cast

import pyarrow as pa

from turnout.errors import ConfigError, Mistake
from turnout.kafka.group import OffsetReader
from turnout.kafka.reader import record_batch
from turnout.nats.wire import Connection
from turnout.nats.wire.positions import StreamPosition, position_of, resolve
from turnout.nats.wire.rows import with_stream
from turnout.nats.wire.streams import stored_messages
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.routes.endpoints import KafkaSource
from turnout.routes.values import listed
from turnout.runtime.committed_offsets import Offsets
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.endpoints.kafka_history import hasty
from turnout.runtime.feeds.cursors import FeedCursor, cursor_at, offsets_in

_SECONDS: Final = 3.0

RecordKey: TypeAlias = tuple[int, int]
"""Partition of a record, 0 for a stream, and its offset or sequence."""


class FeedRecords(Protocol):
    """Records of a source that can be read by their positions. A stream is one partition, 0."""

    def close(self) -> None:
        """Close the connections."""

    def streams(self, committed: Offsets) -> Mapping[int, str]:
        """Return the names of the partitions in files of matches."""

    def offsets(self, cursor: FeedCursor) -> dict[int, int]:
        """Return the last position read of each partition.

        Raises:
            ConfigError: the cursor is of another kind of source.
        """

    def cursor(self, offsets: Mapping[int, int]) -> FeedCursor:
        """Return the cursor behind these positions."""

    def start(self, position: StreamPosition) -> FeedCursor:
        """Return the cursor from which a feed begins at ``earliest``, ``latest``, a sequence or a time.

        Raises:
            ConfigError: it is no position of the source.
        """

    def read(self, keys: Sequence[RecordKey]) -> tuple[list[RecordKey], ArrowBatch]:
        """Return the records that are still held, with their keys, in the order of *keys*.

        Raises:
            StreamError: the source is not there.
            ConnectionLostError: no server answers.
        """


def feed_records(route: Route) -> FeedRecords:
    """Return the records of a route with feeds.

    Raises:
        ConnectionLostError: the server of its source cannot be reached.
    """
    return TopicRecords(route.source) if isinstance(route.source, KafkaSource) else StreamRecords(route)


class StreamRecords:
    """Records of a NATS stream."""

    def __init__(self, route: Route) -> None:
        (self._stream,) = route.source.streams
        self._connection = Connection.open(route.nats_source().connection)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def streams(self, committed: Offsets) -> Mapping[int, str]:  # noqa: ARG002 - a topic's are those with offsets
        """Return the stream."""
        return {0: self._stream}

    def offsets(self, cursor: FeedCursor) -> dict[int, int]:
        """Return the sequence."""
        if isinstance(cursor, str):
            raise _wrong_cursor(cursor, "a sequence of the stream, as in 1042")
        return {0: cursor}

    def cursor(self, offsets: Mapping[int, int]) -> FeedCursor:
        """Return the sequence."""
        return offsets[0]

    def start(self, position: StreamPosition) -> FeedCursor:
        """Return the sequence before a position."""
        self._reconnect()
        return resolve(self._connection, self._stream, position_of("from", position)) - 1

    def read(self, keys: Sequence[RecordKey]) -> tuple[list[RecordKey], ArrowBatch]:
        """Return the messages, by direct gets."""
        self._reconnect()
        batch = stored_messages(self._connection, self._stream, [sequence for _, sequence in keys])
        found = [(0, sequence) for sequence in batch.column("offset").to_pylist()]
        return found, with_stream(batch, self._stream) if batch.num_rows else batch

    def _reconnect(self) -> None:
        if not self._connection.is_open:
            self._connection.reconnect()


class TopicRecords:
    """Records of a Kafka topic, read by a consumer without a group."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        (self._topic,) = listed(source.topics)
        self._reader = OffsetReader(hasty(source.client, _SECONDS), self._topic)

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()

    def streams(self, committed: Offsets) -> Mapping[int, str]:
        """Return the partitions that runs have read."""
        numbers = cast("Mapping[str, int]", committed.next.get(self._topic) or {})
        return {int(number): f"{self._topic}:{number}" for number in numbers}

    def offsets(self, cursor: FeedCursor) -> dict[int, int]:
        """Return the offsets by partition."""
        offsets = offsets_in(cursor)
        if offsets is None:
            raise _wrong_cursor(cursor, "the offsets of partitions, as in 0:17,2:4")
        return offsets

    def cursor(self, offsets: Mapping[int, int]) -> FeedCursor:
        """Return the offsets as text."""
        return cursor_at(offsets)

    def start(self, position: StreamPosition) -> FeedCursor:
        """Return the offsets before a position in each partition."""
        if isinstance(position, int):
            problem = f"{position} is no position in a topic, where each partition has its offsets"
            raise ConfigError([Mistake("from", f"{problem}: expected earliest, latest or a time")], what="bad position")
        start = position_of("from", position)
        with adapter_of(self._source).history() as history:
            starts = {name: history.resolve(name, start) for name in history.streams}
        return cursor_at({int(name.rpartition(":")[2]): next_ - 1 for name, next_ in starts.items() if next_ > 0})

    def read(self, keys: Sequence[RecordKey]) -> tuple[list[RecordKey], ArrowBatch]:
        """Return the records, partition by partition from the brokers."""
        wanted: dict[int, list[int]] = {}
        for partition, offset in keys:
            wanted.setdefault(partition, []).append(offset)
        found: dict[RecordKey, int] = {}
        batches: list[ArrowBatch] = []
        for partition, offsets in wanted.items():
            records = self._reader.read(partition, offsets)
            for offset in records:
                found[partition, offset] = len(found)
            batches.append(record_batch(self._topic, partition, list(records.values())))
        held = [key for key in keys if key in found]
        rows = pa.array([found[key] for key in held], pa.int64())
        table = pa.Table.from_batches(batches).take(rows).combine_chunks()
        return held, next(iter(table.to_batches()), batches[0])


def _wrong_cursor(cursor: FeedCursor, expected: str) -> ConfigError:
    return ConfigError([Mistake("after", f"expected {expected}, found {str(cursor)[:80]!r}")], what="bad cursor")
