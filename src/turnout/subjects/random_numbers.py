"""Repeatable random numbers: one number in [0, 1) decides all random choices of a message.

A *draw* has 53 random bits. The choice of a weighted destination (`mapping`) reads its leading part; each
``random(n)`` of a destination reads a hash of all its bits and of the function's token index, so that the choices do
not follow one another. The hash is XXH64 as Spark's ``xxhash64`` computes it for longs: the same draw gives the same
subject in both.
"""

from __future__ import annotations

import random

from xxhash import xxh64_intdigest

OFFSET = 2166136261
PRIME = 16777619

_MASK = 0xFFFFFFFF


def fnv1a(data: bytes) -> int:
    """Return the hash of *data*, from 0 to 2**32 - 1."""
    value = OFFSET
    for byte in data:
        value = ((value ^ byte) * PRIME) & _MASK
    return value


BITS = 53
"""Bits of a draw: all that a float holds."""

_SPARK_SEED = 42


def new_draw() -> float:
    """Return a draw from the process's random numbers."""
    return random.random()  # noqa: S311 - a choice of destination is no secret


def check_draw(draw: float) -> float:
    """Return the draw itself.

    Raises:
        ValueError: when it is not in [0, 1).
    """
    if not 0.0 <= draw < 1.0:
        raise ValueError(f"a draw is a number from 0 up to, not including, 1; found {draw!r}")
    return draw


def percent(draw: float) -> int:
    """Return the number from 0 to 99 that the weights are compared with."""
    return int(draw * 100)


def random_below(draw: float | None, token_index: int, number: int) -> int:
    """Return the value of ``random(number)`` at token *token_index* of a destination; 0 where *number* is 0.

    A negative number counts as its absolute value, as in the server. Without a draw every call makes a draw of its own.

    Raises:
        ValueError: when the draw is not in [0, 1).
    """
    bits = 0 if draw is None else int(check_draw(draw) * 2**BITS)
    if number == 0:
        return 0
    if draw is None:
        return int(new_draw() * abs(number))
    value = _hash_long(token_index, _hash_long(bits, _SPARK_SEED))
    # Signed, as a long is: the remainder must be the same in Spark.
    return (value - 2**64 if value >= 2**63 else value) % abs(number)


def _hash_long(value: int, seed: int) -> int:
    """XXH64 of the 8 bytes of one long."""
    return xxh64_intdigest(value.to_bytes(8, "little"), seed)
