"""Failing records: rejections, after which other deliveries of a record are sent, and dead letters.

A dead letter is the record as it was read, with the reason in Connect's context headers. One that is too large for its
stream or topic loses its value in `Messages.emptied`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from turnout.base.startup import pc
from turnout.base.untrusted import JsonObject
from turnout.engine.deliveries import NO_SUBSCRIPTION, Addresses, OutgoingDeliveries
from turnout.engine.messages import (
    CONNECT_PREFIX,
    TURNOUT_PREFIX,
    VALUE_DIGEST,
    VALUE_LEFT_OUT,
    HeaderRules,
    Messages,
    dead_suffix,
    origins,
    origins_of_topics,
    record_columns,
    record_ids,
    without,
)
from turnout.engine.reading import Consumed
from turnout.errors import RunError
from turnout.records import Failure, Headers
from turnout.records.batch import TOPIC_ID
from turnout.records.headers import headers_type
from turnout.records.text import iso_of, readable
from turnout.records.types import ArrowArray, ArrowBatch, Binaries
from turnout.routes import Route
from turnout.subscriptions.destinations import describe_destination
from turnout.traces.spans import NAMES, context_of
from turnout.transforms import ErrorPolicy

if TYPE_CHECKING:
    from turnout.subscriptions.index import Index

STAGE: Final = "TASK_PUT"
"""Connect's name for the stage in which a sink takes a record."""

_EXCEPTION: Final = "org.apache.kafka.connect.errors.ConnectException"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Record, or single delivery of one, that is not sent: a dead letter, or discarded.

    Attributes:
        row: row of the record.
        failure: the reason; None for an unmatched record.
        subscription: id of the subscription of a single delivery; None for a record under its own topic.
        destination: destination of a single delivery, as the subscription has it; None for a whole record.
    """

    row: int
    failure: Failure | None
    subscription: str | None = None
    destination: str | None = None

    @property
    def is_delivery(self) -> bool:
        """True for a single delivery."""
        return self.destination is not None

    @classmethod
    def of_delivery(cls, row: int, subscription: str | None, destination: str, reason: str, sink: str) -> Rejection:
        """Return the rejection of a delivery to a sink of the format *sink*, in the terms of Connect's reports."""
        of = "the record's own topic" if subscription is None else f"subscription {subscription!r}"
        message = f"{of}: destination {describe_destination(destination)} {reason}"
        return cls(row, Failure(STAGE, f"turnout.sink.{sink}", _EXCEPTION, message), subscription, destination)


def failures_of(rejections: Sequence[Rejection]) -> dict[int, Failure]:
    """Return row → why it, or its first delivery that was rejected, failed."""
    failures: dict[int, Failure] = {}
    for rejection in rejections:
        if rejection.failure is not None:
            failures.setdefault(rejection.row, rejection.failure)
    return failures


def rejected_deliveries(
    route: Route,
    topics: Sequence[str | None],
    index: Index | None,
    deliveries: OutgoingDeliveries,
    reasons: Mapping[int, str],
) -> list[Rejection]:
    """Return the rejections of deliveries, named by subscription and destination.

    Args:
        route: whose sinks they are for.
        topics: topics of the batch's records, as mapped.
        index: the subscriptions that they were matched with.
        deliveries: deliveries of the batch.
        reasons: index of a delivery → why it is rejected.
    """
    if not reasons:
        return []
    indices = np.array(sorted(reasons), np.int64)
    subscriptions = deliveries.subscriptions[indices]
    of_index = np.flatnonzero(subscriptions != NO_SUBSCRIPTION)
    ids: list[str | None] = [None] * len(indices)
    destinations: list[str | None] = [topics[row] for row in deliveries.rows[indices].tolist()]
    if index is not None and len(of_index):
        known_ids = index.subscription_ids(subscriptions[of_index]).to_pylist()
        texts = index.destinations(deliveries.destinations[indices][of_index]).to_pylist()
        for position, id_, text in zip(of_index.tolist(), known_ids, texts, strict=True):
            ids[position], destinations[position] = id_, text
    formats = [sink.format for sink in route.sinks.values()]
    return [
        Rejection.of_delivery(
            int(deliveries.rows[number]),
            id_,
            destination or "",
            reasons[number],
            formats[0 if deliveries.sinks is None else deliveries.sinks[number]],
        )
        for number, id_, destination in zip(indices.tolist(), ids, destinations, strict=True)
    ]


_SHOWN_REASONS: Final = 5


def reasons_of(lines: Iterable[Mapping[str, object]], total: int) -> str:
    """Return the most frequent reasons of failures in the form of the log, with their counts; "" without any.

    Args:
        lines: failures; empty ones are only counted.
        total: number of all failures.
    """
    reasons = Counter(f"{line['stage']}: {line['message']}" for line in lines if "message" in line)
    shown = reasons.most_common(_SHOWN_REASONS)
    others = total - sum(count for _, count in shown)
    texts = [f"{count:,} failed at {reason}" for reason, count in shown]
    return "; ".join([*texts, *([f"{others:,} more failed"] if others else [])])


IN_FULL: Final = 20
"""Maximum number of failures of one batch that are shown in full, in the order of reading."""

_MAX_SHOWN_CHARACTERS: Final = 1000
"""Maximum number of characters shown of a key or a value."""


def stop_at(route: Route, rejections: Sequence[Rejection], consumed: Consumed) -> None:
    """Raise for the first failure of a batch, unless the route tolerates failures.

    Raises:
        RunError: names the record's position, the stage and the reason.
    """
    if route.errors.tolerance != "none":
        return
    row, failure = min(failures_of(rejections).items(), key=lambda failed: failed[0], default=(0, None))
    if failure is None:
        return
    position = ", ".join(f"{name} {value}" for name, value in _position(consumed, row).items() if value is not None)
    raise RunError(f"{position}: {failure.stage}: {failure.class_name}: {failure.message}")


def _position(consumed: Consumed, row: int) -> JsonObject:
    names = consumed.batch.schema.names
    return {
        name: consumed.batch.column(name)[row].as_py() if name in names else None
        for name in ("topic", "partition", "offset")
    }


class FailureLog:
    """Collector of one batch's log entries for ``errors.log.enable``.

    Args:
        policy: whether to collect any, and whether they show keys and values.
        consumed: the records as they were read.
    """

    def __init__(self, policy: ErrorPolicy, consumed: Consumed) -> None:
        self._policy = policy
        self._consumed = consumed
        self._failures: dict[int, Failure] = {}
        self._deliveries: list[tuple[int, Failure]] = []

    def passed_over(self, noted: Mapping[int, Failure]) -> None:
        """Note failures of predicates that only left their stage out."""
        if self._policy.log:
            for row, failure in noted.items():
                self._failures.setdefault(row, failure)

    def rejected(self, rejections: Iterable[Rejection]) -> None:
        """Note rejections that have a reason."""
        if not self._policy.log:
            return
        for rejection in rejections:
            if rejection.failure is None:
                continue
            if rejection.is_delivery:
                self._deliveries.append((rejection.row, rejection.failure))
            else:
                self._failures[rejection.row] = rejection.failure

    def lines(self) -> list[JsonObject]:
        """Return a dict for each failure: the record's position, stage, class, exception and message.

        Beyond the first `IN_FULL` it is empty, to be counted.
        """
        failures = sorted([*self._failures.items(), *self._deliveries], key=lambda failed: failed[0])
        return [self._line(*failed) for failed in failures[:IN_FULL]] + [{} for _ in failures[IN_FULL:]]

    def _line(self, row: int, failure: Failure) -> JsonObject:
        position = _position(self._consumed, row)
        line = {
            **{name: None if value is None else str(value) for name, value in position.items()},
            "timestamp": self._moment(row),
            "stage": failure.stage,
            "class_name": failure.class_name,
            "exception": failure.exception,
            "message": failure.message,
            **self._trace(row),
        }
        if self._policy.log_messages:
            line["key"] = _readable(self._consumed.keys[row])
            line["value"] = _readable(self._consumed.values[row])
        return line

    def _trace(self, row: int) -> dict[str, str]:
        """Return the ids of the trace context that a record came with; empty without one."""
        batch = self._consumed.batch
        pairs = batch.column("headers")[row].as_py() if "headers" in batch.schema.names else None
        headers = {f"{pair['key']}".lower(): (pair["value"] or b"").decode("utf-8", "replace") for pair in pairs or ()}
        context = context_of(headers, NAMES)
        return {} if context is None else context.ids()

    def _moment(self, row: int) -> str | None:
        if "timestamp" not in self._consumed.batch.schema.names:
            return None
        moment = self._consumed.batch.column("timestamp")[row].as_py()
        return None if moment is None else iso_of(int(moment.timestamp() * 1000))


def _readable(raw: bytes | None) -> str | None:
    text = readable(raw)
    return text if text is None else text[:_MAX_SHOWN_CHARACTERS]


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
        record_columns(
            consumed.batch, np.array(rows, np.int64), _take(consumed.values, rows), headers, _take(consumed.keys, rows)
        ),
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
    assert headers_column.type.equals(headers_type())
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
