"""The reference of what ``/metrics`` of ``turnout serve`` tells, made of the code that tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.metrics_core import Metric

from turnout.rpc.call_interceptor import CallMetrics as RpcMetrics
from turnout.server.metrics import MEASURES, Metrics

__all__ = ["NAMES", "metrics_reference"]

_HEAD = """# Metrics

What `turnout serve` tells Prometheus at `/metrics`, and pushes over [OTLP](../monitoring.md) under the
same names.
A counter begins at 0 with the process; a route that is removed takes its series with it, and one that is changed or
restarted goes on counting. A histogram is three series: `_bucket` (with `le`), `_sum` and `_count`.

## Routes

What a micro-batch did is counted when it has ended, all at once: one that failed and is done again counts once.
Outcomes, stages and messages of a route therefore always agree with each other.

| metric | type | labels | unit | meaning | counted |
| --- | --- | --- | --- | --- | --- |
"""

_SERVICE = """
## The subscriptions service

There where the server has a store, and at the metrics port of `turnout subscriptions serve`.

| metric | type | labels | unit | meaning |
| --- | --- | --- | --- | --- |
"""

_PROCESS = """
## The process

Of the server's own process alone: the JVM and its Python workers are processes beside it.

| metric | type | labels | unit | meaning |
| --- | --- | --- | --- | --- |
"""

_CREATED = """
Counters and histograms of the service, and `turnout_route_batch_seconds`, have a gauge `…_created` for each
series: when it began, in seconds since 1970.
"""

_UNITS = {
    "seconds": "seconds", "bytes": "bytes", "fds": "files", "calls": "calls", "running": "calls",
    "subscriptions": "subscriptions", "revision": "revision", "objects": "objects", "collections": "collections",
}  # fmt: skip


def metrics_reference() -> str:
    """The page."""
    return "".join([_HEAD, *_routes(), _SERVICE, *_rows(_service()), _PROCESS, *_rows(_process()), _CREATED])


def _routes() -> Iterator[str]:
    for measure in MEASURES.values():
        labels = ", ".join(f"`{label}`" for label in measure.labels)
        unit, text, counted = measure.unit, measure.text, measure.counted
        yield f"| `{measure.name}` | {measure.kind} | {labels} | {unit} | {text} | {counted} |\n"


def _service() -> Iterable[Metric]:
    metrics = RpcMetrics()
    metrics.watch_index(lambda: 0, lambda: 0)
    with metrics.running("service", "method"):
        pass
    metrics.count_call("service", "method", "OK", 0.0)
    return metrics.registry.collect()


def _process() -> Iterator[Metric]:
    """Return the build, and the process metrics of the library."""
    yield from (one for one in Metrics().registry.collect() if one.name == "turnout_build")
    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    yield from registry.collect()


def _rows(families: Iterable[Metric]) -> Iterator[str]:
    for family in families:
        labels = dict.fromkeys(name for sample in family.samples for name in sample.labels if name != "le")
        columns = (f"`{_name(family)}`", _kind(family), ", ".join(f"`{label}`" for label in labels), _unit(family))
        yield f"| {' | '.join(columns)} | {family.documentation.rstrip('.')}. |\n"


def _name(family: Metric) -> str:
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def _kind(family: Metric) -> str:
    return "gauge" if family.type == "info" else family.type


def _unit(family: Metric) -> str:
    parts = family.name.split("_")
    return next((unit for part, unit in _UNITS.items() if part in parts), "1")


NAMES = frozenset({*MEASURES, *(_name(one) for one in (*_service(), *_process()))})
"""Every metric that a server with a store tells; histograms by the name before their suffixes."""
