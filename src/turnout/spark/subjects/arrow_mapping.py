"""Table of mappings as an Arrow function, for tables whose expression is too large for Spark's optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from turnout.spark.subjects.random_numbers import draw_of
from turnout.spark.subjects.text import as_bytes, from_bytes
from turnout.subjects.arrays import Mapper
from turnout.subjects.mapping import MappingProgram, MappingTable
from turnout.subjects.tokens import decode, encode

# Terms of an expression, each a handful of nodes. On one core 350 are planned and compiled within 8 s, 700 in 10,
# 1,400 in 22, 3,000 in 50, and 6,000 exceed a driver of 1 GB.
_MOST_TERMS = 400


def is_too_large(program: MappingProgram) -> bool:
    """Return True if the expression of a table has more terms than the optimizer can take.

    The tokens of each shape of source are compared, and each function of each form of destination is a branch.
    """
    sources = sum(len(shape.kinds) for shape in program.shapes)
    return sources + sum(1 + len(form.functions) for form in program.forms) > _MOST_TERMS


def mapped_in_python(table: MappingTable, subject: Column, cluster: str | None, bits: Column) -> Column:
    """Return the mapped subjects as `turnout.subjects.Mapper` gives them, with the same draws as the expression has."""
    function = cast("Any", arrow_udf)(_mapping(table, cluster), "binary")
    return from_bytes(function(as_bytes(subject), draw_of(bits)))


def _mapping(table: MappingTable, cluster: str | None) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Build the function that a Python worker calls for each batch of rows."""
    mappers: list[Mapper] = []

    def mapped(subjects: pa.Array, draws: pa.Array) -> pa.Array:
        if not mappers:
            # Made where it is used: its cache of subjects is not sent to workers.
            mappers.append(Mapper(table, cluster))
        encoded = subjects.to_numpy(zero_copy_only=False)
        texts = [decode(data) for data in encoded if data is not None]
        chances = draws.filter(subjects.is_valid()).to_numpy(zero_copy_only=False)
        found = iter(mappers[0].apply(texts, lambda indexes: chances[np.array(indexes, dtype=np.intp)]))
        results: list[str | None] = [None if data is None else next(found) for data in encoded]
        return pa.array([None if result is None else encode(result) for result in results], pa.binary())

    mapped.__annotations__ = {"subjects": pa.Array, "draws": pa.Array, "return": pa.Array}
    return mapped
