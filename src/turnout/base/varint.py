"""Numbers in 7 bits a byte, the lowest first: the varints of Protobuf, Avro and Kafka.

https://protobuf.dev/programming-guides/encoding/#varints
"""

from __future__ import annotations

from typing import Final

ONE_BYTE_VARINTS: Final = tuple(bytes((number,)) for number in range(128))
"""Varints of the numbers from 0 to 127."""


def varint(number: int) -> bytes:
    r"""Return the varint of a number from 0 on.

    >>> varint(1), varint(300)
    (b'\x01', b'\xac\x02')
    """
    if number < 128:
        return ONE_BYTE_VARINTS[number]
    if number < 16384:
        return bytes((number & 127 | 128, number >> 7))
    octets = bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def zigzag_varint(number: int) -> bytes:
    """Return the varint of a signed number of up to 64 bits, of which 0, -1, 1, -2 count as 0, 1, 2, 3.

    >>> [zigzag_varint(number).hex() for number in (0, -1, 1, 64)]
    ['00', '01', '02', '8001']
    """
    return varint((number << 1) ^ (number >> 63))
