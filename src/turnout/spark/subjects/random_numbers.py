"""Draws in Spark: the same numbers as in ``turnout.subjects.random_numbers``, from a hash of columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.errors import ConfigError, Mistake
from turnout.subjects.random_numbers import BITS


def draw_bits(seed: Sequence[Column | str], *, what: str) -> Column:
    """53 random bits that depend on the seed columns alone: a record keeps its choices when it is run again.

    Raises:
        ConfigError: when there is no seed.
    """
    if not seed:
        raise ConfigError([Mistake("seed", f"{what} makes random choices: name columns that identify a record")])
    return F.shiftrightunsigned(F.xxhash64(*seed), 64 - BITS)


def draw_of(bits: Column) -> Column:
    """Return the draw as the pure library takes it, a double in [0, 1)."""
    return bits.cast("double") * F.lit(2.0**-BITS)


def percent(bits: Column) -> Column:
    """Return the number from 0 to 99 that weights are compared with."""
    return (draw_of(bits) * F.lit(100.0)).cast("int")


def random_below(bits: Column, index: int | Column, number: Column) -> Column:
    """Return the value of ``random(number)`` at token *place* of a destination; *number* is above 0."""
    at = F.lit(index).cast("long") if isinstance(index, int) else index
    return F.pmod(F.xxhash64(bits, at), number.cast("long"))
