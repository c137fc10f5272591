"""Confluent's wire format: a zero byte, the schema's id in 4 bytes, and the payload; or the id in a header.

A header with a zero byte has an id, one with the byte 1 a GUID of 16 bytes; the value is the payload alone then
(``io.confluent.kafka.serializers.schema.id.SchemaId``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from turnout.base.deferred import np
from turnout.errors import RecordError
from turnout.records.types import ArrowArray, Binaries, RowIds

HEADER: Final = 5
"""Bytes before the payload."""

VALUE_HEADER: Final = "__value_schema_id"
KEY_HEADER: Final = "__key_schema_id"

_MAGIC: Final = 0
_MAGIC_GUID: Final = 1
_GUID_HEADER: Final = 17
_LONGEST_SHOWN: Final = 8
_header = struct.Struct(">bi").pack


class Framed(NamedTuple):
    """Column of framed values.

    Attributes:
        ids: ids of each value's schema; -1 where the frame is wrong.
        errors: index of each wrong value → the reason.
    """

    ids: RowIds
    errors: dict[int, RecordError]


def unframe(texts: Sequence[bytes]) -> Framed:
    """Return the schema id of each value; its payload begins at byte `HEADER`.

    >>> framed = unframe([bytes([0, 0, 0, 1, 0, 120]), b"text"])
    >>> framed.ids.tolist(), str(framed.errors[1])
    ([256, -1], "expected a zero byte and a schema id of 4 bytes, found 4 bytes: b'text'")
    """
    heads = np.frombuffer(b"".join([text[:HEADER].ljust(HEADER, b"\xff") for text in texts]), np.uint8)
    table = heads.reshape(-1, HEADER)
    ids = np.ascontiguousarray(table[:, 1:]).view(">i4").ravel().astype(np.int64)
    short = np.fromiter((len(text) < HEADER for text in texts), np.bool_, len(texts))
    wrong = np.flatnonzero((table[:, 0] != _MAGIC) | (ids < 0) | short)
    ids[wrong] = -1
    return Framed(ids, {index: _unframed(texts[index]) for index in wrong.tolist()})


def ids_of(values: Binaries) -> RowIds:
    """Return the schema id of each value of an Arrow array of bytes, -1 where there is no frame or no value.

    >>> import pyarrow as pa
    >>> ids_of(pa.array([bytes([0, 0, 0, 0, 7]), b"x", None], pa.binary())).tolist()
    [7, -1, -1]
    """
    count = len(values)
    if not count:
        return np.zeros(0, np.int64)
    offsets, content = _buffers(values)
    framed = np.diff(offsets) >= HEADER
    if values.null_count:
        framed &= np.asarray(values.is_valid())
    ids = np.full(count, -1, np.int64)
    heads = content[offsets[:-1][framed][:, None] + np.arange(HEADER)]
    found = np.ascontiguousarray(heads[:, 1:]).view(">i4").ravel().astype(np.int64)
    ids[framed] = np.where((heads[:, 0] == _MAGIC) & (found >= 0), found, -1)
    return ids


def _buffers(values: ArrowArray) -> tuple[RowIds, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    _, offsets, content = values.buffers()
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return starts, np.frombuffer(content if content is not None else b"", np.uint8)


def frame(schema_id: int, payloads: Sequence[bytes]) -> list[bytes]:
    r"""Return the payloads with the header of one schema.

    >>> frame(1, [b"x"])
    [b'\x00\x00\x00\x00\x01x']
    """
    head = _header(_MAGIC, schema_id)
    return [head + payload for payload in payloads]


def read_header(content: bytes) -> tuple[int | str, int]:
    """Return the id or the GUID of the schema that a header names, and the byte behind it.

    Raises:
        RecordError: it names none.

    >>> read_header(bytes([0, 0, 0, 1, 0])), read_header(bytes([1, *range(16)]))
    ((256, 5), ('00010203-0405-0607-0809-0a0b0c0d0e0f', 17))
    """
    if content[:1] == b"\0" and len(content) >= HEADER:
        return int.from_bytes(content[1:HEADER], "big"), HEADER
    if content[:1] == b"\1" and len(content) >= _GUID_HEADER:
        return str(UUID(bytes=content[1:_GUID_HEADER])), _GUID_HEADER
    raise RecordError(
        f"expected a header with the byte 0 and a schema id of 4 bytes, or the byte 1 and a GUID of 16, found "
        f"{len(content)} bytes: {content[:_LONGEST_SHOWN]!r}"
    )


def header_of(guid: str) -> bytes:
    """Return the content of the header that names a schema by its GUID.

    >>> read_header(header_of("00010203-0405-0607-0809-0a0b0c0d0e0f"))[0]
    '00010203-0405-0607-0809-0a0b0c0d0e0f'
    """
    return bytes((_MAGIC_GUID,)) + UUID(guid).bytes


def _unframed(text: bytes) -> RecordError:
    shown = text[:_LONGEST_SHOWN]
    return RecordError(f"expected a zero byte and a schema id of 4 bytes, found {len(text)} bytes: {shown!r}")
