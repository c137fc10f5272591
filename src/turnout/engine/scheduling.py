"""Deliveries at a later time: when each is due, and its message in the form in which it waits."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.engine.deliveries import OutgoingDeliveries
from turnout.engine.messages import RECORDS, Messages, record_ids
from turnout.engine.metadata import Metadata
from turnout.engine.reading import Consumed
from turnout.records import Batch, Headers
from turnout.records.types import RowIds
from turnout.routes import Route
from turnout.routes.document import ScheduledPart
from turnout.subscriptions.destinations import MICROSECONDS, MOST_SECONDS, Timing

AT: Final = "Turnout-Deliver-At"
"""The header with the time of a message that waits or has waited: ISO 8601 in UTC, with microseconds."""

TO: Final = "Turnout-Deliver-To"
"""The header with the topic of a message that waits."""

SINK: Final = "Turnout-Deliver-Sink"
"""The header with the name of its sink, in a delay stream, as the following ones."""

IDENTITY: Final = "Turnout-Deliver-Id"
KEY: Final = "Turnout-Deliver-Key"
"""The header with its key in base64."""

TIME: Final = "Turnout-Deliver-Time"
"""The header with the time of its record, in microseconds since 1970."""

NO_VALUE: Final = "Turnout-Deliver-Null"
"""The header of a message whose value is null, which an empty payload in NATS does not say by itself."""

WAITING: Final = (TO, SINK, IDENTITY, KEY, TIME, NO_VALUE)
"""The headers that a message has no more when it is delivered."""

_TOKEN = re.compile(r"[A-Za-z0-9_=-]{1,100}")
_SHOWN_CHARACTERS: Final = 80
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 250_000_000_000 * MICROSECONDS


def token_of(identity: str) -> str:
    """Return the token of an id in the subject of a waiting message: the id itself, or a digest of it.

    >>> token_of("order-17"), token_of("ORDERS:17:1790000000")
    ('order-17', '~bea11647fd75d0fdc29609fc5d43aeaa')
    """
    if _TOKEN.fullmatch(identity):
        return identity
    return f"~{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Due:
    """Times of deliveries, and the ids under which they wait.

    Attributes:
        times: microseconds since 1970; -1 for a delivery at once.
        identities: ids of those that wait, by which they are replaced and cancelled; "" for others.
    """

    times: NDArray[np.int64]
    identities: Sequence[str]

    def take(self, indices: RowIds) -> Due:
        """Return those at *indices*, in that order."""
        return Due(self.times[indices], [self.identities[index] for index in indices.tolist()])


class Scheduler:
    """Computes times, and makes the messages of a route that wait.

    Args:
        route: route with the sinks.
    """

    def __init__(self, route: Route) -> None:
        # Of defaults alone: a validator would be built in each worker.
        self._part = route.scheduled or ScheduledPart.model_construct()
        self._sinks = list(route.sinks)
        name = self._part.sink_name({name: sink.format for name, sink in route.sinks.items()})
        self._delay_sink = None if self._part.stream is None or name is None else self._sinks.index(name)
        self._columns: dict[str, Metadata] = {}

    def schedule(self, records: Batch, consumed: Consumed, deliveries: OutgoingDeliveries) -> OutgoingDeliveries:
        """Return the deliveries with the times of those that wait; one without a usable time gets a problem.

        Args:
            records: records of the batch, as transformed and mapped.
            consumed: the batch as it was read, which has their own times.
            deliveries: deliveries of the batch.
        """
        timings = deliveries.timings
        if timings is None or not any(timings):
            return deliveries
        problems = dict(deliveries.problems)
        times = np.full(len(deliveries), -1, np.int64)
        identities = [""] * len(deliveries)
        base = _times_of(consumed)
        for timing in dict.fromkeys(filter(None, timings)):
            own = np.array([i for i, one in enumerate(timings) if one == timing and i not in problems], np.int64)
            rows = deliveries.rows[own].tolist()
            texts = None if timing.constant is not None else self._texts(records, timing.text, rows)
            for index, row in zip(own.tolist(), rows, strict=True):
                due = self._due(timing, base[row], None if texts is None else texts[row])
                if isinstance(due, str):
                    problems[index] = f"cannot be delivered later: {timing.kind}: {due}"
                else:
                    times[index] = due
        waiting = np.flatnonzero(times >= 0)
        for index, identity in self._identities(records, consumed, waiting, deliveries.rows[waiting].tolist()):
            if identity:
                identities[index] = identity
            else:
                problems[index] = self._without_identity
        return replace(deliveries, problems=problems, due=Due(times, identities))

    def _due(self, timing: Timing, base: int, text: str | None) -> int | str:
        """Return the time at which a message of a record of the time *base* is due, or why it has none."""
        value = timing.constant
        if value is None:
            if text is None:
                return f"{timing.text} is missing or null, expected {timing.expected}"
            shown = f"{timing.text} is {text[:_SHOWN_CHARACTERS]!r}"
            value = timing.read(text.strip())
            if value is None:
                return f"{shown}, expected {timing.expected}"
        else:
            shown = timing.text
        due = base + value if timing.kind == "delay" else value
        if due > base + MOST_SECONDS * MICROSECONDS:
            return f"{shown}, more than 30 days after the record's time {_iso(base)}"
        if due < base - self._part.grace_microseconds:
            return f"{shown}, before the record's time {_iso(base)} by more than the grace of {self._part.grace}"
        return max(due, 0)

    @property
    def _without_identity(self) -> str:
        if self._part.id is not None:
            return f"cannot be delivered later: scheduled.id: {self._part.id} is missing, null or empty"
        return "cannot be delivered later: its record has no position that could be its id, so scheduled.id is needed"

    def _identities(
        self, records: Batch, consumed: Consumed, waiting: RowIds, rows: list[int]
    ) -> Iterator[tuple[int, str | None]]:
        if self._part.id is not None:
            texts = self._texts(records, self._part.id, rows)
            yield from ((index, texts[row]) for index, row in zip(waiting.tolist(), rows, strict=True))
            return
        origins = record_ids(consumed.batch).to_pylist()
        yield from ((index, origins[row]) for index, row in zip(waiting.tolist(), rows, strict=True))

    def _texts(self, records: Batch, path: str, rows: Sequence[int]) -> dict[int, str | None]:
        """Return row → the text at a path; None where it is missing or null."""
        distinct = np.unique(np.array(rows, np.int64))
        root, _, name = path.partition(".")
        if root == "header":
            return dict(zip(distinct.tolist(), records.by_row(records.headers.last(name), distinct), strict=True))
        reader = self._columns.setdefault(path, Metadata({"due": path}))
        column = reader.columns(records, distinct, ["due"])["due"]
        values = (value if value is None or column.text is None else column.text(value) for value in column.values)
        return dict(zip(distinct.tolist(), (None if value is None else str(value) for value in values), strict=True))

    def waiting(self, messages: Messages, deliveries: OutgoingDeliveries) -> Messages:
        """Return the messages of some deliveries, those that wait under their own subjects.

        Args:
            messages: the messages of the deliveries, in their order.
            deliveries: deliveries with their times.
        """
        due = deliveries.due
        if due is None:
            return messages
        chosen = np.flatnonzero(due.times >= 0)
        if not len(chosen):
            return messages
        topics, suffixes, ids = messages.topics.to_pylist(), deliveries.suffixes.listed, messages.ids.to_pylist()
        carried = messages.records.take(pa.array(messages.rows[chosen]))
        headers, everything = Headers.of_arrow(carried.column("headers")), np.arange(len(chosen))
        indices = chosen.tolist()
        headers.append(everything, AT, None, [_iso(int(due.times[index])) for index in indices])
        headers.append(everything, TO, None, [topics[index] for index in indices])
        if self._delay_sink is not None:
            names = [self._sinks[int(messages.sinks[index])] for index in indices]
            headers.append(everything, SINK, None, names)
            for name, texts in (
                (IDENTITY, [ids[index] for index in indices]),
                (KEY, [None if k is None else base64.b64encode(k).decode() for k in carried.column("key").to_pylist()]),
                (TIME, [None if t is None else f"{t}" for t in _microseconds(carried.column("timestamp"))]),
                (NO_VALUE, ["1" if value is None else None for value in carried.column("value").to_pylist()]),
            ):
                given = [at for at, text in enumerate(texts) if text is not None]
                headers.append(everything[given], name, None, [texts[at] for at in given])
        carried = carried.set_column(1, RECORDS.field("headers"), headers.to_arrow(everything))
        for index in indices:
            hashed = (suffixes[index] or ":").removeprefix(":") or "0"
            topics[index] = f"{self._part.subject}.{token_of(due.identities[index])}.{hashed}"
        rows, sinks = messages.rows.copy(), messages.sinks.copy()
        rows[chosen] = everything + messages.records.num_rows
        if self._delay_sink is not None:
            sinks[chosen] = self._delay_sink
        return Messages(
            pa.array(topics, pa.string()), messages.ids, sinks, rows, pa.concat_batches([messages.records, carried])
        )


def _iso(microseconds: int) -> str:
    """Return a time as text; the largest that a calendar has for later ones."""
    limited = min(max(microseconds, 0), _LATEST)
    return f"{_EPOCH + timedelta(microseconds=limited):%Y-%m-%dT%H:%M:%S.%f}Z"


def _microseconds(column: pa.Array) -> list[int | None]:
    times: list[int | None] = column.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64()).to_pylist()
    return times


def _times_of(consumed: Consumed) -> list[int]:
    """Return the time of each record as it was read, of a record without one the present."""
    now = time.time_ns() // 1_000
    batch = consumed.batch
    if "timestamp" not in batch.schema.names or pa.types.is_null(batch.schema.field("timestamp").type):
        return [now] * batch.num_rows
    return [now if at is None else at for at in _microseconds(batch.column("timestamp"))]
