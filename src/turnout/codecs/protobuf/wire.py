"""Protobuf's wire format: varints, tags and lengths (https://protobuf.dev/programming-guides/encoding/)."""

from __future__ import annotations

from typing import Final

from turnout.base.varint import ONE_BYTE_VARINTS, varint

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5

_BITS: Final = (1 << 64) - 1


def signed_varint(number: int) -> bytes:
    """Return the varint of a signed number of up to 64 bits, in two's complement.

    >>> len(signed_varint(-1))
    10
    """
    return varint(number & _BITS)


def tag(number: int, wire_type: int) -> bytes:
    r"""Return the tag of a field.

    >>> tag(1, LENGTH)
    b'\n'
    """
    return varint(number << 3 | wire_type)


def delimited(prefix: bytes, body: bytes) -> bytes:
    """Return bytes with their length before them, behind the tag *prefix*."""
    length = len(body)
    return prefix + (ONE_BYTE_VARINTS[length] if length < 128 else varint(length)) + body
