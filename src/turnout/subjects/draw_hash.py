"""Vectorised draws for many records: Spark's ``xxhash64`` of topic, partition and offset.

XXH64 with seed 42, each part hashed with the hash of those before it as its seed: a record keeps its draw for ever, in
the engine, in Spark's columns (`turnout.spark.subjects.random_numbers`) and in a retried micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import xxhash
from numpy.typing import NDArray

from turnout.subjects.random_numbers import BITS
from turnout.subjects.tokens import encode

SEED = 42
"""Seed of Spark's hash."""

_MAX_LISTED_DRAWS = 32
"""Number of records up to which draws are computed one by one."""

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)


def chained(*texts: str, seed: int = SEED) -> int:
    """Return the hash of some texts, as Spark's ``xxhash64`` has it for several columns; unsigned."""
    for text in texts:
        seed = xxhash.xxh64_intdigest(encode(text), seed)
    return seed


def draws_of(
    topics: Sequence[str], partitions: Sequence[int | None], offsets: Sequence[int | None]
) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each record, from topic, partition and offset; nulls are left out of the hash."""
    if len(topics) <= _MAX_LISTED_DRAWS:
        digests = list(map(_digest, topics, partitions, offsets))
        return np.array([digest >> (64 - BITS) for digest in digests], np.float64) * 2.0**-BITS
    begun = np.fromiter(map(_begun, topics, partitions), np.uint64, len(topics))
    has_offset = np.array([offset is not None for offset in offsets], np.bool_)
    numbers = np.array([0 if offset is None else offset for offset in offsets], np.int64)
    hashes = np.where(has_offset, _hash_longs(numbers.view(np.uint64), begun), begun)
    return (hashes >> np.uint64(64 - BITS)).astype(np.float64) * 2.0**-BITS


def _digest(topic: str, partition: int | None, offset: int | None) -> int:
    """Return the hash of one record's topic, partition and offset."""
    seed = _begun(topic, partition)
    return seed if offset is None else xxhash.xxh64_intdigest(offset.to_bytes(8, "little", signed=True), seed)


@lru_cache(maxsize=65_536)
def _begun(topic: str, partition: int | None) -> int:
    """Return the hash of a record's topic and partition."""
    seed = chained(topic)
    if partition is None:
        return seed
    return xxhash.xxh64_intdigest(int(partition).to_bytes(4, "little", signed=True), seed)


def _rotated(value: NDArray[np.uint64], by: int) -> NDArray[np.uint64]:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


def _hash_longs(values: NDArray[np.uint64], seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """XXH64 of the 8 bytes of each number."""
    state = seeds + _PRIME_5 + np.uint64(8)
    state ^= _rotated(values * _PRIME_2, 31) * _PRIME_1
    state = _rotated(state, 27) * _PRIME_1 + _PRIME_4
    state ^= state >> np.uint64(33)
    state *= _PRIME_2
    state ^= state >> np.uint64(29)
    state *= _PRIME_3
    return state ^ (state >> np.uint64(32))
