"""Spans and their contexts as plain values, the settings that say whether and where spans go, and the span of a task.

What makes spans or keeps contexts (W3C Trace Context, and B3 by option) depends on this module alone; OpenTelemetry is
imported with the first span.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import random
from secrets import randbits
from time import time_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, Self, TypeVar

from turnout.base.untrusted import decimal
from turnout.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from turnout.traces.export import Exporter


TRACEPARENT: Final = "traceparent"

_B3: Final = "b3"
_B3_MULTI: Final = ("X-B3-TraceId", "X-B3-SpanId", "X-B3-Sampled", "X-B3-Flags", "X-B3-ParentSpanId")
NAMES: Final = {
    "tracecontext": frozenset({TRACEPARENT}),
    "b3": frozenset({_B3}),
    "b3multi": frozenset(map(str.lower, _B3_MULTI)),
}
"""Names of the headers that say which span a message belongs to, in lower case, by propagator."""

HEADERS: Final = frozenset({"tracestate"}).union(*NAMES.values())
"""All headers of trace contexts, in lower case."""

_LENGTHS: Final = frozenset(map(len, HEADERS))
_MAX_CHARACTERS: Final = 512
"""Characters of a ``tracestate`` that has to be passed on (W3C Trace Context, 3.3.1.5)."""

_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_PARENT_LENGTH: Final = 55
_SINGLE: Final = re.compile(r"([0-9a-f]{16}|[0-9a-f]{32})-([0-9a-f]{16})(?:-([01d])(?:-[0-9a-f]{16})?)?")
_SAMPLED: Final = 1
_RANDOM: Final = 2


class SpanContext(NamedTuple):
    """Span that others name as their parent.

    Attributes:
        trace_id: 128 bits.
        span_id: 64 bits.
        flags: bit 0 for sampled, bit 1 for a random trace id.

    >>> context = parsed("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    >>> context.is_sampled, context.traceparent
    (True, '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01')
    """

    trace_id: int
    span_id: int
    flags: int

    @property
    def is_sampled(self) -> bool:
        """True if the spans of the trace are recorded."""
        return bool(self.flags & _SAMPLED)

    @property
    def traceparent(self) -> str:
        """Value of the header of that name."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"

    def child(self) -> SpanContext:
        """Return the context of a new span of the trace."""
        return self._replace(span_id=randbits(64) or 1)

    def ids(self) -> dict[str, str]:
        """Return the ids as logs and exemplars have them."""
        return {"trace_id": f"{self.trace_id:032x}", "span_id": f"{self.span_id:016x}"}


def new_trace(low: int | None = None) -> SpanContext:
    """Return the context of a sampled span that begins a trace; *low* are the low 64 bits of its id."""
    own = randbits(64) if low is None else low
    return SpanContext((randbits(64) << 64 | own) or 1, randbits(64) or 1, _SAMPLED | _RANDOM)


def parsed(text: str) -> SpanContext | None:
    """Return the context of a ``traceparent``; None for one that is not valid (W3C Trace Context, 3.2).

    >>> parsed("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01")
    """
    match = _PARENT.match(text)
    is_longer = len(text) > _PARENT_LENGTH
    if match is None or (is_longer and (text.startswith("00") or text[_PARENT_LENGTH] != "-")):
        return None
    return _context(match[1], match[2], int(match[3], 16) & (_SAMPLED | _RANDOM))


def _context(trace_id: str, span_id: str, flags: int) -> SpanContext | None:
    context = SpanContext(int(trace_id, 16), int(span_id, 16), flags)
    return context if context.trace_id and context.span_id else None


def context_of(headers: Mapping[str, str], propagators: Iterable[str]) -> SpanContext | None:
    """Return the context that headers name, by the first propagator that finds one.

    Args:
        headers: texts by name, in lower case.
        propagators: some of `NAMES`.
    """
    for propagator in propagators:
        if propagator == "tracecontext":
            context = parsed(headers.get(TRACEPARENT, ""))
        elif propagator == _B3:
            context = _of_b3(headers.get(_B3, "").lower())
        else:
            trace_id, span_id, sampled, flags = (headers.get(name.lower(), "").lower() for name in _B3_MULTI[:4])
            is_sampled = "d" if flags == "1" else "1" if sampled in ("1", "true") else "0"
            context = _of_b3(f"{trace_id}-{span_id}-{is_sampled}")
        if context is not None:
            return context
    return None


def _of_b3(text: str) -> SpanContext | None:
    match = _SINGLE.fullmatch(text)
    return None if match is None else _context(match[1], match[2], _SAMPLED if match[3] in ("1", "d") else 0)


def headers_of(context: SpanContext, propagators: Iterable[str]) -> dict[str, str]:
    """Return the headers of a context."""
    trace_id, span_id = context.ids().values()
    sampled = f"{context.flags & _SAMPLED}"
    written: dict[str, str] = {}
    for propagator in propagators:
        if propagator == "tracecontext":
            written[TRACEPARENT] = context.traceparent
        elif propagator == _B3:
            written[_B3] = f"{trace_id}-{span_id}-{sampled}"
        else:
            written |= zip(_B3_MULTI, (trace_id, span_id, sampled), strict=False)
    return written


def forwarded(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of trace contexts among those of a message or a request, for its successor over HTTP.

    >>> forwarded([("Traceparent", "00-…"), ("X-Other", "1"), ("tracestate", "a=1")])
    {'tracestate': 'a=1'}
    """
    return {
        name.lower(): text
        for name, text in headers
        if len(name) in _LENGTHS and name.lower() in HEADERS and _is_fit(text)
    }


def _is_fit(text: str) -> bool:
    return len(text) <= _MAX_CHARACTERS and text.isascii() and text.isprintable()


_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("http/protobuf", "grpc")
_SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_RATIO: Final = "OTEL_TRACES_SAMPLER_ARG"
_LIMIT: Final = "TURNOUT_SPANS_PER_SECOND"
_SPANS_PER_SECOND: Final = 100
"""They cost a worker about 1 % of a core."""

_RATIOS: Final = {
    "": 0.0,
    "parentbased_always_off": 0.0,
    "parentbased_always_on": 1.0,
    "parentbased_traceidratio": None,
}
_MAX_LINKS: Final = 128
"""Links of a span that OpenTelemetry keeps by default."""

EXPORT_SECONDS: Final = 1.0
"""Seconds between two exports of a process, unless the SDK's own variable says otherwise."""

_FLUSH_SECONDS: Final = 0.25
"""Seconds that the end of a task waits for its spans; a collector that is away does not hold the next one up."""

Attributes = Mapping[str, str | int]


class Span(NamedTuple):
    """Finished span.

    Attributes:
        name: as OpenTelemetry's conventions form it.
        context: its own.
        parent: context of its parent; None for the first of a trace.
        start: nanoseconds since 1970.
        end: likewise; 0 for the moment at which it is emitted.
        kind: kind of OpenTelemetry.
        attributes: texts and numbers by name.
        links: contexts of other spans.
        error: what went wrong; "" for nothing.
    """

    name: str
    context: SpanContext
    parent: SpanContext | None
    start: int
    end: int = 0
    kind: Literal["INTERNAL", "CONSUMER", "PRODUCER", "CLIENT", "SERVER"] = "INTERNAL"
    attributes: Attributes = MappingProxyType({})
    links: Sequence[SpanContext] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Settings of spans, by the variables of OpenTelemetry's SDK.

    Attributes:
        variables: these variables, which exporters of workers on other machines read.
        ratio: share of the records without a context of which a trace begins.
        propagators: forms of contexts that are read and written: `turnout.traces.spans.NAMES`.
        protocol: of `PROTOCOLS`.
        spans_per_second: spans that a route makes in one second of a worker: sampled records beyond them pass with the
            context that they came with.
    """

    variables: tuple[tuple[str, str], ...] = field(repr=False)
    ratio: float
    propagators: tuple[str, ...]
    protocol: str
    spans_per_second: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the settings; None where no spans are made, as there is no endpoint for them.

        Raises:
            ConfigError: a variable has a value that is not supported.

        >>> TraceSettings.of({})
        >>> TraceSettings.of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}).propagators
        ('tracecontext',)
        """
        variables = {name: text.strip() for name, text in environment.items() if name.startswith("OTEL_")}
        exporter, sampler = variables.get("OTEL_TRACES_EXPORTER") or "otlp", variables.get(_SAMPLER, "")
        is_off = "none" in (exporter, sampler) or sampler == "always_off"
        is_off = is_off or variables.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if is_off or not any(map(variables.get, _ENDPOINTS)):
            return None
        mistakes = [] if exporter == "otlp" else [_mistake("OTEL_TRACES_EXPORTER", exporter, ("otlp", "none"))]
        if sampler not in _RATIOS:
            mistakes.append(_mistake(_SAMPLER, sampler, ("always_off", *filter(None, _RATIOS))))
        ratio = _RATIOS.get(sampler)
        if ratio is None:
            ratio = _ratio_of(variables.get(_RATIO) or "1")
        if not 0.0 <= ratio <= 1.0:
            mistakes.append(Mistake(_RATIO, f"found {variables[_RATIO]!r}, expected a number from 0 to 1"))
        listed = (variables.get("OTEL_PROPAGATORS") or "tracecontext").split(",")
        propagators = [name for name in map(str.strip, listed) if name not in ("baggage", "none", "")]
        mistakes += [_mistake("OTEL_PROPAGATORS", one, (*NAMES, "baggage")) for one in propagators if one not in NAMES]
        written = environment.get(_LIMIT) or f"{_SPANS_PER_SECOND}"
        limit = decimal(written)
        if not limit:
            mistakes.append(Mistake(_LIMIT, f"found {written!r}, expected a number of spans, 1 or more"))
        try:
            protocol = protocol_of(variables, "TRACES")
        except ConfigError as error:
            mistakes += error.mistakes
        if mistakes:
            raise ConfigError(mistakes)
        return cls(tuple(sorted(variables.items())), ratio, tuple(propagators), protocol, limit or 0)

    @classmethod
    def of_process(cls) -> Self | None:
        """Return the settings of this process.

        Raises:
            ConfigError: as `of`.
        """
        return cls.of(os.environ)

    def sampled(self, headers: Mapping[str, str]) -> tuple[SpanContext | None, SpanContext] | None:
        """Return the parent and the context of the span of a request or a message; None if none is made.

        Args:
            headers: texts by name, in lower case.
        """
        parent = context_of(headers, self.propagators)
        if parent is not None:
            return (parent, parent.child()) if parent.is_sampled else None
        draw = random()  # noqa: S311 - a share of requests is no secret
        has_context = any(name in headers for propagator in self.propagators for name in NAMES[propagator])
        # Samplers of other programs decide by the trace's id, and the same.
        return (None, new_trace(int(draw * 2**64))) if draw < self.ratio and not has_context else None

    @property
    def exporter(self) -> Exporter:
        """The exporter of this process.

        Raises:
            MissingExtraError: OpenTelemetry is not installed.
        """
        from turnout.traces.export import exporter_of

        return exporter_of(self)


def protocol_of(environment: Mapping[str, str], signal: Literal["METRICS", "TRACES"]) -> str:
    """Return the protocol that a signal is exported by.

    Raises:
        ConfigError: it is not supported.
    """
    for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environment.get(variable)
        if protocol and protocol not in PROTOCOLS:
            raise ConfigError([_mistake(variable, protocol, PROTOCOLS)])
        if protocol:
            return protocol
    return PROTOCOLS[0]


def _ratio_of(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _mistake(variable: str, found: str, expected: Iterable[str]) -> Mistake:
    return Mistake(variable, f"found {found!r}, expected {' or '.join(map(repr, expected))}")


def micro_batch_context(query: str, batch: int) -> SpanContext:
    """Return the context of a micro-batch's span: driver and workers derive it from the query's id and the number."""
    digest = hashlib.sha256(f"{query} {batch}".encode()).digest()
    return SpanContext(int.from_bytes(digest[:16]), int.from_bytes(digest[16:24]), 1)


class _Counts(Protocol):
    @property
    def read(self) -> int: ...


class _HasSpans(Protocol):
    @property
    def counts(self) -> _Counts: ...
    @property
    def spans(self) -> Sequence[Span]: ...


_R = TypeVar("_R", bound=_HasSpans)


class TaskSpan:
    """Span of a task in progress, which links to the contexts of its traced records.

    Args:
        settings: settings of its exporter.
        name: name of the span.
        parent: micro-batch of the task; None without.
        attributes: of the span, without the number of its records.
    """

    def __init__(self, settings: TraceSettings, name: str, parent: SpanContext | None, attributes: Attributes) -> None:
        # The first of a process imports OpenTelemetry: before there are records, which would wait for it.
        self._exporter = settings.exporter
        self._name, self._parent, self._attributes = name, parent, attributes
        self._context = new_trace() if parent is None else parent.child()
        self._start, self._read = time_ns(), 0
        self._links: list[SpanContext] = []

    def traced(self, results: Iterable[_R]) -> Iterator[_R]:
        """Yield the results, and emit the spans of each when it has been published."""
        for result in results:
            self._read += result.counts.read
            try:
                yield result
            finally:
                for span in result.spans:
                    if span.kind == "CONSUMER" and len(self._links) < _MAX_LINKS:
                        self._links.append(span.parent or span.context)
                self._exporter.emit(
                    span._replace(links=(self._context,)) if span.kind == "CONSUMER" else span for span in result.spans
                )

    def end(self, error: str = "") -> None:
        """Emit the span, and have all spans of this process exported, as a rule once a second."""
        attributes = {**self._attributes, "messaging.batch.message_count": self._read}
        span = Span(self._name, self._context, self._parent, self._start, 0, "CLIENT", attributes, self._links, error)
        self._exporter.emit([span])
        self._exporter.flush_soon(_FLUSH_SECONDS)


@contextmanager
def task_span(
    settings: TraceSettings, name: str, parent: SpanContext | None, attributes: Attributes
) -> Iterator[TaskSpan]:
    """Record the block as a task: see `TaskSpan`."""
    task = TaskSpan(settings, name, parent, attributes)
    try:
        yield task
    except GeneratorExit:
        task.end()
        raise
    except BaseException as failure:
        task.end(f"{type(failure).__name__}: {failure}")
        raise
    task.end()
