"""Records of NATS streams for feeds, by direct gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout.nats.wire import Connection
from turnout.nats.wire.positions import position_of, resolve, state_of
from turnout.nats.wire.rows import with_stream
from turnout.nats.wire.streams import stored_messages
from turnout.runtime.endpoints.feed_records import RecordKey, by_stream, in_order, wrong_cursor
from turnout.runtime.feeds.cursors import cursor_among, offsets_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnout.nats.wire.positions import StreamPosition
    from turnout.records.types import ArrowBatch
    from turnout.routes.endpoints import NatsSource
    from turnout.runtime.committed_offsets import Offsets
    from turnout.runtime.feeds.cursors import FeedCursor


class NatsFeedRecords:
    """Records of NATS streams. The cursor of one stream is a sequence, that of several has the names of the streams.

    Args:
        source: names them.

    Raises:
        ConnectionLostError: the server cannot be reached.
    """

    def __init__(self, source: NatsSource) -> None:
        self._streams = source.streams
        self._only = source.only_stream
        self._connection = Connection.open(source.connection)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def streams(self, committed: Offsets) -> Sequence[str]:  # noqa: ARG002 - of Kafka those with offsets
        """Return the streams."""
        return self._streams

    def offsets(self, cursor: FeedCursor) -> dict[str, int]:
        """Return the sequences by stream."""
        if self._only is not None:
            if isinstance(cursor, str):
                raise wrong_cursor(cursor, "a sequence of the stream, as in 1042")
            return {self._only: cursor}
        offsets = offsets_in(cursor)
        if offsets is None or not offsets.keys() <= {*self._streams}:
            raise wrong_cursor(cursor, f"sequences of the streams, as in {self._streams[0]}:1042")
        return offsets

    def cursor(self, offsets: Mapping[str, int]) -> FeedCursor:
        """Return the sequence, or the sequences with the names of their streams."""
        return cursor_among(offsets, self._only)

    def ends(self, streams: Sequence[str]) -> dict[str, int]:
        """Return the sequences behind the last messages of streams."""
        self._reconnect()
        return {stream: state_of(self._connection, stream).next for stream in streams}

    def start(self, position: StreamPosition) -> FeedCursor:
        """Return the sequences before a position."""
        if isinstance(position, int) and self._only is None:
            raise wrong_cursor(position, "earliest, latest or a time, as each stream has its own sequences")
        self._reconnect()
        start = position_of("from", position)
        return self.cursor({stream: resolve(self._connection, stream, start) - 1 for stream in self._streams})

    def read(self, keys: Sequence[RecordKey], committed: Offsets) -> tuple[list[RecordKey], ArrowBatch]:
        """Return the messages, stream by stream from the server."""
        self._reconnect()
        found: list[RecordKey] = []
        batches: list[ArrowBatch] = []
        for stream, sequences in by_stream(keys).items():
            identity = committed.identities.get(stream)
            is_there = identity is None or identity.created == state_of(self._connection, stream).created
            stored = stored_messages(self._connection, stream, sequences if is_there else [])
            batch = with_stream(stored, stream, identity)
            found += [(stream, sequence) for sequence in batch.column("offset").to_pylist()]
            batches.append(batch)
        return in_order(keys, found, batches)

    def _reconnect(self) -> None:
        if not self._connection.is_open:
            self._connection.reconnect()
