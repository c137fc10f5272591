"""Lookup of text among thousands of keys by one expression: a hash table as a constant."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.errors import NotCompilableError
from turnout.spark.subjects.text import as_bytes, literal

_MAX_LISTED_NUMBERS = 8


def constant(value: object, ddl: str) -> Column:
    """Return a nested Python value as one constant: Spark folds the parsing of its JSON while it plans.

    Raises:
        NotCompilableError: when a text in it has bytes that are not UTF-8, which JSON cannot carry.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotCompilableError(value, "a subject that is not UTF-8 in a table of mappings") from None
    return F.from_json(F.lit(text), ddl)


def looked_up(key: Column, numbers: Mapping[str, int]) -> Column:
    """Return the number of a text in *numbers*; null without one.

    A few keys are compared in turn; more are spread over buckets by their CRC, so that the cost does not
    depend on how many there are.
    """
    if len(numbers) <= _MAX_LISTED_NUMBERS:
        mapped = F.lit(None).cast("int")
        for text, number in numbers.items():
            mapped = F.when(key == literal(text), F.lit(number)).otherwise(mapped)
        return mapped
    count = 1 << (len(numbers) - 1).bit_length()
    buckets: list[dict[str, int]] = [{} for _ in range(count)]
    for text, number in numbers.items():
        buckets[zlib.crc32(text.encode("utf-8", "surrogateescape")) & (count - 1)][text] = number
    table = constant(_null_where_empty(buckets), "array<map<string,int>>")
    bucket = F.get(table, F.crc32(as_bytes(key)).bitwiseAND(F.lit(count - 1)).cast("int"))
    return F.try_element_at(bucket, key)


def _null_where_empty(buckets: Sequence[dict[str, int]]) -> list[dict[str, int] | None]:
    return [bucket or None for bucket in buckets]
