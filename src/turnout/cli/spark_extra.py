"""Requirements of commands on Spark, and the messages if it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnout.errors import MissingExtraError


@contextmanager
def needs_spark() -> Iterator[None]:
    """Import what needs Spark in this block.

    Raises:
        MissingExtraError: it is not installed; any other module that is missing is raised as it is.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in ("pyspark", "pyarrow", "numpy"):
            raise
        raise MissingExtraError("spark", missing.name or "pyspark") from missing
