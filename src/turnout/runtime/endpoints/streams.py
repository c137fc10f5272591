"""Streams of a source, the test whether a sink feeds them, and their records, read again by position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import pyarrow as pa

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.engine.sample_records import SampleRecord
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.nats import wire
from turnout.nats.wire import Connection
from turnout.records.types import ArrowBatch
from turnout.routes.endpoints import NatsSource
from turnout.subjects.pattern import common

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnout.nats.wire.streams import StreamPosition
    from turnout.records.types import ArrowBatch
    from turnout.runtime.cursors import FeedCursor
    from turnout.runtime.offsets import Offsets


@dataclass(frozen=True, slots=True)
class SourceStreams:
    """The streams that a route reads.

    Attributes:
        subjects: patterns of the subjects read from them.
        created: stream → creation time, which distinguishes it from others of its name.
    """

    subjects: tuple[str, ...] = ()
    created: Mapping[str, str] | None = None

    @classmethod
    def of(cls, connection: Connection, source: NatsSource) -> Self:
        """Return the streams of a source.

        Raises:
            StreamError: one does not exist.
        """
        infos = {name: wire.stream_info(connection, name) for name in source.streams}
        stored = _stored(connection, infos)
        filters = source.filters or (">",)
        read = {common(subject, other) for subject in stored for other in filters} - {None}
        created = {name: str(info["created"]) for name, info in infos.items()}
        return cls(tuple(sorted(subject for subject in read if subject is not None)), created)

    def is_fed_by(self, connection: Connection) -> bool:
        """Return True if messages published over a connection may reach one of these streams.

        An address says little: servers have several, and accounts of one server know nothing of each other.
        """
        return any(_created(connection, name) == created for name, created in (self.created or {}).items())


def _created(connection: Connection, stream: str) -> str | None:
    """Return the creation time of a stream; None if the server of this connection has no stream of that name."""
    try:
        return str(wire.stream_info(connection, stream)["created"])
    except StreamError:
        return None


def _stored(connection: Connection, infos: Mapping[str, JsonMapping]) -> list[str]:
    """Return the subjects that some streams store, also by way of the streams that they mirror or source from."""
    subjects: list[str] = []
    names, waiting = set(infos), [info["config"] for info in infos.values()]
    while waiting:
        config = waiting.pop()
        subjects += config.get("subjects") or ()
        for name in _origins(config):
            if name not in names:
                names.add(name)
                waiting += _config(connection, name)
    return subjects


def _origins(config: JsonMapping) -> Iterable[str]:
    """Return the streams of the same account that a stream copies."""
    copied = [*([config["mirror"]] if config.get("mirror") else ()), *(config.get("sources") or ())]
    return (origin["name"] for origin in copied if not origin.get("external"))


def _config(connection: Connection, stream: str) -> list[JsonMapping]:
    try:
        return [wire.stream_info(connection, stream)["config"]]
    except StreamError:
        # A stream may copy one that is not there, or that this user may not see.
        return []


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


def rows_of(batch: ArrowBatch) -> list[JsonObject]:
    """Return the rows of a batch, their timestamps as numbers."""
    at = batch.schema.get_field_index("timestamp")
    rows: list[JsonObject] = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()
    return rows


def record_of(row: JsonObject, stream: str | None) -> SampleRecord:
    """Return a row as a record; without a stream for a source that has partitions."""
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    position = row["partition"], row["offset"], row["timestamp"]
    return SampleRecord(row["topic"], row["value"], row["key"], headers, *position, stream)
