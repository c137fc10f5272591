"""A dead letter: the record as it was read, with the reason in Connect's context headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from turnout.engine.headers import HeaderRules, without
from turnout.engine.origin import origins
from turnout.engine.reading import Consumed
from turnout.engine.seal import SEAL, seal
from turnout.records import Failure, Headers
from turnout.records.headers import ARROW
from turnout.routes import Route

if TYPE_CHECKING:
    from turnout.engine.undelivered import Undelivered

CONTEXT: Final = "__connect.errors."
"""Prefix of Connect's context headers."""

ORIGIN: Final = "__turnout.origin"
"""The header with the record's place, as in message ids. It is the first that the route adds: what stands before it
came with the record."""

SUBSCRIPTION: Final = "__turnout.subscription"
"""The header with the id of the subscription that a delivery was for."""

DESTINATION: Final = "__turnout.destination"
"""The header with the destination that a delivery could not reach, control characters escaped."""

LEFT_OUT: Final = "__turnout.headers.left.out"
"""The header that names those of the record's own that a dead letter could not be written with."""

_LONGEST = 10_000
"""How many characters of a text a header of ours holds."""


def context_headers(
    failure: Failure | None, topic: str | None, partition: int | None, offset: int | None, *, name: str
) -> Iterator[tuple[str, str]]:
    """Return Connect's ``__connect.errors.*`` headers of one record; unknown facts are left out.

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
    return ((f"{CONTEXT}{key}", str(value)) for key, value in values.items() if value is not None)


def dead_headers(
    route: Route, rules: HeaderRules, consumed: Consumed, rows: Sequence[int], failures: Mapping[int, Failure]
) -> Any:
    """The headers of the dead letters of a batch, as Arrow lists.

    Args:
        route: whose dead letters they are, and whether they say why.
        rules: which headers can be written.
        consumed: the records as they were read.
        rows: of the dead letters.
        failures: row → why.
    """
    return _headers(route, rules, consumed, rows, [failures.get(row) for row in rows], [()] * len(rows))


def delivery_headers(route: Route, rules: HeaderRules, consumed: Consumed, undelivered: Sequence[Undelivered]) -> Any:
    """Return the headers of dead letters for single deliveries: the reason, the subscription and the destination."""
    more = [
        [
            *([(SUBSCRIPTION, delivery.subscription)] if delivery.subscription is not None else []),
            (DESTINATION, delivery.destination),
        ]
        for delivery in undelivered
    ]
    rows = [delivery.row for delivery in undelivered]
    return _headers(route, rules, consumed, rows, [delivery.failure for delivery in undelivered], more)


def _headers(
    route: Route,
    rules: HeaderRules,
    consumed: Consumed,
    rows: Sequence[int],
    failures: Sequence[Failure | None],
    more: Sequence[Iterable[tuple[str, str]]],
) -> Any:
    """Return the records' headers without unwritable ones, followed by the reasons and the seal."""
    chosen = consumed.batch.take(pa.array(rows, pa.int64()))
    names = chosen.schema.names
    column = Headers.of_arrow(chosen.column("headers")) if "headers" in names else Headers(len(rows))
    everything = np.arange(len(rows))
    arrow = column.to_arrow(everything)
    bad = rules.unfit(arrow)
    if bad is not None:
        column = Headers.of_arrow(without(arrow, bad))
    if route.dead_letter is not None and route.dead_letter.context_headers:
        places_of = origins(chosen).to_pylist()
        places = [chosen.column(part).to_pylist() if part in names else [None] * len(rows) for part in _PLACE]
        for at, (failure, topic, partition, offset) in enumerate(zip(failures, *places, strict=True)):
            context = context_headers(failure, topic, partition, offset, name=route.name)
            for header, text in ((ORIGIN, places_of[at] or ""), *context, *more[at]):
                column.append(np.array([at], np.intp), header, None, [_on_one_line(text)])
        for at, text in (rules.left_out(arrow, bad) if bad is not None else {}).items():
            column.append(np.array([at], np.intp), LEFT_OUT, None, [_on_one_line(text)])
        if route.dead_letter.secret is not None:
            values = [consumed.values[row] for row in rows]
            column.append(everything, SEAL, None, _seals(route.dead_letter.secret, column.to_arrow(everything), values))
    elif bad is None:
        return arrow
    headers_column = column.to_arrow(everything)
    assert headers_column.type.equals(ARROW)
    return headers_column


def _seals(secret: str, headers: Any, values: Sequence[bytes | None]) -> list[str]:
    """The seal of each letter."""
    return [
        seal(secret, [(header["key"], header["value"]) for header in pairs], value)
        for pairs, value in zip(headers.to_pylist(), values, strict=True)
    ]


def _on_one_line(text: str) -> str:
    """Return a text that fits a header of every sink: control characters escaped, length bounded."""
    line = text.encode("utf-8", "backslashreplace").decode()
    if not line.isprintable():
        line = "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode() for character in line
        )
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


_PLACE = ("topic", "partition", "offset")
