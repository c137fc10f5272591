"""Original records of dead letters, read from their streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from turnout.deferred import pc
from turnout.engine.sample_records import SampleRecord
from turnout.errors import StreamError
from turnout.history.dead_letters import DeadLetter
from turnout.nats.wire import Connection, PullReader, Range, stored_message
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.routes.endpoints import KafkaSource
from turnout.runtime.endpoints import adapter_of
from turnout.untrusted import JsonObject

_FORBIDDEN, _GONE = 403, 404
_MAX_SINGLE_READS = 20
"""Maximum number of messages that are requested one by one."""
_FAR = 10_000
"""Maximum distance of Kafka offsets that one connection reads."""
_SPARSE = 150
"""Messages are requested one by one if at most one in this many is needed: a request takes as long as reading two
hundred."""


def originals(route: Route, letters: Sequence[DeadLetter]) -> list[SampleRecord]:
    """Return the record of each letter.

    A letter in NATS lacks the record's key (its message id) and its time, and of a large record the value: the
    record is read from the source's stream, or topic; if it was deleted there, only the letter remains.

    Raises:
        ConnectionLostError: the server of the source cannot be reached.
    """
    if letters and isinstance(route.source, KafkaSource):
        return _of_topics(route.source, [letter.record for letter in letters])
    if not letters or not route.source.streams:
        return [letter.record for letter in letters]
    with Connection.open(route.nats_source().connection) as connection:
        stored = _Stored(connection, [letter.record for letter in letters])
        return [stored.original(letter.record) or letter.record for letter in letters]


def _of_topics(source: KafkaSource, records: Sequence[SampleRecord]) -> list[SampleRecord]:
    """Return records as their partitions have them; deleted ones, or of other topics, as given."""
    offsets: dict[str, set[int]] = {}
    for record in records:
        if record.offset is not None and source.reads(record.topic):
            offsets.setdefault(f"{record.topic}:{record.partition}", set()).add(record.offset)
    found: dict[tuple[str, int], JsonObject] = {}
    if not offsets:
        return list(records)
    with adapter_of(source).history() as history:
        for stream in offsets.keys() & set(history.streams):
            bounds = history.bounds(stream)
            for start, end in _runs(offset for offset in offsets[stream] if bounds.first <= offset < bounds.next):
                for batch in history.read(stream, start, end):
                    chosen = batch.filter(pc.is_in(batch.column("offset"), value_set=pa.array(list(offsets[stream]))))
                    found |= {(stream, row["offset"]): row for row in _rows(chosen)}
    return [_of_row(found.get((f"{one.topic}:{one.partition}", one.offset or 0)), None) or one for one in records]


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges that have these offsets, without the larger gaps between them."""
    start = last = None
    for offset in sorted(offsets):
        if start is None or last is None or offset - last > _FAR:
            if start is not None and last is not None:
                yield start, last + 1
            start = offset
        last = offset
    if start is not None and last is not None:
        yield start, last + 1


def _of_row(row: JsonObject | None, stream: str | None) -> SampleRecord | None:
    if row is None:
        return None
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    position = row["partition"], row["offset"], row["timestamp"]
    return SampleRecord(row["topic"], row["value"], row["key"], headers, *position, stream)


class _Stored:
    """Stored messages of given records.

    If they are close together, their streams are read from the first to the last of them: requests for twenty thousand
    one by one took 12 s of processor time, of 21 for a redrive.
    """

    def __init__(self, connection: Connection, records: Sequence[SampleRecord]) -> None:
        self._connection = connection
        self._rows: dict[tuple[str, int], JsonObject] = {}
        self._complete: set[str] = set()
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
                read |= {(stream, row["offset"]): row for row in _rows(chosen)}
        except StreamError as failure:
            if failure.code not in (_FORBIDDEN, _GONE):
                raise
            # A client that may not read the stream may be permitted to get single messages.
            return
        self._rows |= read
        self._complete.add(stream)

    def original(self, record: SampleRecord) -> SampleRecord | None:
        """Return the record from its stream; None if it is deleted or replaced."""
        if record.stream is None or record.offset is None:
            return None
        row = self._rows.get((record.stream, record.offset))
        if row is None and record.stream not in self._complete:
            row = self._stored_message(record.stream, record.offset)
        # A stream of the same name may have been created again.
        if row is None or row["topic"] != record.topic:
            return None
        return _of_row(row, record.stream)

    def _stored_message(self, stream: str, sequence: int) -> JsonObject | None:
        try:
            return _rows(stored_message(self._connection, stream, sequence))[0]
        except StreamError as failure:
            if failure.code not in (_FORBIDDEN, _GONE):
                raise
            return None


def _rows(batch: ArrowBatch) -> list[JsonObject]:
    at = batch.schema.get_field_index("timestamp")
    rows: list[JsonObject] = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()
    return rows
