"""Export of spans over OTLP, by OpenTelemetry's SDK."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from turnout._built import version as __version__
from turnout.base.background import run_once
from turnout.errors import MissingExtraError
from turnout.traces.spans import EXPORT_SECONDS, Span, SpanContext, TraceSettings

try:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
except ModuleNotFoundError as absent:
    raise MissingExtraError("otlp", absent.name or "opentelemetry") from absent

_DELAY: Final = "OTEL_BSP_SCHEDULE_DELAY"
_LAST_SECONDS: Final = 2.0
"""Seconds that the last export may take when the process ends."""


def resource_of(environment: Mapping[str, str]) -> Resource:
    """Return the resource; ours overrides OTEL_RESOURCE_ATTRIBUTES except service.name."""
    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({"service.version": __version__} | ({} if named else {"service.name": "turnout"}))


_given: Final = set[str]()
"""Variables of this process that it has from the settings of others."""


class _Resource(Resource):
    """Resource that is known by its identity: the SDK writes and hashes all attributes for each span."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class _Timed(SpanExporter):
    """Exporter of the SDK that knows when it has exported last.

    Args:
        exporter: exporter of the SDK.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.at = 0.0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans."""
        self.at = time.monotonic()
        return self._exporter.export(spans)


class Exporter:
    """Exporter of a process: spans wait in a bounded queue, which a thread exports in batches (``OTEL_BSP_…``).

    Args:
        settings: their variables are set for the SDK where this process has none of its own.
    """

    def __init__(self, settings: TraceSettings) -> None:
        given = {name: text for name, text in settings.variables if name not in os.environ or name in _given}
        _given.update(given)
        os.environ.update(given)
        self._exporter = _exporter(settings.protocol)
        self._timed = _Timed(self._exporter)
        delay = None if _DELAY in os.environ else EXPORT_SECONDS * 1000
        self._processor = BatchSpanProcessor(self._timed, schedule_delay_millis=delay)
        self._resource = _Resource(resource_of(os.environ).attributes)
        self._scope = InstrumentationScope("turnout", __version__)
        self._flushing: threading.Thread | None = None
        atexit.register(self._close)

    def emit(self, spans: Iterable[Span]) -> None:
        """Export finished spans, later."""
        now = time.time_ns()
        for span in spans:
            self._processor.on_end(self._readable(span, now))

    def flush_soon(self, seconds: float) -> None:
        """Wait for the export of all spans, so long at most, unless some were exported within the last second."""
        is_due = time.monotonic() - self._timed.at >= EXPORT_SECONDS
        if is_due and (self._flushing is None or not self._flushing.is_alive()):
            self.flush(seconds)

    def flush(self, seconds: float) -> None:
        """Wait for the export of all spans, so long at most."""
        self._flushing = run_once("export of spans", self._processor.force_flush)
        self._flushing.join(seconds)

    def _close(self) -> None:
        self.flush(_LAST_SECONDS)
        # What still waits for its next try is given up.
        self._exporter.shutdown()

    def _readable(self, span: Span, now: int) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            _context(span.context, is_remote=False),
            span.parent and _context(span.parent, is_remote=span.kind in ("CONSUMER", "SERVER")),
            self._resource,
            span.attributes,
            (),
            [trace.Link(_context(link, is_remote=True)) for link in span.links],
            trace.SpanKind[span.kind],
            status=trace.Status(trace.StatusCode.ERROR, span.error) if span.error else trace.Status(),
            start_time=span.start,
            end_time=span.end or now,
            instrumentation_scope=self._scope,
        )


def _context(context: SpanContext, *, is_remote: bool) -> trace.SpanContext:
    return trace.SpanContext(context.trace_id, context.span_id, is_remote, trace.TraceFlags(context.flags))


def _exporter(protocol: str) -> SpanExporter:
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as ByGrpc

            return ByGrpc()
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as ByHttp
    except ModuleNotFoundError as absent:
        raise MissingExtraError("otlp", absent.name or "opentelemetry") from absent
    return ByHttp()


@lru_cache(maxsize=2)
def exporter_of(settings: TraceSettings) -> Exporter:
    """Return the exporter of this process with these settings."""
    return Exporter(settings)
