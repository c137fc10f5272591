"""A frame through a function over its Arrow batches, without pandas."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """Apply *function* to each partition's batches.

    It is `DataFrame.mapInArrow`, which requires pandas to be installed, imports it (0.65 s) and does not use it. Where
    a frame is not of the JVM beside this process, as with Spark Connect, the original is called.
    """
    java = getattr(frame, "_jdf", None)
    if java is None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            return frame.mapInArrow(function, schema)
    udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[frame[name] for name in frame.columns])
    # What `DataFrame.mapInArrow` itself does behind its import of pandas; no public way leads past that.
    return DataFrame(java.mapInArrow(column._jc, False, None), frame.sparkSession)  # noqa: SLF001
