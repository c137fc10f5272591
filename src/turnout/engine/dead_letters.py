"""A dead letter: the record as it was read, with the reason in Connect's context headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.records import Failure, Headers
from turnout.records.headers import ARROW

__all__ = ["context_headers", "dead_headers"]


def context_headers(
    failure: Failure | None, topic: str | None, partition: int | None, offset: int | None, *, name: str
) -> Iterator[tuple[str, str]]:
    """Connect's ``__connect.errors.*`` headers of one record; what is not known is left out.

    Args:
        failure: why it is a dead letter; None for one that no subscription took.
        topic: of the record as it was consumed.
        partition: likewise.
        offset: likewise.
        name: the connector's, here the route's, name.
    """
    values: Mapping[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "connector.name": name or None,
        # A route is one task to Connect, however many Spark makes of it.
        "task.id": 0,
        "stage": failure and failure.stage,
        "class.name": failure and failure.class_name,
        "exception.class.name": failure and failure.exception,
        "exception.message": failure and failure.message,
        # The first line of Java's trace. No Java exception was thrown, so there are no others.
        "exception.stacktrace": failure and f"{failure.exception}: {failure.message}",
    }
    return ((f"__connect.errors.{key}", str(value)) for key, value in values.items() if value is not None)


def dead_headers(
    consumed: Any, rows: Sequence[int], failures: Mapping[int, Failure], *, name: str, context: bool
) -> Any:
    """The headers of the dead letters of a batch, as Arrow lists.

    Args:
        consumed: the record batch as it was read.
        rows: of the dead letters.
        failures: row → why.
        name: the route's name.
        context: whether to add the reason.
    """
    chosen = consumed.take(pa.array(rows, pa.int64()))
    names = chosen.schema.names
    headers = Headers.of_arrow(chosen.column("headers")) if "headers" in names else Headers(len(rows))
    if not context:
        return headers.to_arrow(np.arange(len(rows)))
    places = [chosen.column(part).to_pylist() if part in names else [None] * len(rows) for part in _PLACE]
    for at, (row, topic, partition, offset) in enumerate(zip(rows, *places, strict=True)):
        for header, text in context_headers(failures.get(row), topic, partition, offset, name=name):
            headers.append(np.array([at], np.intp), header, None, [text])
    headers_column = headers.to_arrow(np.arange(len(rows)))
    assert headers_column.type.equals(ARROW)
    return headers_column


_PLACE = ("topic", "partition", "offset")
