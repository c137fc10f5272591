"""Confluent's message indexes: which message of a schema's file a value is, before the message itself.

A number of indexes, then the indexes, as zigzag varints: of the messages of the file, then of those inside of each. One
zero byte stands for the first message (``io.confluent.kafka.schemaregistry.protobuf.MessageIndexes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnout.errors import RecordError
from turnout.varint import zigzag_varint

FIRST: Final = (0,)
"""Indexes of a file's first message."""

_MAX_DEPTH: Final = 32
"""Messages inside one another, as protoc allows them."""

_MAX_VARINT_BYTES: Final = 5
"""Bytes of a varint of 32 bits."""


def read_indexes(content: bytes, start: int) -> tuple[tuple[int, ...], int]:
    r"""Return the indexes that begin at a byte, and the byte behind them.

    Raises:
        RecordError: there are none.

    >>> read_indexes(b"\x00\x08\x01", 0), read_indexes(b"\x04\x02\x00\x08", 0)
    (((0,), 1), ((1, 0), 3))
    """
    count, at = _number(content, start)
    if count == 0:
        return FIRST, at
    if not 0 < count <= _MAX_DEPTH:
        raise RecordError(f"expected at most {_MAX_DEPTH} message indexes at byte {start}, found {count}")
    indexes = []
    for _ in range(count):
        index, at = _number(content, at)
        indexes.append(index)
    return tuple(indexes), at


def write_indexes(indexes: Sequence[int]) -> bytes:
    r"""Return the bytes of message indexes.

    >>> write_indexes((0,)), write_indexes((1, 0))
    (b'\x00', b'\x04\x02\x00')
    """
    if tuple(indexes) == FIRST:
        return b"\0"
    return b"".join(zigzag_varint(number) for number in (len(indexes), *indexes))


def _number(content: bytes, start: int) -> tuple[int, int]:
    """Return a zigzag varint and the byte behind it."""
    number = 0
    for at, octet in enumerate(content[start : start + _MAX_VARINT_BYTES]):
        number |= (octet & 127) << (7 * at)
        if octet < 128:
            return (number >> 1) ^ -(number & 1), start + at + 1
    raise RecordError(f"expected a message index at byte {start}, found {content[start : start + _MAX_VARINT_BYTES]!r}")
