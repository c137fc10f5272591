"""Chance, made repeatable: one number in [0, 1) gives every choice of a message.

A *draw* has 53 random bits. The weighted choice reads its leading part; each ``random(n)`` of a destination
reads a hash of all its bits and of the function's place, so that the choices do not follow one another.
The hash is XXH64 as Spark's ``xxhash64`` computes it for longs: the same draw gives the same subject in both.
"""

from __future__ import annotations

import random

BITS = 53
"""How many bits a draw has: all that a float holds."""

_MASK = 2**64 - 1
_PRIME_1 = 0x9E3779B185EBCA87
_PRIME_2 = 0xC2B2AE3D27D4EB4F
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63
_PRIME_5 = 0x27D4EB2F165667C5
_SPARK_SEED = 42


def new_draw() -> float:
    """A draw from the process's random numbers."""
    return random.random()  # noqa: S311 - a choice of destination is no secret


def check_draw(draw: float) -> float:
    """The draw itself.

    Raises:
        ValueError: when it is not in [0, 1).
    """
    if not 0.0 <= draw < 1.0:
        raise ValueError(f"a draw is a number from 0 up to, not including, 1; found {draw!r}")
    return draw


def percent(draw: float) -> int:
    """The number from 0 to 99 that the weights are compared with."""
    return int(draw * 100)


def random_below(draw: float | None, place: int, number: int) -> int:
    """Return the value of ``random(number)`` at token *place* of a destination; 0 where *number* is 0.

    A negative number counts as its absolute value, as in the server. Without a draw every call makes a draw of its own.
    """
    if number == 0:
        return 0
    if draw is None:
        return int(new_draw() * abs(number))
    bits = int(draw * 2**BITS)
    value = _xxh64(place, _xxh64(bits, _SPARK_SEED))
    # Signed, as a long is: the remainder must be the same in Spark.
    return (value - 2**64 if value >= 2**63 else value) % abs(number)


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _xxh64(value: int, seed: int) -> int:
    """XXH64 of the 8 bytes of one long."""
    state = (seed + _PRIME_5 + 8) & _MASK
    state ^= (_rotate((value * _PRIME_2) & _MASK, 31) * _PRIME_1) & _MASK
    state = (_rotate(state, 27) * _PRIME_1 + _PRIME_4) & _MASK
    state = ((state ^ (state >> 33)) * _PRIME_2) & _MASK
    state = ((state ^ (state >> 29)) * _PRIME_3) & _MASK
    return state ^ (state >> 32)
