"""The mapping functions on columns: the same table as ``turnout.subjects.functions``.

Arguments are columns, so that one expression serves thousands of mappings whose arguments are data.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.subjects.text import as_latin1, bytes_of, from_latin1, split_tokens

# One well-formed UTF-8 sequence, or else one byte, of a string that is read as Latin-1.
_ONE_CHARACTER = (
    "[\\x00-\\x7F]|[\\xC2-\\xDF][\\x80-\\xBF]|\\xE0[\\xA0-\\xBF][\\x80-\\xBF]"
    "|[\\xE1-\\xEC\\xEE\\xEF][\\x80-\\xBF]{2}|\\xED[\\x80-\\x9F][\\x80-\\xBF]"
    "|\\xF0[\\x90-\\xBF][\\x80-\\xBF]{2}|[\\xF1-\\xF3][\\x80-\\xBF]{3}|\\xF4[\\x80-\\x8F][\\x80-\\xBF]{2}"
    "|[\\x80-\\xFF]"
)


def _split_from_left(token: Column, number: Column) -> Column:
    return F.concat(bytes_of(token, F.lit(1), number), F.lit("."), bytes_of(token, number + 1, F.octet_length(token)))


def _split_from_right(token: Column, number: Column) -> Column:
    head = F.octet_length(token) - number
    return F.concat(bytes_of(token, F.lit(1), head), F.lit("."), bytes_of(token, head + 1, number))


def _slices(token: Column, start: Column, size: Column) -> Column:
    starts = F.sequence(start, F.octet_length(token) - 1, size)
    return F.array_join(F.transform(starts, lambda at: bytes_of(token, at + 1, size)), ".")


def _slice_from_left(token: Column, size: Column) -> Column:
    return _slices(token, F.lit(0), size)


def _slice_from_right(token: Column, size: Column) -> Column:
    head = F.octet_length(token) % size
    front = F.when(head > 0, F.concat(bytes_of(token, F.lit(1), head), F.lit("."))).otherwise(F.lit(""))
    return F.concat(front, _slices(token, head, size))


def _left_part(token: Column, number: Column) -> Column:
    return bytes_of(token, F.lit(1), number)


def _right(token: Column, number: Column) -> Column:
    return bytes_of(token, F.octet_length(token) - number + 1, number)


def _longer(apply: Callable[[Column, Column], Column]) -> Callable[[Column, Column], Column]:
    """Return a cut that leaves tokens alone which are not longer than the number."""
    return lambda token, number: F.when(F.octet_length(token) > number, apply(token, number)).otherwise(token)


CUTS: dict[str, Callable[[Column, Column], Column]] = {
    "splitfromleft": _longer(_split_from_left),
    "splitfromright": _longer(_split_from_right),
    "slicefromleft": _longer(_slice_from_left),
    "slicefromright": _longer(_slice_from_right),
    "left": _longer(_left_part),
    "right": _longer(_right),
}
"""Functions of a token and a number above 0, by name."""


def split(token: Column, delimiter: Column | None) -> Column:
    """Compute ``split``: cut at *delimiter*, or between characters if it is None.

    Tokens have no dots, so the delimiter is first replaced by one. Empty pieces vanish, except that two
    delimiters at the start leave one empty token before the rest, as in the server.
    """
    if delimiter is None:
        whole = F.array_join(F.split(token, ""), ".")
        bytewise = from_latin1(F.array_join(F.regexp_extract_all(as_latin1(token), F.lit(_ONE_CHARACTER), 0), "."))
        return F.when(F.is_valid_utf8(token), whole).otherwise(bytewise)
    dotted = F.replace(token, delimiter, F.lit("."))
    pieces = F.array_join(F.filter(split_tokens(dotted), lambda piece: piece != ""), ".")
    quirk = dotted.startswith("..") & (pieces != "")
    general = F.when(quirk, F.concat(F.lit("."), pieces)).otherwise(pieces)
    return F.when(F.contains(dotted, F.lit("..")), general).otherwise(F.btrim(dotted, F.lit(".")))
