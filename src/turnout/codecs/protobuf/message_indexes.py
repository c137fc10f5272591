"""Confluent's message indexes: which message of a schema's file a value is, before the message itself.

A number of indexes, then the indexes, as zigzag varints: of the messages of the file, then of those inside of each. One
zero byte stands for the first message (``io.confluent.kafka.schemaregistry.protobuf.MessageIndexes``). Apicurio's
serializers write the message's name there (``io.apicurio.registry.serde.protobuf.ref.RefOuterClass.Ref``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnout.base.varint import zigzag_varint
from turnout.errors import RecordError

FIRST: Final = (0,)
"""Indexes of a file's first message."""

_MAX_DEPTH: Final = 32
"""Messages inside one another, as protoc allows them."""

_MAX_VARINT_BYTES: Final = 5
"""Bytes of a varint of 32 bits."""

_NAME_FIELD: Final = 0x0A
"""Tag of the only field of Apicurio's ``Ref``, the name."""

_TWO_LETTERS: Final = 4
"""Size of a ``Ref`` with a name of two letters."""


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


def read_name(content: bytes, start: int) -> str | None:
    r"""Return the name that Apicurio's serializers write instead of indexes; None for indexes.

    Most names would be no indexes, or at least 3 of which the third is beyond 32, more than files have. A name of two
    letters could be two indexes, and is read as such.

    >>> read_name(b"\x06\n\x04Item\x08\x04", 0), read_name(b"\x04\n\x02Bd", 0)
    ('Item', None)
    """
    size = content[start] if start < len(content) else 0
    if content[start + 1 : start + 3] != bytes((_NAME_FIELD, max(size - 2, 0))) or size == _TWO_LETTERS:
        return None
    name = content[start + 3 : start + 1 + size].decode("latin-1")
    return name if size < 128 and len(name) == size - 2 and name.isascii() and name.isidentifier() else None


def write_name(name: str) -> bytes:
    r"""Return the bytes of a message's name, as Apicurio's serializers write it.

    >>> write_name("Item")
    b'\x06\n\x04Item'
    """
    text = name.encode()
    return bytes((len(text) + 2, _NAME_FIELD, len(text))) + text


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
