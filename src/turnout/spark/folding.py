"""Fixed columns computed once, while a chain is compiled: what a transform makes of a schema's default."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import Column, SparkSession

__all__ = ["fold"]


def fold(*columns: Column) -> tuple[Any, ...]:
    """The values of columns that read no row; dates and timestamps as epoch milliseconds."""
    session = SparkSession.active()
    row = session.range(1).select(*[column.alias(f"c{at}") for at, column in enumerate(columns)]).collect()[0]
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value.astimezone(UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days * 86_400_000
    return bytes(value) if isinstance(value, bytearray) else value
