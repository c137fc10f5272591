"""``partition(n, …)`` in Spark: FNV-1a with 32 bits over the bytes of a string."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.subjects.text import as_latin1
from turnout.subjects._fnv import OFFSET, PRIME

__all__ = ["fnv1a"]


def fnv1a(text: Column) -> Column:
    """The hash of a string's bytes, a long from 0 to 2**32 - 1. See docs/decisions/0002 for why in this way."""
    is_ascii = F.is_valid_utf8(text) & (F.octet_length(text) == F.char_length(text))
    characters = F.split(F.when(is_ascii, text).otherwise(as_latin1(text)), "")

    def step(state: Column, character: Column) -> Column:
        mixed = state.bitwiseXOR(F.ascii(character).cast("long"))
        return (mixed * F.lit(PRIME)).bitwiseAND(F.lit(2**32 - 1))

    # The empty string splits into one empty piece, which must not count as a byte.
    hashed = F.aggregate(characters, F.lit(OFFSET).cast("long"), step)
    return F.when(F.octet_length(text) == 0, F.lit(OFFSET).cast("long")).otherwise(hashed)
