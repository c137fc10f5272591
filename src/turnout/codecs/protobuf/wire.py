"""Protobuf's wire format: varints, tags and lengths (https://protobuf.dev/programming-guides/encoding/)."""

from __future__ import annotations

from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5

_ONE_BYTE_VARINTS: Final = tuple(bytes((number,)) for number in range(128))
_BITS: Final = (1 << 64) - 1


def varint(number: int) -> bytes:
    r"""Return the varint of a number from 0 to 2**64 - 1.

    >>> varint(1), varint(300)
    (b'\x01', b'\xac\x02')
    """
    if number < 128:
        return _ONE_BYTE_VARINTS[number]
    if number < 16384:
        return bytes((number & 127 | 128, number >> 7))
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def signed_varint(number: int) -> bytes:
    """Return the varint of a signed number of up to 64 bits, in two's complement.

    >>> len(signed_varint(-1))
    10
    """
    return varint(number & _BITS)


def zigzag(number: int) -> int:
    """Return the number that Protobuf writes for a signed one: 0, -1, 1, -2 become 0, 1, 2, 3.

    >>> [zigzag(number) for number in (0, -1, 1, -2)]
    [0, 1, 2, 3]
    """
    return (number << 1) ^ (number >> 63)


def tag(number: int, wire_type: int) -> bytes:
    r"""Return the tag of a field.

    >>> tag(1, LENGTH)
    b'\n'
    """
    return varint(number << 3 | wire_type)


def delimited(prefix: bytes, body: bytes) -> bytes:
    """Return bytes with their length before them, behind the tag *prefix*."""
    length = len(body)
    return prefix + (_ONE_BYTE_VARINTS[length] if length < 128 else varint(length)) + body
