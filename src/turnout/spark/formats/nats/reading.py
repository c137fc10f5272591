"""What batch and streaming reads of NATS share: places in streams, splitting, and reading one split."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from turnout.errors import ConfigError, ConnectionLostError, Mistake, StreamError
from turnout.protocol.positions import sequences
from turnout.spark.formats.nats.holes import LossWatch
from turnout.spark.formats.nats.options import SourceOptions, Start
from turnout.spark.formats.nats.packed import pack
from turnout.spark.workers.garbage import spare_collections
from turnout.wire import Connection, DirectReader, PullReader, Range, create_consumer, delete_consumer, stream_info
from turnout.wire.records import SCHEMA

__all__ = [
    "ArrowColumns",
    "Columns",
    "Split",
    "StreamState",
    "columns_of",
    "read_split",
    "resolve",
    "split",
    "state_of",
]

_SMALLEST_SPLIT = 10_000
_STREAM_NOT_FOUND = 10059


class Split(InputPartition):
    """A part of one stream that one task reads; nothing at all where *end* is not above *start*."""

    def __init__(self, stream: str, start: int, end: int, partition: int = 0, revision: int | None = None) -> None:
        super().__init__(None)
        self.stream = stream
        self.partition = partition
        self.start = start
        self.end = end
        self.revision = revision

    def __repr__(self) -> str:
        return f"{self.stream}[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream holds: sequences from *first* up to, not including, *next*, but for those *deleted* between."""

    first: int
    next: int
    mean_bytes: float
    deleted: int


def state_of(connection: Connection, stream: str) -> StreamState:
    """Ask for the state of *stream*.

    Raises:
        StreamError: when there is no such stream, or it may not be asked for.
    """
    try:
        state = stream_info(connection, stream)["state"]
    except StreamError as failure:
        if failure.err_code == _STREAM_NOT_FOUND:
            raise StreamError(f"there is no stream {stream!r}", code=404, err_code=failure.err_code) from None
        raise
    messages = state["messages"]
    # A stream that never had a message says that its first is 0.
    first, following = max(1, state["first_seq"]), state["last_seq"] + 1
    mean = state["bytes"] / messages if messages else 0
    return StreamState(first, following, mean, max(0, following - first - messages))


def resolve(connection: Connection, stream: str, place: Start) -> int:
    """The sequence that *place* names in *stream*."""
    if isinstance(place, datetime):
        return _sequence_at(connection, stream, place)
    if isinstance(place, int):
        return max(1, place)
    state = state_of(connection, stream)
    if place == "earliest":
        return state.first
    if place == "latest":
        return state.next
    if isinstance(place, str) or stream not in place:
        raise ConfigError([Mistake("startingOffsets", f"has no sequence for the stream {stream!r}")])
    return max(1, place[stream])


def _sequence_at(connection: Connection, stream: str, moment: datetime) -> int:
    """The first sequence at or after *moment*; the end of the stream where there is none."""
    state = state_of(connection, stream)
    config: dict[str, Any] = {
        "name": f"turnout-time-{secrets.token_hex(8)}",
        "deliver_policy": "by_start_time",
        "opt_start_time": moment.isoformat(),
        "ack_policy": "none",
        "headers_only": True,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 30_000_000_000,
    }
    name = create_consumer(connection, stream, config)["name"]
    inbox = connection.new_inbox()
    number = connection.subscribe(inbox)
    subject = f"{connection.options.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{name}"
    connection.publish(subject, b'{"batch":1,"no_wait":true}', inbox)
    found = state.next
    try:
        for message in connection.messages(time.monotonic() + connection.options.timeout):
            if message.reply.startswith("$JS.ACK."):
                found = sequences(message.reply.encode())[0]
            if message.reply or message.subject == inbox:
                break
        connection.unsubscribe(number)
    except TimeoutError as late:
        raise ConnectionLostError(f"stream {stream!r} did not say what it holds at {moment.isoformat()}") from late
    delete_consumer(connection, stream, name)
    return found


def split(options: SourceOptions, stream: str, start: int, end: int, revision: int | None = None) -> list[Split]:
    """The range as one split for each subject partition, or in pieces of nearly one length, fewer if it is small."""
    length = max(0, end - start)
    if length and options.subject_partitions:
        return [Split(stream, start, end, number, revision) for number in range(options.subject_partitions)]
    parts = options.partitions // len(options.streams)
    count = max(1, min(parts, length // _SMALLEST_SPLIT))
    edges = [start + length * index // count for index in range(count + 1)]
    return [Split(stream, low, high, revision=revision) for low, high in pairwise(edges)] if length else []


class Columns(Protocol):
    """What a split's record batches become for Spark."""

    def of(self, batch: Any, part: Split) -> Any:
        """The record batch that Spark gets for one of the wire's."""
        ...


class PackedColumns:
    """Each record batch as one row, with the revision of its split."""

    def of(self, batch: Any, part: Split) -> Any:
        """See `turnout.spark.formats.nats.packed`."""
        return pack(batch, part.stream, part.revision)


def columns_of(options: SourceOptions, schema: StructType) -> Columns:
    """What the options and Spark's schema ask for.

    Raises:
        ConfigError: when the schema asks for what cannot be.
    """
    return PackedColumns() if options.packed else ArrowColumns(schema)


class ArrowColumns:
    """Turns what the wire brings into the columns that were asked for.

    Raises:
        ConfigError: when the schema asks for a column that there is not, or for a type that cannot be.
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        known = {*SCHEMA.names, "stream"}
        mistakes = [
            Mistake(f"schema.{name}", f"is no column of a NATS record; there are {', '.join(sorted(known))}")
            for name in schema.fieldNames()
            if name not in known
        ]
        if mistakes:
            raise ConfigError(mistakes, what="NATS source")

    def of(self, batch: Any, part: Split) -> Any:
        """The record batch in the schema's columns and types."""
        columns = []
        for field in self._schema:
            if field.name == "stream":
                columns.append(pa.repeat(pa.scalar(part.stream), batch.num_rows).cast(field.type))
                continue
            column = batch.column(SCHEMA.get_field_index(field.name))
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def read_split(options: SourceOptions, columns: Columns, part: InputPartition) -> Iterator[Any]:
    """The record batches of one split, over a connection of its own.

    Raises:
        StreamError: when messages of the range are gone and ``failOnDataLoss`` is on.
    """
    spare_collections()
    # Spark makes an InputPartition of its own where a reader plans none.
    if not isinstance(part, Split) or part.end <= part.start:
        return
    with Connection(options.connection) as connection:
        # A task may begin while the server restarts: it waits as long as a task that is under way.
        connection.reconnect()
        wanted = Range(part.stream, part.start, part.end, options.filters_of(part.partition))
        by_sequence = options.ack_consumer is not None
        reader = DirectReader(connection, wanted) if by_sequence else PullReader(connection, wanted, part.partition)
        with LossWatch(options, part.stream, part.end) as watch:
            for batch in reader.batches():
                if reader.hole is not None:
                    watch.look(reader.hole)
                yield columns.of(batch, part)
            if reader.next < part.end:
                watch.look(reader.next)
