"""Records of NATS streams that are read again: of a range, of dead letters and their originals, and of feeds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from turnout.base.startup import pc
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject
from turnout.engine.sample_records import SampleRecord
from turnout.errors import StreamError
from turnout.nats.protocol.headers import NAME_RULE, UNFIT_NAME, instructs_server
from turnout.nats.protocol.positions import Origin, StreamIdentity, microseconds
from turnout.nats.wire import Connection, ConnectionOptions, Publisher, PullReader, Range, stored_message, streams_of
from turnout.nats.wire.direct import BY_SEQUENCE, observer_strategy, reader_of
from turnout.nats.wire.records import with_stream
from turnout.nats.wire.streams import (
    StreamPosition,
    count_about,
    count_exactly,
    position_of,
    resolve,
    state_of,
    stored_messages,
)
from turnout.records.types import Fields
from turnout.runtime.cursors import cursor_among, offsets_in
from turnout.runtime.endpoints import (
    NewLetter,
    RecordKey,
    StreamEnd,
    by_stream,
    in_order,
    record_of,
    rows_of,
    wrong_cursor,
)
from turnout.runtime.nats.source import wait_for_more

if TYPE_CHECKING:
    from turnout.records.types import ArrowBatch
    from turnout.routes.endpoints import NatsSource
    from turnout.runtime.cursors import FeedCursor
    from turnout.runtime.offsets import Offsets


_WAIT_SECONDS: Final = 0.5


class NatsHistory:
    """Reading of streams.

    Args:
        connection: an open one.
        streams: their names.
        filters: patterns of the subjects that are read; empty for all.
    """

    def __init__(self, connection: Connection, streams: Sequence[str], filters: tuple[str, ...]) -> None:
        self._connection = connection
        self.streams = streams
        self._filters = filters
        # An observer must not be one of the consumers that count.
        states = {name: state_of(connection, name) for name in streams}
        self._strategies = {name: observer_strategy(state) for name, state in states.items()}
        self._identities = {name: StreamIdentity.of(state.created) for name, state in states.items()}

    def bounds(self, stream: str) -> StreamEnd:
        """Return the bounds of a stream now."""
        state = state_of(self._connection, stream)
        self._identities[stream] = StreamIdentity.of(state.created)
        return StreamEnd(state.first, state.next, state.created)

    def resolve(self, stream: str, position: StreamPosition) -> int:
        """Return the sequence in a stream that a place means now."""
        return resolve(self._connection, stream, position)

    def read(self, stream: str, start: int, end: int) -> Iterator[ArrowBatch]:
        """Yield the messages of a range, of the stream as it was when its bounds were requested last."""
        identity = self._identities[stream]
        span = Range(stream, start, end, self._filters, identity)
        for batch in reader_of(self._connection, span, self._strategies[stream]).batches():
            yield with_stream(batch, stream, identity)

    def count(self, stream: str, start: int, end: int, filters: Sequence[str]) -> int:
        """Return the number of messages in a range; an upper bound for work-queue and interest streams."""
        exact = count_exactly(self._connection, stream, start, end, filters)
        if exact is not None:
            return exact
        # Too many messages arrive or are deleted now for an exact number, or counting would take a consumer in
        # a stream that counts its consumers; it is shown, and nothing more.
        if state_of(self._connection, stream).consumed:
            return end - start
        return count_about(self._connection, stream, start, end, filters)

    def wait(self, positions: Mapping[str, int], stop: Event) -> None:
        """Wait for the next message; where no consumer may be made, for a moment."""
        if BY_SEQUENCE in self._strategies.values():
            stop.wait(_WAIT_SECONDS)
        else:
            wait_for_more(self._connection, dict(positions), self._filters, 2 * _WAIT_SECONDS)


_log = logging.getLogger(__name__)
_NO_MESSAGE: Final = 10037


_DENIED: Final = 403


@dataclass(frozen=True, slots=True)
class NatsLetters:
    """Dead letters on one subject; see `turnout.runtime.endpoints.SinkLetters`.

    Attributes:
        is_named: whether the sink names the stream.
    """

    options: ConnectionOptions
    stream: str
    topic: str
    is_named: bool = False

    keeps_keys: ClassVar[bool] = False
    deletion_problem: ClassVar[str | None] = None

    @classmethod
    def find(cls, options: ConnectionOptions, stream: str | None, topic: str) -> NatsLetters | None:
        """Return the letters on a subject, in the stream that takes it if none is named; None if there is none."""
        if stream is not None:
            return cls(options, stream, topic, is_named=True)
        with Connection.open(options) as connection:
            owners = streams_of(connection, topic)
        return cls(options, owners[0], topic) if owners else None

    def stream_of(self, row: Fields) -> str:  # noqa: ARG002 - there is one
        """Return the stream."""
        return self.stream

    def holds(self, stream: str) -> bool:
        """Return True for the stream."""
        return stream == self.stream

    @contextmanager
    def history(self) -> Iterator[NatsHistory]:
        """Open a connection to read the letters.

        Raises:
            StreamError: the stream that is named for them does not take them.
            ConnectionLostError: the server cannot be reached.
        """
        with Connection.open(self.options) as connection:
            if self.is_named:
                self._check_stream(connection)
            yield NatsHistory(connection, [self.stream], (self.topic,))

    def _check_stream(self, connection: Connection) -> None:
        try:
            owners = streams_of(connection, self.topic)
        except StreamError as failure:
            if failure.code == _DENIED:
                return
            raise
        if self.stream not in owners:
            found = f"{', '.join(owners)} has it" if owners else "no stream has it"
            cure = "leave stream out of the sink, or let deadLetter name a sink of its own"
            problem = f"the sink's stream {self.stream} does not have the subject {self.topic} of the dead letters"
            raise StreamError(f"{problem}, {found}: they would be refused; {cure}", code=404)

    def at(self, sequence: int) -> int:
        """Return the sequence."""
        return sequence

    def add(self, letter: NewLetter, stream: str) -> None:  # noqa: ARG002 - there is one
        """Publish a message among the letters, and wait until it is stored."""
        self.exchange([letter], [])

    def exchange(self, added: Sequence[NewLetter], deleted: Sequence[tuple[str, int]]) -> None:
        """Publish letters and, when they are stored, delete those at some positions, as far as they are still there."""
        with Connection.open(self.options) as connection:
            with Publisher(connection, allow=(self.topic,)) as publisher:
                for headers, value, message_id in added:
                    # A letter may be older than the rule for names.
                    bad_names = [name for name, _ in headers if UNFIT_NAME.search(name)]
                    # Instructions to the server were about the record's message: here they would remove other
                    # letters, or let this one expire.
                    fitting = [pair for pair in headers if pair[0] not in bad_names and not instructs_server(pair[0])]
                    if bad_names:
                        left_out = ", ".join(map(repr, bad_names))
                        _log.warning(
                            "a letter is stored on %r without the headers %s: %s", self.topic, left_out, NAME_RULE
                        )
                    publisher.publish(self.topic, value, fitting, message_id=message_id)
            for stream, sequence in deleted:
                _delete(connection, stream, sequence)


def _delete(connection: Connection, stream: str, sequence: int) -> None:
    try:
        connection.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
    except StreamError as failure:
        # Deleted already, by another redrive or a limit of the stream.
        if failure.err_code != _NO_MESSAGE and failure.code != 404:
            raise


_FORBIDDEN, _GONE = 403, 404
_MAX_SINGLE_READS = 20
"""Maximum number of messages that are requested one by one."""
_SPARSE = 150
"""Messages are requested one by one if at most one in this many is needed: a request takes as long as reading two
hundred."""


def nats_originals(connection: Connection, records: Sequence[SampleRecord]) -> list[SampleRecord]:
    """Return records as their streams have them; deleted and replaced ones as given.

    Args:
        connection: connection to their server.
        records: the records; each has its stream and its sequence.
    """
    stored = _StoredMessages(connection, records)
    return [stored.original(record) or record for record in records]


class _StoredMessages:
    """Stored messages of given records.

    If they are close together, their streams are read from the first to the last of them: requests for twenty thousand
    one by one took 12 s of processor time, of 21 for a redrive.
    """

    def __init__(self, connection: Connection, records: Sequence[SampleRecord]) -> None:
        self._connection = connection
        self._rows: dict[tuple[str, int], JsonObject] = {}
        self._complete: set[str] = set()
        self._created: dict[str, str] = {}
        sequences_by_stream: dict[str, set[int]] = {}
        for record in records:
            if record.stream is not None and record.offset is not None:
                sequences_by_stream.setdefault(record.stream, set()).add(record.offset)
        for stream, sequences in sequences_by_stream.items():
            if len(sequences) > _MAX_SINGLE_READS and max(sequences) - min(sequences) < _SPARSE * len(sequences):
                self._read(stream, sequences)

    def _read(self, stream: str, sequences: set[int]) -> None:
        read: dict[tuple[str, int], JsonObject] = {}
        requested = pa.array(sorted(sequences), pa.int64())
        try:
            reader = PullReader(self._connection, Range(stream, min(sequences), max(sequences) + 1))
            for batch in reader.batches():
                chosen = batch.filter(pc.is_in(batch.column("offset"), value_set=requested))
                read |= {(stream, row["offset"]): row for row in rows_of(chosen)}
        except StreamError as failure:
            if failure.code not in (_FORBIDDEN, _GONE):
                raise
            # A client that may not read the stream may be permitted to get single messages.
            return
        self._rows |= read
        self._complete.add(stream)

    def original(self, record: SampleRecord) -> SampleRecord | None:
        """Return the record from its stream; None if it is deleted, or the stream is another one now."""
        if record.stream is None or record.offset is None or not self._is_there(record):
            return None
        row = self._rows.get((record.stream, record.offset))
        if row is None and record.stream not in self._complete:
            row = self._stored_message(record.stream, record.offset)
        if row is None or row["topic"] != record.topic:
            return None
        return replace(record_of(row, record.stream), identity=record.identity)

    def _is_there(self, record: SampleRecord) -> bool:
        """Return True if the record's stream is the one of this name now.

        A letter of an earlier release names no identity; it is older than a stream that was made after it.
        """
        assert record.stream is not None
        created = self._created.get(record.stream)
        if created is None:
            try:
                created = state_of(self._connection, record.stream).created
            except StreamError as failure:
                if failure.code not in (_FORBIDDEN, _GONE):
                    raise
                created = ""
            self._created[record.stream] = created
        if record.identity:
            return not created or Origin(record.stream, 0, record.identity).is_of(created)
        return (microseconds(created) or 0) <= (record.timestamp or LARGEST_SEQUENCE)

    def _stored_message(self, stream: str, sequence: int) -> JsonObject | None:
        try:
            return rows_of(stored_message(self._connection, stream, sequence))[0]
        except StreamError as failure:
            if failure.code not in (_FORBIDDEN, _GONE):
                raise
            return None


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
