"""``partition(n, …)`` in Spark: FNV-1a with 32 bits over the bytes of a string, without a UDF.

FNV-1a needs the bytes as numbers, and Spark SQL has no function that gives them cheaply. But CRC-32 of four
bytes is one-to-one and linear: four table look-ups turn it back into the four bytes, as one number. So a key is
padded *in front* with zero bytes to a fixed length, which makes the hash straight-line arithmetic; a start value
that the padding's steps turn into FNV's own offset undoes the padding. docs/decisions/0002 has the figures.
"""

from __future__ import annotations

import zlib
from functools import cache

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.subjects.lookup import constant
from turnout.spark.subjects.text import as_bytes, as_latin1
from turnout.subjects.random_numbers import OFFSET, PRIME

STRAIGHT = 16
"""Keys of at most this many bytes are hashed by straight-line code, longer ones by a loop.

More would be faster for longer keys, but a generated method of more than 8,000 bytes of bytecode is never
compiled by the JVM, and everything in it then runs fifty times slower (seen with 16 and 32 side by side).
"""

_MASK = 2**32 - 1
_WORD = 4


def fnv1a(text: Column) -> Column:
    """Return the hash of a string's bytes, a long from 0 to 2**32 - 1; null for null.

    Spark shares the parts of this expression that repeat only where it is sure to evaluate them: keep it out of
    the branches of a CASE, or a row costs several times as much.
    """
    # greatest() skips nulls and, unlike coalesce(), is sure to evaluate every argument.
    return F.greatest(_straight(text), hash_by_loop(F.when(F.octet_length(text) > STRAIGHT, text)))


def _straight(text: Column) -> Column:
    """Return the hash of a string of at most `STRAIGHT` bytes; null for a longer one."""
    backwards = pow(PRIME, -1, _MASK + 1)
    starts = [OFFSET * pow(backwards, STRAIGHT - n, _MASK + 1) % (_MASK + 1) for n in range(STRAIGHT + 1)]
    # Past the end of the start values there is null, and so for longer keys.
    state = F.get(constant(starts, "array<bigint>"), F.octet_length(text))
    text_or_empty = F.coalesce(text, F.lit(""))
    zeros = F.substring(F.lit(bytearray(STRAIGHT)), F.lit(1), F.lit(STRAIGHT) - F.octet_length(text_or_empty))
    data = F.concat(zeros, as_bytes(text_or_empty))
    for word in range(0, STRAIGHT, _WORD):
        four = _number(F.substring(data, word + 1, _WORD))
        for shift in range(0, 8 * _WORD, 8):
            state = _step(state, F.shiftright(four, shift).bitwiseAND(F.lit(255)))
    return state


def _step(state: Column, byte: Column) -> Column:
    return (state.bitwiseXOR(byte) * F.lit(PRIME)).bitwiseAND(F.lit(_MASK))


def _number(four: Column) -> Column:
    """Four bytes as a number, the first one lowest: the inverse of their CRC-32."""
    crc = F.crc32(four)
    number: Column | None = None
    for index, table in enumerate(_inverse_tables()):
        byte = F.shiftright(crc, 8 * index).bitwiseAND(F.lit(255)).cast("int")
        # Never out of range; the coalesce declares it to Spark, which saves two thirds of the code.
        part = F.coalesce(F.get(constant(table, "array<bigint>"), byte), F.lit(0).cast("long"))
        number = part if number is None else number.bitwiseXOR(part)
    assert number is not None
    return number


@cache
def _inverse_tables() -> tuple[list[int], ...]:
    """For each byte of a CRC-32, what it contributes to the four bytes that have it."""
    empty_crc = zlib.crc32(bytes(_WORD))
    # Pairs of a CRC (less the constant part) and the word that has it, one pair per leading bit.
    pairs: dict[int, tuple[int, int]] = {}
    for bit in range(32):
        word = 1 << bit
        crc = zlib.crc32(word.to_bytes(_WORD, "little")) ^ empty_crc
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
    tables[0][:] = [word ^ inverse(empty_crc) for word in tables[0]]
    return tables


def hash_by_loop(text: Column) -> Column:
    """Return the hash of a string of any length, one character at a time."""
    is_ascii = F.is_valid_utf8(text) & (F.octet_length(text) == F.char_length(text))
    characters = F.split(F.when(is_ascii, text).otherwise(as_latin1(text)), "")
    start = F.lit(OFFSET).cast("long")
    hashed = F.aggregate(characters, start, lambda state, character: _step(state, F.ascii(character).cast("long")))
    # The empty string splits into one empty piece, which is no byte.
    return F.when(F.octet_length(text) == 0, start).otherwise(hashed)
