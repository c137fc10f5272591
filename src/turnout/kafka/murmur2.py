"""Hash of Kafka's Java client, by which it chooses the partition of a key."""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash of some bytes, as ``Utils.murmur2`` does, without its sign.

    >>> murmur2(b"foobar") - (1 << 32)
    -790332482
    """
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_of(data: bytes, partitions: int) -> int:
    """Return the partition that Java's client chooses for a key.

    >>> partition_of(b"foobar", 1000)
    166
    """
    return (murmur2(data) & 0x7FFFFFFF) % partitions
