"""Messages as rows: single ones that were looked up, in the columns of `turnout.nats.wire.records.SCHEMA`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from turnout.base.untrusted import JsonObject
from turnout.nats.protocol.headers import MESSAGE_ID
from turnout.nats.protocol.identity import StreamIdentity
from turnout.nats.wire.records import SCHEMA
from turnout.records.listed import STREAM_ID
from turnout.records.types import ArrowBatch


class Row(NamedTuple):
    """Message as a tuple, in the order of the columns."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: list[JsonObject] | None
    timestamp: int


def row(subject: str, sequence: int, value: bytes, headers: Sequence[tuple[str, bytes]], stored: str) -> Row:
    """Build the row of a message with its headers; *stored* is the server's storage time."""
    key = next((value for name, value in headers if name == MESSAGE_ID), None)
    pairs = [{"key": name, "value": value} for name, value in headers]
    return Row(subject, 0, sequence, key, value, pairs or None, _microseconds(stored))


def _microseconds(text: str) -> int:
    """An RFC 3339 time with up to nine digits behind the second, as microseconds since 1970.

    Raises:
        ValueError: when it is none.
    """
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp())
    return seconds * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def record_batch(rows: Sequence[Row]) -> ArrowBatch:
    """The rows as a record batch."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(SCHEMA)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def with_stream(batch: ArrowBatch, stream: str, identity: StreamIdentity | None = None) -> ArrowBatch:
    """Return the batch with an additional column ``stream``, in the form that a run reads.

    With the stream's identity there is a column more, with which origins begin: see `turnout.engine.message_ids`. A
    checkpoint of an earlier release has none in its ids.
    """
    batch = batch.append_column("stream", pa.repeat(pa.scalar(stream), batch.num_rows))
    if identity is None or not identity.token:
        return batch
    return batch.append_column(STREAM_ID, pa.repeat(pa.scalar(identity.label(stream)), batch.num_rows))
