"""A dead letter: the record as it was read, with the reason in Connect's context headers.

A letter that is too large for its stream or topic loses its value in `Messages.emptied`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from turnout.base.deferred import pc
from turnout.engine.addresses import Addresses
from turnout.engine.failures import Rejection
from turnout.engine.message_ids import dead_suffix, origins, origins_of_topics, record_ids
from turnout.engine.messages import VALUE_DIGEST, VALUE_LEFT_OUT, Messages, record_columns
from turnout.engine.reading import Consumed
from turnout.engine.unfit_headers import CONNECT_PREFIX, TURNOUT_PREFIX, HeaderRules, without
from turnout.records import Failure, Headers
from turnout.records.header_column import ARROW
from turnout.records.listed import TOPIC_ID
from turnout.records.types import ArrowArray, ArrowBatch, Binaries
from turnout.routes import Route

SEAL: Final = "__turnout.seal"
"""The header with the seal."""

_NOT_SEALED: Final = frozenset({SEAL, VALUE_LEFT_OUT, VALUE_DIGEST})
"""Headers behind the seal: they may be cut if a server refuses a letter for its size."""

_VERSION: Final = "1"

HeaderPairs = Sequence[tuple[str, bytes | None]]


def seal(secret: str, headers: HeaderPairs, value: bytes | None) -> str:
    """Return the seal of a message.

    Args:
        secret: the route's.
        headers: in their order. Those that a server or a publisher adds (``Nats-*``) are not part of it, nor are blanks
            before a value, which NATS drops.
        value: None is written as an empty one. Where it was left out of a letter, a header has its digest.
    """
    mac = hmac.new(secret.encode(), digestmod="sha256")
    for part in _parts(headers):
        mac.update(len(part).to_bytes(8, "big"))
        mac.update(part)
    mac.update(_digest(headers, value or b""))
    return f"{_VERSION}:{mac.hexdigest()}"


def is_sealed(secret: str, headers: HeaderPairs, value: bytes | None, found: str | None) -> bool:
    """Return whether a message has its seal.

    Args:
        secret: as for `seal`.
        headers: likewise.
        value: likewise.
        found: the seal that the message brings.
    """
    return found is not None and hmac.compare_digest(seal(secret, headers, value).encode(), found.encode())


def _parts(headers: HeaderPairs) -> Iterable[bytes]:
    for name, value in headers:
        if name not in _NOT_SEALED and not name.lower().startswith("nats-"):
            yield name.encode("utf-8", "surrogatepass")
            yield (value or b"").lstrip(b" \t")


def _digest(headers: HeaderPairs, value: bytes) -> bytes:
    written = dict(headers)
    if not value and VALUE_LEFT_OUT in written:
        return (written.get(VALUE_DIGEST) or b"").lower()
    return hashlib.sha256(value).hexdigest().encode()


ORIGIN: Final = f"{TURNOUT_PREFIX}origin"
"""The header with the record's origin, and the id of its Kafka topic, as in message ids. It is the first that the route
adds: earlier headers are the record's own."""

SUBSCRIPTION: Final = f"{TURNOUT_PREFIX}subscription"
"""The header with the id of the subscription that a delivery was for."""

DESTINATION: Final = f"{TURNOUT_PREFIX}destination"
"""The header with the destination that a delivery could not reach, control characters escaped."""

LEFT_OUT: Final = f"{TURNOUT_PREFIX}headers.left.out"
"""The header that names those of the record's own that a dead letter could not be written with."""

_MAX_HEADER_CHARACTERS: Final = 10_000
"""Maximum length of a text in one of our headers, in characters."""

_POSITION: Final = ("topic", "partition", "offset")


def context_headers(
    failure: Failure | None, topic: str | None, partition: int | None, offset: int | None, *, name: str
) -> Iterator[tuple[str, str]]:
    """Return Connect's ``__connect.errors.*`` headers of one record; unknown facts are left out.

    Args:
        failure: why it is a dead letter; None for one that no subscription took.
        topic: topic of the record as it was consumed.
        partition: likewise.
        offset: likewise.
        name: the connector's, here the route's, name.
    """
    values: dict[str, str | int | None] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "connector.name": name or None,
        # A route is one task to Connect, whatever the number of Spark's tasks.
        "task.id": 0,
    }
    if failure is not None:
        values |= {
            "stage": failure.stage,
            "class.name": failure.class_name,
            "exception.class.name": failure.exception,
            "exception.message": failure.message,
            # The first line of Java's trace. No Java exception was thrown, so there are no others.
            "exception.stacktrace": f"{failure.exception}: {failure.message}",
        }
    return ((f"{CONNECT_PREFIX}{key}", str(value)) for key, value in values.items() if value is not None)


def dead_letters(
    route: Route, addresses: Addresses, rules: HeaderRules, consumed: Consumed, rejections: Sequence[Rejection]
) -> Messages:
    """Return a dead letter for each rejection: the record as it was read, and the reason in headers.

    Args:
        route: route of the dead letters; decides whether they have reasons.
        addresses: addresses of its sinks.
        rules: rules for headers.
        consumed: the records as they were read.
        rejections: rejections of a batch.
    """
    assert route.dead_letter is not None
    rows = [rejection.row for rejection in rejections]
    sink, topic = addresses.split(route.dead_letter.topic)
    suffixes = [
        dead_suffix(route.name, rejection.subscription or "", rejection.destination)
        if rejection.destination is not None
        else dead_suffix(route.name)
        for rejection in rejections
    ]
    ids = record_ids(consumed.batch).take(pa.array(rows, pa.int64()))
    # Instructions of a record are about its messages: a letter with them would remove other letters, or expire.
    instructions = list(route.sinks.values())[sink].instructions
    headers = _headers(route, rules, consumed, rejections, instructions)
    return Messages(
        pa.repeat(pa.scalar(topic, pa.string()), len(rows)),
        pc.binary_join_element_wise(ids, pa.array(suffixes, pa.string()), ""),
        np.full(len(rows), sink, np.int8),
        np.arange(len(rows)),
        record_columns(consumed.batch, rows, _take(consumed.values, rows), headers, _take(consumed.keys, rows)),
    )


def _take(column: Sequence[bytes | None], rows: Iterable[int]) -> Binaries:
    return pa.array([column[row] for row in rows], pa.binary())


def _headers(
    route: Route,
    rules: HeaderRules,
    consumed: Consumed,
    rejections: Sequence[Rejection],
    instructions: frozenset[str],
) -> ArrowArray:
    """Return the records' headers without unwritable ones, followed by the reasons and the seal."""
    rows = [rejection.row for rejection in rejections]
    chosen = consumed.batch.take(pa.array(rows, pa.int64()))
    column = Headers.of_arrow(chosen.column("headers")) if "headers" in chosen.schema.names else Headers(len(rows))
    everything = np.arange(len(rows))
    arrow = column.to_arrow(everything)
    if instructions:
        lowered = pc.utf8_lower(pc.list_flatten(arrow).field(0))
        instructing = pc.fill_null(pc.is_in(lowered, value_set=pa.array(list(instructions))), False)
        arrow = without(arrow, instructing.to_numpy(zero_copy_only=False))
        column = Headers.of_arrow(arrow)
    bad = rules.unfit(arrow)
    if bad is not None:
        column = Headers.of_arrow(without(arrow, bad))
    if route.dead_letter is not None and route.dead_letter.context_headers:
        for number, headers in enumerate(_reasons(route, chosen, rejections)):
            for name, text in headers:
                column.append(everything[number : number + 1], name, None, [_on_one_line(text)])
        for number, text in (rules.left_out(arrow, bad) if bad is not None else {}).items():
            column.append(everything[number : number + 1], LEFT_OUT, None, [_on_one_line(text)])
        if route.dead_letter.secret is not None:
            values = [consumed.values[row] for row in rows]
            column.append(everything, SEAL, None, _seals(route.dead_letter.secret, column.to_arrow(everything), values))
    elif bad is None:
        return arrow
    headers_column = column.to_arrow(everything)
    assert headers_column.type.equals(ARROW)
    return headers_column


def _reasons(route: Route, chosen: ArrowBatch, rejections: Sequence[Rejection]) -> Iterator[list[tuple[str, str]]]:
    """Yield the headers of each rejection: its origin, Connect's context, and a delivery's addressee."""
    names = chosen.schema.names
    positions = [chosen.column(part).to_pylist() if part in names else [None] * len(rejections) for part in _POSITION]
    written = origins_of_topics(chosen) if TOPIC_ID in names else origins(chosen)
    for rejection, origin, *position in zip(rejections, written.to_pylist(), *positions, strict=True):
        topic, partition, offset = position
        headers = [(ORIGIN, origin or "")]
        headers += context_headers(rejection.failure, topic, partition, offset, name=route.name)
        if rejection.subscription is not None:
            headers.append((SUBSCRIPTION, rejection.subscription))
        if rejection.destination is not None:
            headers.append((DESTINATION, rejection.destination))
        yield headers


def _seals(secret: str, headers: ArrowArray, values: Sequence[bytes | None]) -> list[str]:
    """Return the seal of each letter."""
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
    return line if len(line) <= _MAX_HEADER_CHARACTERS else f"{line[:_MAX_HEADER_CHARACTERS]}…"
