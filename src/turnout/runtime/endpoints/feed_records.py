"""Records that feeds read again by their positions: interface of the sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from turnout.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnout.nats.wire.positions import StreamPosition
    from turnout.records.types import ArrowBatch
    from turnout.runtime.committed_offsets import Offsets
    from turnout.runtime.feeds.cursors import FeedCursor

RecordKey: TypeAlias = tuple[str, int]
"""Stream of a record, of Kafka ``topic:partition``, and its sequence or offset."""


class FeedRecords(Protocol):
    """Records of a source that can be read by their positions."""

    def close(self) -> None:
        """Close the connections."""

    def streams(self, committed: Offsets) -> Sequence[str]:
        """Return the streams, of Kafka the partitions that runs have read, in the order of their turns."""

    def offsets(self, cursor: FeedCursor) -> dict[str, int]:
        """Return the last position read of each stream.

        Raises:
            ConfigError: the cursor is of another kind of source.
        """

    def cursor(self, offsets: Mapping[str, int]) -> FeedCursor:
        """Return the cursor behind these positions."""

    def ends(self, streams: Sequence[str]) -> dict[str, int]:
        """Return the positions behind the last records of streams.

        Raises:
            StreamError: a stream is not there.
            ConnectionLostError: no server answers.
        """

    def start(self, position: StreamPosition) -> FeedCursor:
        """Return the cursor from which a feed begins at ``earliest``, ``latest``, a sequence or a time.

        Raises:
            ConfigError: it is no position of the source.
        """

    def read(self, keys: Sequence[RecordKey], committed: Offsets) -> tuple[list[RecordKey], ArrowBatch]:
        """Return the records that are still held, with their keys, in the order of *keys*.

        Args:
            keys: positions of the records.
            committed: offsets of the route's runs: of another stream of the same name nothing is returned.

        Raises:
            StreamError: the source is not there.
            ConnectionLostError: no server answers.
        """


def by_stream(keys: Sequence[RecordKey]) -> dict[str, list[int]]:
    """Return the positions of some records by stream."""
    wanted: dict[str, list[int]] = {}
    for stream, position in keys:
        wanted.setdefault(stream, []).append(position)
    return wanted


def in_order(
    keys: Sequence[RecordKey], found: Sequence[RecordKey], batches: Sequence[ArrowBatch]
) -> tuple[list[RecordKey], ArrowBatch]:
    """Return the records that were found, whose keys are given, in the order of *keys*."""
    rows = {key: row for row, key in enumerate(found)}
    held = [key for key in keys if key in rows]
    table = pa.Table.from_batches(batches).take(pa.array([rows[key] for key in held], pa.int64())).combine_chunks()
    return held, next(iter(table.to_batches()), batches[0])


def wrong_cursor(cursor: FeedCursor, expected: str) -> ConfigError:
    """Return the error for a cursor of another kind of source."""
    return ConfigError([Mistake("after", f"expected {expected}, found {str(cursor)[:80]!r}")], what="bad cursor")
