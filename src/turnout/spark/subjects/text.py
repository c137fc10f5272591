"""Text as the server has it, in Spark: a string column's bytes, cut and split without loss.

A Spark string holds any bytes. Some functions (``split``, regular expressions) go through a Java string, which
replaces bytes that are not UTF-8; here such strings take a second way, as Latin-1, one character per byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.subjects.tokens import encode

_LATIN1 = "ISO-8859-1"


def literal(text: str) -> Column:
    """Return a text as a column; surrogate escapes become the bytes that they represent."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return from_bytes(F.lit(bytearray(encode(text))))
    return F.lit(text)


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """*body* of *value*, which is computed once: a column has no other way to name a part of itself."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def as_bytes(text: Column) -> Column:
    """Return the bytes of a string."""
    return text.cast("binary")


def from_bytes(data: Column) -> Column:
    """Return the string of bytes, which need not be UTF-8."""
    return data.cast("string")


def as_latin1(text: Column) -> Column:
    """Return a string with one character per byte of *text*."""
    return F.decode(as_bytes(text), _LATIN1)


def from_latin1(text: Column) -> Column:
    """Inverse of `as_latin1`."""
    return from_bytes(F.encode(text, _LATIN1))


def bytes_of(text: Column, start: int | Column, length: int | Column) -> Column:
    """*length* bytes of a string from byte *start*, counted from 1."""
    return from_bytes(F.substring(as_bytes(text), start, length))


def split_tokens(text: Column) -> Column:
    """Return the tokens of a subject, an array of strings."""
    whole = F.split(text, r"\.", -1)
    bytewise = F.transform(F.split(as_latin1(text), r"\.", -1), from_latin1)
    return F.when(F.is_valid_utf8(text), whole).otherwise(bytewise)


def join(parts: Sequence[Column | str]) -> list[Column | str]:
    """Parts with dots between them, neighbouring texts as one: each piece of a concatenation costs a copy."""
    merged: list[Column | str] = []
    for index, part in enumerate(parts):
        for piece in [".", part] if index else [part]:
            last = merged[-1] if merged else None
            if isinstance(piece, str) and isinstance(last, str):
                merged[-1] = last + piece
            else:
                merged.append(piece)
    return merged
