"""Spans of sampled records: one of the record, those of its stages, and one of each message, which carries its context.

Names and attributes are those of OpenTelemetry's conventions for messaging.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.engine.counts import MAPPING, MATCH, Outcome, Outcomes, StageCounter
from turnout.engine.messages import RECORDS, ListedMessages, Messages, origins
from turnout.engine.reading import Consumed
from turnout.records import ALIVE, Batch, Failure
from turnout.records.headers import headers_type
from turnout.records.types import Binaries, RowIds, Strings
from turnout.routes import Route
from turnout.routes.endpoints.base import Endpoint
from turnout.traces.spans import (
    NAMES,
    TRACEPARENT,
    Attributes,
    Span,
    SpanContext,
    TraceSettings,
    context_of,
    headers_of,
    new_trace,
)

_DETAIL_SECONDS: Final = 0.5
"""Seconds after which a record has spans of its stages also where there are many: those of a batch have equal ones."""

_MIN_SHARE: Final = 100
"""One of so many records has to be traceable, or the batch is not searched for any: a search costs as much as some of
them."""

_MAX_SENT: Final = 16
"""Messages of one record with spans of their own; further ones carry the context of their record's span."""

_LENGTH: Final = len(TRACEPARENT)
_HEAD, _TAIL = (np.frombuffer(part, np.uint64)[0] for part in (TRACEPARENT[:8].encode(), TRACEPARENT[-8:].encode()))
_LOWER_CASE: Final = np.frombuffer(b" " * 8, np.uint64)[0]
_FLAG_AT: Final = 54
"""Index of the last digit of a ``traceparent``'s flags, whose lowest bit is set if it is sampled."""

_SAMPLED_DIGITS: Final = b"13579bdf"
_DIGITS: Final = np.frombuffer(_SAMPLED_DIGITS, np.uint8)
_LAST_STAGE: Final = {Outcome.LOST_BY_WEIGHT: MAPPING, Outcome.UNMATCHED: MATCH}
_HEADERS: Final = RECORDS.get_field_index("headers")


def system_of(endpoint: Endpoint) -> Attributes:
    """Return the attributes of the system of a source or a sink: its name, and its server if there is one alone."""
    hosts = [urlsplit(f"//{host}") for host in endpoint.hosts]
    server = {"server.address": hosts[0].hostname or "", "server.port": hosts[0].port} if len(hosts) == 1 else {}
    return {"messaging.system": endpoint.format, **{name: value for name, value in server.items() if value}}


def messaging(system: Attributes, operation: str, topic: str | None) -> Attributes:
    """Return the attributes of a span about messages.

    >>> messaging({"messaging.system": "nats"}, "send", "eu.17")["messaging.destination.template"]
    'eu.>'
    """
    attributes = {**system, "messaging.operation.name": operation, "messaging.operation.type": operation}
    if topic is not None:
        attributes["messaging.destination.name"] = topic
        if system["messaging.system"] == "nats" and "." in topic:
            attributes["messaging.destination.template"] = f"{topic.partition('.')[0]}.>"
    return attributes


def span_name(attributes: Attributes) -> str:
    """Return the name of a span about messages: subjects of NATS may be any number, and names are to be few."""
    named = attributes.get("messaging.destination.template") or attributes.get("messaging.destination.name")
    return f"{attributes['messaging.operation.name']} {named or ''}".rstrip()


@dataclass(frozen=True, slots=True)
class _Traced:
    """Record that is traced.

    Attributes:
        parent: context that it came with; None if the trace begins here.
        context: that of its span.
    """

    parent: SpanContext | None
    context: SpanContext


class RouteTracer:
    """Choice of a route's traced records.

    Args:
        route: the route.
        settings: settings of its spans.
        clock: seconds that only grow.
    """

    def __init__(self, route: Route, settings: TraceSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.route, self.settings = route, settings
        self.names = frozenset[str]().union(*(NAMES[one] for one in settings.propagators))
        self.source, self.sinks = system_of(route.source), [system_of(sink) for sink in route.sinks.values()]
        self._random = np.random.default_rng()
        # Twice as many as in a second may be made at once.
        self._rate = float(settings.spans_per_second)
        self._clock = clock
        self._tokens, self._at, self._detailed_at = 2 * self._rate, clock(), 0.0

    def chosen(self, records: Batch) -> dict[int, _Traced]:
        """Return the traced records of a batch, by row."""
        now = self._clock()
        self._tokens = min(2 * self._rate, self._tokens + (now - self._at) * self._rate)
        # Two are the least of a record: its own, and that of a message. In a large batch few are not worth the search.
        self._at, most = now, int(self._tokens / 2)
        if most <= min(len(records) // _MIN_SHARE, self._rate / 2):
            return {}
        owners, sampled = self._contexts(records, most)
        found = {row: _Traced(context, context.child()) for row, context in sampled.items()}
        if self.settings.ratio:
            draws = self._random.random(len(records))
            draws[owners] = 1.0
            for row in np.flatnonzero(draws < self.settings.ratio)[: most - len(found)].tolist():
                # Samplers of other programs decide by the trace's id, and the same.
                found[row] = _Traced(None, new_trace(int(draws[row] * 2**64)))
        return found

    def _contexts(self, records: Batch, most: int) -> tuple[RowIds, dict[int, SpanContext]]:
        """Return the rows that came with a context, and the sampled contexts of the first of them."""
        if not records.headers:
            return _NO_ROWS, {}
        if self.settings.propagators == ("tracecontext",):
            owners, names, values = records.headers.wire()
            at, sampled = _traceparents(names, values)
            last = dict(zip(owners[sampled].tolist(), sampled.tolist(), strict=True))
            texts = {row: {TRACEPARENT: _text(values[last[row]])} for row in islice(last, most)}
            return owners[at], self._sampled(texts)
        texts = {}
        for row, name, text in records.headers.texts_where(self.is_of_context, np.arange(len(records))):
            texts.setdefault(row, {})[name.lower()] = text or ""
        return np.array(list(texts), np.int64), dict(islice(self._sampled(texts).items(), most))

    def _sampled(self, texts: Mapping[int, Mapping[str, str]]) -> dict[int, SpanContext]:
        contexts = {row: context_of(headers, self.settings.propagators) for row, headers in texts.items()}
        return {row: context for row, context in contexts.items() if context is not None and context.is_sampled}

    def spend(self, spans: int) -> None:
        """Count spans."""
        self._tokens -= spans

    def takes_stages(self) -> bool:
        """Return True if the stages of a record may have spans as well."""
        if self._tokens <= self._rate and self._at - self._detailed_at < _DETAIL_SECONDS:
            return False
        self._detailed_at = self._at
        return True

    def is_of_context(self, name: str) -> bool:
        """Return True for the name of a header that says which span a message belongs to."""
        return name.lower() in self.names


def _traceparents(
    names: Sequence[str | None] | Strings, values: Sequence[bytes | None] | Binaries
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of all headers ``traceparent``, in any case, and of those with the sampled flag.

    Most contexts are not sampled: none is parsed, as reading all of a batch would take as long as matching it.
    """
    if isinstance(names, list) and isinstance(values, list):
        found = [at for at, name in enumerate(names) if name is not None and len(name) == _LENGTH]
        found = [at for at in found if names[at].lower() == TRACEPARENT]
        chosen = [at for at in found if len(values[at] or b"") > _FLAG_AT and values[at][_FLAG_AT] in _SAMPLED_DIGITS]
        return np.array(found, np.intp), np.array(chosen, np.intp)
    (starts, letters), (begins, digits) = _flat(names), _flat(values)
    at = np.flatnonzero(np.diff(starts) == _LENGTH)
    # Eight bytes at each index: a name is its first and its last eight. Lower case differs from upper case by one bit.
    words = np.ndarray(max(0, len(letters) - 7), np.uint64, letters, strides=(1,))
    begun = starts[at]
    head, tail = (words[begun + by] | _LOWER_CASE for by in (0, _LENGTH - 8))
    at = at[(head == _HEAD) & (tail == _TAIL)]
    whole = at[np.diff(begins)[at] > _FLAG_AT]
    return at, whole[np.isin(digits[begins[whole] + _FLAG_AT], _DIGITS)]


def _flat(column: Strings | Binaries) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the offsets of texts or bytes, one more than there are, and the bytes of all of them."""
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return starts, np.frombuffer(b"" if data is None else data, np.uint8)


def _text(value: bytes | pa.BinaryScalar | None) -> str:
    """Return the text of a header's value."""
    own = value.as_py() if isinstance(value, pa.Scalar) else value
    return (own or b"").decode("utf-8", "replace")


_NO_ROWS: Final = np.zeros(0, np.int64)


class SpanCounter(StageCounter):
    """Counts one batch by stage, and makes the spans of its traced records.

    Args:
        tracer: chooses them.
    """

    def __init__(self, tracer: RouteTracer) -> None:
        super().__init__(time.perf_counter())
        self._tracer = tracer
        self._start = time.time_ns()
        self._sent: list[Span] = []
        self._reached: dict[str, AbstractSet[int]] = {}

    def decoded(self, records: Batch, consumed: Consumed, keys: int) -> None:
        """See `StageCounter`."""
        super().decoded(records, consumed, keys)
        self._records, self._consumed = records, consumed
        self._traced = self._tracer.chosen(records)
        self._rows = np.array(list(self._traced), np.int64)
        self._reached[self._stage] = self._traced.keys()

    def enter(self, stage: str, records: int, failures: int) -> None:
        """See `StageCounter`."""
        super().enter(stage, records, failures)
        if self._traced and self._records.alive_count == len(self._records):
            self._reached[stage] = self._traced.keys()
        elif self._traced:
            self._reached[stage] = set(self._rows[self._records.outcomes[self._rows] == ALIVE].tolist())

    def marked(self, messages: Messages | ListedMessages, rows: RowIds) -> Messages | ListedMessages:
        """Return the messages, those of traced records with the contexts of their spans.

        Args:
            messages: that are delivered.
            rows: rows of their records.
        """
        if not self._traced:
            return messages
        is_traced = np.zeros(len(self._records), np.bool_)
        is_traced[self._rows] = True
        chosen = np.flatnonzero(is_traced[rows])
        if not len(chosen):
            return messages
        messages = messages.whole if isinstance(messages, ListedMessages) else messages
        own, records = rows[chosen].tolist(), messages.rows[chosen]
        distinct = np.unique(records)
        headers = messages.records.column(_HEADERS).take(pa.array(distinct)).to_pylist()
        pairs = dict(zip(distinct.tolist(), headers, strict=True))
        topics, sinks = messages.topics.take(pa.array(chosen)).to_pylist(), messages.sinks[chosen].tolist()
        fan_out, numbers = Counter(own), Counter[int]()
        copies: dict[tuple[int, int], tuple[int, list[Mapping[str, object]]]] = {}
        indices = messages.rows.copy()
        for at, row, record, topic, sink in zip(chosen.tolist(), own, records.tolist(), topics, sinks, strict=True):
            traced, number = self._traced[row], min(numbers[row], _MAX_SENT)
            if traced.parent is not None and not any(self._tracer.is_of_context(pair["key"]) for pair in pairs[record]):
                # The route has removed it, and means it.
                continue
            numbers[row] += 1
            if (record, number) not in copies:
                context = traced.context.child() if number < _MAX_SENT else traced.context
                copies[record, number] = len(copies), self._with_context(pairs[record], context)
                if number < _MAX_SENT:
                    facts = messaging(self._tracer.sinks[sink], "send", topic)
                    links = (traced.parent,) if fan_out[row] > 1 and traced.parent is not None else ()
                    span = Span(span_name(facts), context, traced.context, time.time_ns(), 0, "PRODUCER", facts, links)
                    self._sent.append(span)
            indices[at] = messages.records.num_rows + copies[record, number][0]
        copied = messages.records.take(pa.array([record for record, _ in copies], pa.int64()))
        marked = pa.array([headers for _, headers in copies.values()], headers_type())
        copied = copied.set_column(_HEADERS, RECORDS.field(_HEADERS), marked)
        return replace(messages, rows=indices, records=pa.concat_batches([messages.records, copied]))

    def _with_context(self, pairs: Sequence[Mapping[str, object]], context: SpanContext) -> list[Mapping[str, object]]:
        """Return headers with another context, its names spelled as they are there: the case matters in NATS."""
        spelled = {str(pair["key"]).lower(): str(pair["key"]) for pair in pairs}
        own = headers_of(context, self._tracer.settings.propagators)
        return [
            *(pair for pair in pairs if not self._tracer.is_of_context(str(pair["key"]))),
            *({"key": spelled.get(name.lower(), name), "value": text.encode()} for name, text in own.items()),
        ]

    def spans(self, outcomes: Outcomes, failures: Mapping[int, Failure]) -> Sequence[Span]:
        """Return the spans of the batch; those of records and messages last until they are emitted.

        Args:
            outcomes: an `Outcome` for each row.
            failures: by row.
        """
        if not self._traced:
            return ()
        spans = self._sent
        self._tracer.spend(len(spans) + len(self._rows))
        read = self._consumed.batch.take(pa.array(self._rows))
        system = self._tracer.source
        for at, (row, id_) in enumerate(zip(self._rows.tolist(), origins(read).to_pylist(), strict=True)):
            traced, outcome, failure = self._traced[row], Outcome(outcomes[row]), failures.get(row)
            facts = messaging(system, "process", self._consumed.topics[row])
            value = self._consumed.values[row]
            more: dict[str, str | int] = {
                "messaging.message.body.size": len(value) if isinstance(value, bytes) else 0,
                "turnout.route": self._tracer.route.name,
                "turnout.outcome": outcome.label,
            }
            if id_ is not None:
                more["messaging.message.id"] = id_
            if system["messaging.system"] == "kafka":
                more["messaging.kafka.offset"] = read.column("offset")[at].as_py()
                more["messaging.destination.partition.id"] = f"{read.column('partition')[at]}"
            if failure is not None:
                more["error.type"] = failure.exception
            # Its message may have contents of the record; the dead letter has it.
            error = "" if failure is None else f"{failure.stage}: {failure.class_name}"
            if self._tracer.takes_stages():
                stages = list(self._of_stages(row, traced.context, outcome))
                self._tracer.spend(len(stages))
                spans += stages
            spans.append(
                Span(
                    span_name(facts), traced.context, traced.parent, self._start, 0, "CONSUMER", {**facts, **more},
                    error=error,
                )
            )  # fmt: skip
        return spans

    def _of_stages(self, row: int, parent: SpanContext, outcome: Outcome) -> Iterator[Span]:
        """Yield the spans of the stages that a record has reached, each of the time that its batch was in it."""
        start = self._start
        for stage, seconds in self._seconds.items():
            end = start + int(seconds * 1e9)
            if row in self._reached.get(stage, ()):
                yield Span(stage, parent.child(), parent, start, end)
            start = end
            if stage == _LAST_STAGE.get(outcome):
                return
