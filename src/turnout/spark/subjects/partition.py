"""``partition(n, …)`` in Spark: FNV-1a with 32 bits over the bytes of a string, without a UDF.

FNV-1a needs the bytes as numbers, and Spark SQL has no function that gives them cheaply. But CRC-32 of four
bytes is one-to-one and linear: four table look-ups turn it back into the four bytes, as one number. So a key is
padded *in front* with zero bytes to whole words and hashed a word at a time; a start value that the padding's steps
turn into FNV's own offset undoes the padding. docs/decisions/0002 has the figures.
"""

from __future__ import annotations

import zlib
from functools import cache

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.subjects.lookup import constant
from turnout.spark.subjects.text import as_bytes, let
from turnout.subjects._fnv import OFFSET, PRIME

__all__ = ["fnv1a"]

_MASK = 2**32 - 1
_WORD = 4


def fnv1a(text: Column) -> Column:
    """The hash of a string's bytes, a long from 0 to 2**32 - 1; null for null.

    Everything that is used twice is the variable of a lambda, so it is computed once wherever this expression
    stands, also inside a CASE, where Spark shares nothing.
    """
    return let(text, _hash)


def _hash(text: Column) -> Column:
    size = F.octet_length(text)
    padding = F.pmod(-size, F.lit(_WORD))
    zeros = F.substring(F.lit(bytearray(_WORD - 1)), F.lit(1), padding)
    backwards = pow(PRIME, -1, _MASK + 1)
    starts = [OFFSET * pow(backwards, count, _MASK + 1) % (_MASK + 1) for count in range(_WORD)]
    numbers = F.transform(_crcs(F.concat(zeros, as_bytes(text)), size), _number)
    hashed = F.aggregate(numbers, F.get(constant(starts, "array<bigint>"), padding), _four_steps)
    return F.when(size > 0, hashed).when(size == 0, F.lit(OFFSET).cast("long"))


def _crcs(data: Column, size: Column) -> Column:
    """The CRC-32 of each word of *data*, which has at least one byte and *size* without its padding."""
    places = F.sequence(F.lit(1), size, F.lit(_WORD))
    return let(data, lambda padded: F.transform(places, lambda at: F.crc32(F.substring(padded, at, F.lit(_WORD)))))


def _four_steps(state: Column, four: Column) -> Column:
    for shift in range(0, 8 * _WORD, 8):
        byte = F.shiftright(four, shift).bitwiseAND(F.lit(255))
        state = (state.bitwiseXOR(byte) * F.lit(PRIME)).bitwiseAND(F.lit(_MASK))
    return state


def _number(crc: Column) -> Column:
    """Four bytes as a number, the first one lowest: the inverse of their CRC-32."""
    number: Column | None = None
    for index, table in enumerate(_inverse_tables()):
        place = F.shiftright(crc, 8 * index).bitwiseAND(F.lit(255)).cast("int")
        # Never out of range; the coalesce tells Spark so, which makes for a third of the code.
        part = F.coalesce(F.get(constant(table, "array<bigint>"), place), F.lit(0).cast("long"))
        number = part if number is None else number.bitwiseXOR(part)
    assert number is not None
    return number


@cache
def _inverse_tables() -> tuple[list[int], ...]:
    """For each byte of a CRC-32, what it contributes to the four bytes that have it."""
    nothing = zlib.crc32(bytes(_WORD))
    # Pairs of a CRC (less the constant part) and the word that has it, one pair per leading bit.
    pairs: dict[int, tuple[int, int]] = {}
    for bit in range(32):
        word = 1 << bit
        crc = zlib.crc32(word.to_bytes(_WORD, "little")) ^ nothing
        while crc and crc.bit_length() in pairs:
            other_crc, other_word = pairs[crc.bit_length()]
            crc, word = crc ^ other_crc, word ^ other_word
        pairs[crc.bit_length()] = (crc, word)

    def inverse(crc: int) -> int:
        word = 0
        while crc:
            other_crc, other_word = pairs[crc.bit_length()]
            crc, word = crc ^ other_crc, word ^ other_word
        return word

    tables = tuple([inverse(byte << (8 * index)) for byte in range(256)] for index in range(_WORD))
    tables[0][:] = [word ^ inverse(nothing) for word in tables[0]]
    return tables
