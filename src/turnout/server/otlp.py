"""Metrics pushed to an OpenTelemetry collector over OTLP: what ``/metrics`` shows, under the same names.

The variables are OpenTelemetry's own. The one of the endpoint turns it on; the exporter reads those of the transport
(headers, certificates, compression, timeouts), the resource those of its identity.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric, Sample

from turnout._built import version as __version__
from turnout.base.background import Background, run_once
from turnout.base.untrusted import decimal
from turnout.errors import ConfigError, MissingExtraError, Mistake
from turnout.traces.spans import protocol_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export

_FOR_ALL: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_FOR_METRICS: Final = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_USUAL_INTERVAL: Final = "60000"
_LAST_SECONDS = 2.0
"""Seconds that the last push may take when the server stops."""


def endpoint_of(environment: Mapping[str, str]) -> str | None:
    """Return the OTLP endpoint for metrics: its own variable as it is, or the general one, over HTTP with a path.

    Raises:
        ConfigError: the protocol is not supported.
    """
    named, base = environment.get(_FOR_METRICS), environment.get(_FOR_ALL)
    if not (named or base) or environment.get("OTEL_METRICS_EXPORTER") == "none":
        return None
    if protocol_of(environment, "METRICS") == "grpc":
        return named or base
    return named or f"{(base or '').rstrip('/')}/v1/metrics"


class _Moments(NamedTuple):
    """Start and time of data points, in nanoseconds since the epoch."""

    start: int
    now: int


class Push:
    """Pusher of a registry at a fixed interval, and a last time at its end.

    Args:
        registry: registry of the metrics; sums are counted since this was made.
        endpoint: URL of the collector.
        environment: `OTEL_METRIC_EXPORT_INTERVAL` and the service's name come from there, all else that the exporter
            knows from the process's own.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
        ConfigError: the interval is no number of milliseconds.
    """

    def __init__(self, registry: CollectorRegistry, endpoint: str, environment: Mapping[str, str]) -> None:
        self._seconds = _interval(environment)
        try:
            from turnout.traces.export import resource_of

            self._exporter = _exporter(protocol_of(environment, "METRICS"), endpoint)
        except ModuleNotFoundError as absent:
            raise MissingExtraError("otlp", absent.name or "opentelemetry") from absent
        self._registry = registry
        self._resource = resource_of(environment)
        self._began = time.time_ns()
        self._works = True
        self._background = Background("push of metrics", self._push, every=self._seconds, delay=self._seconds)

    def __enter__(self) -> Self:
        self._background.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._background.stop()
        last = run_once("last push of metrics", self._push_last)
        last.join(_LAST_SECONDS)
        # What still waits for its next try is given up.
        self._exporter.shutdown()
        last.join()

    def _push_last(self) -> None:
        self._background.join()
        if self._works:
            self._push()

    def _push(self) -> None:
        """Push once. The exporter retries failures that may be temporary, and logs the others."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        self._works = False
        self._works = self._exporter.export(self._data()) is MetricExportResult.SUCCESS

    def _data(self) -> export.MetricsData:
        from opentelemetry.sdk.metrics import export
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        moments = _Moments(self._began, time.time_ns())
        metrics = [metric for family in self._registry.collect() for metric in _converted(family, moments)]
        scope = export.ScopeMetrics(InstrumentationScope("turnout", __version__), metrics, "")
        return export.MetricsData([export.ResourceMetrics(self._resource, [scope], "")])


def _interval(environment: Mapping[str, str]) -> float:
    text = environment.get(_INTERVAL) or _USUAL_INTERVAL
    if not decimal(text):
        raise ConfigError([Mistake(_INTERVAL, f"found {text!r}, expected a number of milliseconds, 1 or more")])
    return int(text) / 1000


def _exporter(protocol: str, endpoint: str) -> export.MetricExporter:
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as ByGrpc

        return ByGrpc(endpoint=endpoint)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as ByHttp

    return ByHttp(endpoint=endpoint)


def _converted(family: Metric, moments: _Moments) -> Iterator[export.Metric]:
    """Yield a family's metrics under the names that their samples have; when something was created is none of them."""
    from opentelemetry.sdk.metrics import export

    cumulative = export.AggregationTemporality.CUMULATIVE
    data: export.Sum | export.Gauge | export.Histogram
    if family.type == "histogram":
        # The exporter makes a metric without data, which OTLP does not know, of one without points.
        if distributions := list(_distributions(family, moments)):
            data = export.Histogram(distributions, cumulative)
            yield export.Metric(family.name, family.documentation, "", data)
        return
    by_name: dict[str, list[export.NumberDataPoint]] = {}
    for sample in family.samples:
        if not sample.name.endswith("_created"):
            point = export.NumberDataPoint(sample.labels, *moments, float(sample.value))
            by_name.setdefault(sample.name, []).append(point)
    for name, points in by_name.items():
        data = export.Sum(points, cumulative, True) if family.type == "counter" else export.Gauge(points)
        yield export.Metric(name, family.documentation, "", data)


def _distributions(family: Metric, moments: _Moments) -> Iterator[export.HistogramDataPoint]:
    from opentelemetry.sdk.metrics import export

    # Prometheus does not know the extremes, and OTLP can do without.
    unknown: Any = None
    by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in family.samples:
        labels = tuple(sorted((name, text) for name, text in sample.labels.items() if name != "le"))
        by_labels.setdefault(labels, []).append(sample)
    for labels, samples in by_labels.items():
        buckets = [sample for sample in samples if sample.name.endswith("_bucket")]
        yield export.HistogramDataPoint(
            dict(labels),
            *moments,
            count=int(buckets[-1].value),
            sum=next(float(sample.value) for sample in samples if sample.name.endswith("_sum")),
            bucket_counts=list(_differences(bucket.value for bucket in buckets)),
            explicit_bounds=[float(bucket.labels["le"]) for bucket in buckets[:-1]],
            min=unknown,
            max=unknown,
        )


def _differences(totals: Iterable[float]) -> Iterator[int]:
    before = 0
    for total in totals:
        yield int(total) - before
        before = int(total)
