"""Records of dead letters, as their streams of NATS still have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from turnout.base.deferred import pc
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject
from turnout.engine.sample_records import SampleRecord
from turnout.errors import StreamError
from turnout.nats.protocol.identity import Origin, microseconds
from turnout.nats.wire import Connection, PullReader, Range, stored_message
from turnout.nats.wire.positions import state_of
from turnout.runtime.endpoints.record_rows import record_of, rows_of

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
