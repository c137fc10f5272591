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

from turnout.loops import loops_are_compiled
from turnout.loops.subjects import hash_longs
from turnout.subjects.random_numbers import BITS
from turnout.subjects.tokens import encode

SEED = 42
"""Seed of Spark's hash."""


def chained(*texts: str, seed: int = SEED) -> int:
    """Return the hash of some texts, as Spark's ``xxhash64`` has it for several columns; unsigned."""
    for text in texts:
        seed = xxhash.xxh64_intdigest(encode(text), seed)
    return seed


def draws_of(
    topics: Sequence[str], partitions: Sequence[int | None], offsets: Sequence[int | None]
) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each record, from topic, partition and offset; nulls are left out of the hash."""
    if not loops_are_compiled():
        digests = np.array(list(map(_digest, topics, partitions, offsets)), np.uint64)
    else:
        digests = _digests(topics, partitions, offsets)
    return (digests >> np.uint64(64 - BITS)).astype(np.float64) * 2.0**-BITS


def _digests(
    topics: Sequence[str], partitions: Sequence[int | None], offsets: Sequence[int | None]
) -> NDArray[np.uint64]:
    """Return the hash of each record by the loop."""
    seeds = np.fromiter(map(_begun, topics, partitions), np.uint64, len(topics))
    has_offset = np.array([offset is not None for offset in offsets], np.bool_)
    numbers = np.array([0 if offset is None else offset for offset in offsets], np.int64)
    hashes = np.empty(len(topics), np.int64)
    hash_longs(numbers, seeds.view(np.int64), hashes)
    return np.where(has_offset, hashes.view(np.uint64), seeds)


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
