"""Metrics of routes, to Prometheus and over OTLP: most are read on request, only durations are counted here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Histogram,
    Info,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric, Sample
from prometheus_client.exposition import choose_encoder

from turnout._built import version as __version__
from turnout.base.background import Background, BackgroundStatus, run_once, statuses
from turnout.base.untrusted import decimal
from turnout.engine.counts import COUNTS, OUTCOMES, CountInfo, Counts, Stages
from turnout.errors import ConfigError, MissingExtraError, Mistake
from turnout.runtime.offsets import Progress
from turnout.runtime.open_splits import SlotUse
from turnout.runtime.preflight import Lag
from turnout.server.deliveries import ScheduledState, WebhookState
from turnout.server.election import Elector
from turnout.server.health import LossReport
from turnout.server.inputs import OUTCOMES as OUTCOMES_OF_INPUTS
from turnout.server.inputs import Intake
from turnout.server.routes.supervisor import Phase
from turnout.server.routes.table import RouteEntry
from turnout.traces.spans import protocol_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export


_FAMILIES: Final[dict[str, Any]] = {
    "counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily,
}  # fmt: skip

_BATCH = "when a micro-batch has ended; since the server began"
_END = "when a micro-batch has ended"
_LOOK = "every 2 s, from the servers of NATS; no other source reports it"
_ASKED = "on request"
_POSTED = "when a request has ended; since the server began"
_LED = "at once, from the server that leads the delay stream"
_QUEUED = "every 15 s, from the servers of the deliveries; the same on each server that delivers them"
_LOSS = "every 15 s, from the counts of each minute"


@dataclass(frozen=True, slots=True)
class Measure:
    """Definition of one metric.

    Attributes:
        name: as queries have it; of a histogram without ``_bucket``, ``_sum`` and ``_count``.
        kind: ``counter``, ``gauge`` or ``histogram``.
        labels: labels of its series.
        unit: unit of its values.
        text: its meaning, as a sentence; Prometheus gets it as well.
        counted: event that changes the number, and its start.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    unit: str
    text: str
    counted: str

    def family(self) -> Any:
        """Return the metric without a series, for a collector to fill."""
        # The library adds what counters end with.
        return _FAMILIES[self.kind](self.name.removesuffix("_total"), self.text, labels=self.labels)


_ROUTE = ("route",)
_STAGE = ("route", "stage")


def _of_count(info: CountInfo) -> Measure:
    text = f"{info.unit.capitalize()} {info.meaning}.".replace("`", "")
    return Measure(info.metric, "counter", _ROUTE, info.unit, text, _BATCH)


MEASURES: Final = {
    measure.name: measure
    for measure in (
        *(_of_count(info) for info in COUNTS.values() if info.metric),
        Measure(
            "turnout_route_records_total", "counter", ("route", "outcome"), "records",
            f"Records by their outcome: {', '.join(OUTCOMES)}.", _BATCH,
        ),
        Measure(
            "turnout_route_stage_records_total", "counter", _STAGE, "records",
            "Records that reached a stage: source, key, value, each transform by its name, mapping, match, sink,"
            " deadLetter.",
            _BATCH,
        ),
        Measure(
            "turnout_route_stage_failures_total", "counter", _STAGE, "records",
            "Records that failed in a stage; their sum is that of dead_lettered and discarded.", _BATCH,
        ),
        Measure(
            "turnout_route_delivery_seconds", "histogram", _ROUTE, "seconds",
            "How long messages to NATS took, dead letters included, from publishing to the acknowledgement.", _BATCH,
        ),
        Measure(
            "turnout_route_batch_seconds", "histogram", _ROUTE, "seconds",
            "How long micro-batches took, from the first record to the last acknowledgement.", _BATCH,
        ),
        Measure(
            "turnout_route_webhook_messages_total", "counter", ("route", "outcome"), "messages",
            "Messages for webhooks: delivered, or dead after their last attempt.", _POSTED,
        ),
        Measure(
            "turnout_route_webhook_requests_total", "counter", ("route", "outcome"), "requests",
            "Requests to webhooks: taken with a 2xx, or failed.", _POSTED,
        ),
        Measure(
            "turnout_route_webhook_attempts_total", "counter", ("route", "outcome"), "attempts",
            "Failed attempts: not_sent, as no request could be made or the endpoint is disabled; retried, as another"
            " attempt follows.",
            _POSTED,
        ),
        Measure(
            "turnout_route_webhook_up", "gauge", _ROUTE, "0 or 1",
            "Whether the route's dispatcher delivers: 0 while it has failed, or stores no outcomes.", _ASKED,
        ),
        Measure(
            "turnout_route_webhook_waiting", "gauge", _ROUTE, "messages",
            "Messages for webhooks that wait in the stream or topic, those under way and between attempts included.",
            _QUEUED,
        ),
        Measure(
            "turnout_route_webhook_oldest_seconds", "gauge", _ROUTE, "seconds",
            "Age of the oldest of them; 0 without any.", _QUEUED,
        ),
        Measure(
            "turnout_route_webhook_endpoints", "gauge", ("route", "state"), "endpoints",
            "Endpoints with deliveries since the dispatcher began: closed and open are states of the circuit breaker.",
            _ASKED,
        ),
        Measure(
            "turnout_route_scheduled_messages_total", "counter", ("route", "outcome"), "messages",
            "Messages of the delay stream: published; cancelled, or replaced; refused by their sinks.", _LED,
        ),
        Measure(
            "turnout_route_scheduled_pending", "gauge", _ROUTE, "messages",
            "Messages that wait in the delay stream; cancelled ones count until their time.", _LED,
        ),
        Measure(
            "turnout_route_scheduled_late_seconds", "gauge", _ROUTE, "seconds",
            "For how long the message that is published next has been due; 0 if it is not yet.", _LED,
        ),
        Measure(
            "turnout_route_scheduled_delay_seconds", "histogram", _ROUTE, "seconds",
            "How long after their times messages of the delay stream were stored.", _LED,
        ),
        Measure(
            "turnout_route_webhook_unstored_total", "counter", _ROUTE, "outcomes",
            "Outcomes of requests to webhooks, as dead letters or attempts, that the queue's server did not store at"
            " the first attempt.",
            _POSTED,
        ),
        Measure(
            "turnout_route_webhook_unstored_now", "gauge", _ROUTE, "outcomes",
            "Those of them that are not stored yet: their messages wait, and nothing is posted in their place.",
            _POSTED,
        ),
        Measure(
            "turnout_input_requests_total", "counter", ("input", "outcome"), "requests",
            "Requests to inputs: stored, refused (signature or token), limited (rate), invalid, or unavailable, as the"
            " stream did not confirm.",
            "when a request is answered; since the server began",
        ),
        Measure(
            "turnout_input_messages_total", "counter", ("input",), "messages",
            "Messages stored by inputs, without duplicates.", "when a request is answered; since the server began",
        ),
        Measure(
            "turnout_background_up", "gauge", ("work",), "0 or 1",
            "0 for a thread or task of the server whose work fails, and is tried again with growing pauses.", _ASKED,
        ),
        Measure(
            "turnout_background_failures_total", "counter", ("work",), "failures",
            "Failures of threads and tasks that last until they are stopped.",
            "when one fails; since its start",
        ),
        Measure(
            "turnout_leader", "gauge", (), "0 or 1",
            "Whether this one of several servers leads; a standby has this metric only.", _ASKED,
        ),
        Measure("turnout_leader_term", "gauge", (), "terms", "Term of the leader; it grows with each.", _ASKED),
        Measure(
            "turnout_lease_seconds", "gauge", (), "seconds",
            "Seconds for which the leader leads without another renewal of its lease.", _ASKED,
        ),
        Measure("turnout_route_up", "gauge", _ROUTE, "0 or 1", "Whether the route runs.", _ASKED),
        Measure(
            "turnout_route_failed", "gauge", _ROUTE, "0 or 1",
            "Whether the route has failed too often, and waits for an operator.", _ASKED,
        ),
        Measure(
            "turnout_route_healthy", "gauge", _ROUTE, "0 or 1",
            "0 where the route loses more than its limits allow, or far more than in the day before.", _LOSS,
        ),
        Measure(
            "turnout_route_loss_ratio", "gauge", ("route", "loss"), "ratio",
            "Share of the last 15 minutes by kind of loss: dead_lettered, discarded and unmatched of the records read,"
            " undeliverable of the deliveries; not there below 100 of them.",
            _LOSS,
        ),
        Measure(
            "turnout_route_last_success_timestamp_seconds", "gauge", _ROUTE, "seconds since 1970",
            "When the last micro-batch ended; not there before the first one.", _END,
        ),
        Measure(
            "turnout_route_subscriptions", "gauge", _ROUTE, "subscriptions",
            "Subscriptions that the route matches with.", _END,
        ),
        Measure(
            "turnout_route_subscriptions_revision", "gauge", _ROUTE, "revision",
            "The revision of the subscriptions in the last micro-batch.", _END,
        ),
        Measure(
            "turnout_route_waits_for_task_slot", "gauge", _ROUTE, "0 or 1",
            "Whether a route of latency: low has no task slot for open splits, and delivers in short micro-batches.",
            _ASKED,
        ),
        Measure("turnout_task_slots", "gauge", (), "slots", "Task slots of the Spark application.", _ASKED),
        Measure(
            "turnout_task_slots_taken", "gauge", (), "slots",
            "Task slots that open splits have, one of each route; one slot is always left.", _ASKED,
        ),
        Measure(
            "turnout_route_lag_records", "gauge", ("route", "stream", "partition"), "sequences",
            "Sequences of the source that are not done yet; with a filter not all of them are for the route.", _LOOK,
        ),
        Measure(
            "turnout_route_lag_seconds", "gauge", _ROUTE, "seconds",
            "The age of the oldest record that is not done yet; 0 where there is none.", _LOOK,
        ),
    )
}  # fmt: skip
"""All of the routes' and their application's, by name."""


"""Outcomes of a record; their sum is the number of records read."""

_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._has_exemplars = False
        measure = MEASURES["turnout_route_batch_seconds"]
        self._seconds = Histogram(
            measure.name,
            measure.text,
            measure.labels,
            buckets=_BUCKETS,
            # Set from the list of routes, without removed ones.
            registry=None,
        )
        Info("turnout_build", "Which turnout this is.", registry=self.registry).info({"version": __version__})
        for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR, _Background()):
            self.registry.register(collector)

    def watch(
        self,
        entries: Callable[[], list[RouteEntry]],
        lag: Callable[[str], Lag | None],
        losses: Callable[[str], LossReport],
        slots: Callable[[], SlotUse | None],
    ) -> None:
        """Register metrics of the routes, their lag, losses and task slots, which are read at each scrape."""
        self.registry.register(_Routes(entries, lag, losses, slots, self._seconds))

    def watch_webhooks(
        self,
        totals: Callable[[], Mapping[str, Mapping[str, int]]],
        states: Callable[[], Mapping[str, WebhookState]] = dict,
    ) -> None:
        """Register metrics of deliveries over HTTP, which are read at each scrape."""
        self.registry.register(_Webhooks(totals, states))

    def watch_scheduled(self, states: Callable[[], Mapping[str, ScheduledState]]) -> None:
        """Register metrics of messages that are delivered later, which are read at each scrape."""
        self.registry.register(_Scheduled(states))

    def watch_leadership(self, elector: Elector) -> None:
        """Register metrics of the election of the leader, which are read at each scrape."""
        self.registry.register(_Election(elector))

    def watch_inputs(self, intake: Intake) -> None:
        """Register metrics of the inputs, which are read at each scrape."""
        self.registry.register(_Inputs(intake))

    def add(self, registry: CollectorRegistry) -> None:
        """Add the metrics of another registry: the subscriptions service's."""
        self.registry.register(registry)

    def progressed(self, name: str, _more: Counts, progress: Progress) -> None:
        """Record a finished micro-batch."""
        if progress.batch >= 0:
            context = progress.context
            self._has_exemplars = self._has_exemplars or context is not None
            self._seconds.labels(name).observe(progress.batch_seconds, context.ids() if context else None)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return self.answer("")[0]

    def answer(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in an accepted format, and its content type: OpenMetrics where there are exemplars."""
        encode, content_type = choose_encoder(accept if self._has_exemplars else "")
        return encode(self.registry), content_type


class _Election:
    """Collector of the metrics of the election of a leader."""

    def __init__(self, elector: Elector) -> None:
        self._elector = elector

    def collect(self) -> Iterator[Metric]:
        """Yield whether this server leads, its term, and what is left of its lease."""
        seconds = max(0.0, self._elector.remaining())
        for name, value in (
            ("turnout_leader", seconds > 0),
            ("turnout_leader_term", self._elector.term or 0),
            ("turnout_lease_seconds", seconds),
        ):
            family = MEASURES[name].family()
            family.add_metric((), value)
            yield family


class _Background:
    """Collector of the metrics of background work."""

    def collect(self) -> Iterator[Metric]:
        """Yield the state of all threads and tasks that last until they are stopped."""
        up = MEASURES["turnout_background_up"].family()
        failures = MEASURES["turnout_background_failures_total"].family()
        by_name: dict[str, list[BackgroundStatus]] = {}
        for status in statuses():
            by_name.setdefault(status.name, []).append(status)
        for name, several in by_name.items():
            up.add_metric((name,), all(status.is_alive and not status.problem for status in several))
            failures.add_metric((name,), sum(status.failures for status in several))
        yield from (up, failures)


class _Routes:
    """Collector of the routes' metrics, which are read at each scrape."""

    def __init__(
        self,
        entries: Callable[[], list[RouteEntry]],
        lag: Callable[[str], Lag | None],
        losses: Callable[[str], LossReport],
        slots: Callable[[], SlotUse | None],
        seconds: Histogram,
    ) -> None:
        self._entries = entries
        self._lag = lag
        self._losses = losses
        self._slots = slots
        self._seconds = seconds

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of all routes."""
        entries = self._entries()
        yield from _counters(entries)
        yield from _flows(entries)
        yield from _gauges(entries)
        yield from self._lags(entries)
        yield from self._healths(entries)
        yield from _slots(entries, self._slots() or SlotUse(0))
        names = {entry.name for entry in entries}
        for family in self._seconds.collect():
            family.samples = [sample for sample in family.samples if sample.labels["route"] in names]
            yield family

    def _healths(self, entries: list[RouteEntry]) -> Iterator[Metric]:
        healthy = MEASURES["turnout_route_healthy"].family()
        shares = MEASURES["turnout_route_loss_ratio"].family()
        for entry in entries:
            report = self._losses(entry.name)
            healthy.add_metric((entry.name,), not report.problems)
            for loss, share in report.shares.items():
                shares.add_metric((entry.name, loss), share)
        yield healthy
        yield shares

    def _lags(self, entries: list[RouteEntry]) -> Iterator[Metric]:
        records = MEASURES["turnout_route_lag_records"].family()
        seconds = MEASURES["turnout_route_lag_seconds"].family()
        for entry in entries:
            lag = self._lag(entry.name)
            for stream, count in (lag.records if lag else {}).items():
                records.add_metric((entry.name, stream, "0"), count)
            if lag is not None and lag.seconds is not None:
                seconds.add_metric((entry.name,), lag.seconds)
        yield records
        yield seconds


class _Webhooks:
    """Collector of the metrics of deliveries over HTTP."""

    def __init__(
        self,
        totals: Callable[[], Mapping[str, Mapping[str, int]]],
        states: Callable[[], Mapping[str, WebhookState]],
    ) -> None:
        self._totals = totals
        self._states = states

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all routes with webhooks."""
        messages = MEASURES["turnout_route_webhook_messages_total"].family()
        requests = MEASURES["turnout_route_webhook_requests_total"].family()
        attempts = MEASURES["turnout_route_webhook_attempts_total"].family()
        unstored = MEASURES["turnout_route_webhook_unstored_total"].family()
        waiting = MEASURES["turnout_route_webhook_unstored_now"].family()
        for route, counts in self._totals().items():
            for outcome in ("delivered", "dead"):
                messages.add_metric((route, outcome), counts.get(outcome, 0))
            requests.add_metric((route, "taken"), counts.get("delivered", 0))
            requests.add_metric((route, "failed"), max(0, counts.get("failed", 0) - counts.get("not_sent", 0)))
            for outcome in ("not_sent", "retried"):
                attempts.add_metric((route, outcome), counts.get(outcome, 0))
            unstored.add_metric((route,), counts.get("unstored", 0))
            waiting.add_metric((route,), counts.get("unstored", 0) - counts.get("stored_late", 0))
        yield from (messages, requests, attempts, unstored, waiting)
        yield from self._gauges()

    def _gauges(self) -> Iterator[Metric]:
        up = MEASURES["turnout_route_webhook_up"].family()
        backlog = MEASURES["turnout_route_webhook_waiting"].family()
        oldest = MEASURES["turnout_route_webhook_oldest_seconds"].family()
        endpoints = MEASURES["turnout_route_webhook_endpoints"].family()
        for route, state in self._states().items():
            up.add_metric((route,), state.is_up)
            if state.waiting is not None:
                backlog.add_metric((route,), state.waiting)
            if state.oldest_seconds is not None:
                oldest.add_metric((route,), state.oldest_seconds)
            for name, count in state.endpoints.items():
                endpoints.add_metric((route, name), count)
        yield from (up, backlog, oldest, endpoints)


class _Scheduled:
    """Collector of the metrics of delay streams."""

    def __init__(self, states: Callable[[], Mapping[str, ScheduledState]]) -> None:
        self._states = states

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all routes with a delay stream."""
        messages = MEASURES["turnout_route_scheduled_messages_total"].family()
        pending = MEASURES["turnout_route_scheduled_pending"].family()
        late = MEASURES["turnout_route_scheduled_late_seconds"].family()
        delay = MEASURES["turnout_route_scheduled_delay_seconds"].family()
        for route, state in self._states().items():
            for outcome, count in state.messages.items():
                messages.add_metric((route, outcome), count)
            delay.add_metric((route,), state.delay.cumulative(), state.delay.seconds)
            if state.pending is not None and state.late_seconds is not None:
                pending.add_metric((route,), state.pending)
                late.add_metric((route,), state.late_seconds)
        yield from (messages, pending, late, delay)


class _Inputs:
    """Collector of the metrics of the inputs."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all inputs."""
        requests = MEASURES["turnout_input_requests_total"].family()
        messages = MEASURES["turnout_input_messages_total"].family()
        for name in self._intake.inputs:
            for outcome in OUTCOMES_OF_INPUTS:
                requests.add_metric((name, outcome), self._intake.counts[name, outcome])
            messages.add_metric((name,), self._intake.messages[name])
        yield from (requests, messages)


def _counters(entries: list[RouteEntry]) -> Iterator[Metric]:
    families = {name: MEASURES[info.metric].family() for name, info in COUNTS.items() if info.metric}
    records = MEASURES["turnout_route_records_total"].family()
    for entry in entries:
        counts = entry.status.counts
        for name, family in families.items():
            family.add_metric((entry.name,), getattr(counts, name))
        for outcome in OUTCOMES:
            records.add_metric((entry.name, outcome), getattr(counts, outcome))
    yield from (*families.values(), records)


def _flows(entries: list[RouteEntry]) -> Iterator[Metric]:
    """Yield metrics by stage: stages of the current version, and earlier ones until the server ends."""
    records = MEASURES["turnout_route_stage_records_total"].family()
    failures = MEASURES["turnout_route_stage_failures_total"].family()
    delivery = MEASURES["turnout_route_delivery_seconds"].family()
    for entry in entries:
        flow = entry.status.counts.flow
        present = () if entry.version is None else Stages.of(entry.version.route).names
        for stage in dict.fromkeys((*present, *flow.taken)):
            records.add_metric((entry.name, stage), flow.taken.get(stage, 0))
            failures.add_metric((entry.name, stage), flow.failed.get(stage, 0))
        delivery.add_metric((entry.name,), flow.delivery.cumulative(), flow.delivery.seconds)
    yield from (records, failures, delivery)


def _gauges(entries: list[RouteEntry]) -> Iterator[Metric]:
    up = MEASURES["turnout_route_up"].family()
    failed = MEASURES["turnout_route_failed"].family()
    success = MEASURES["turnout_route_last_success_timestamp_seconds"].family()
    subscriptions = MEASURES["turnout_route_subscriptions"].family()
    revision = MEASURES["turnout_route_subscriptions_revision"].family()
    for entry in entries:
        status, name = entry.status, (entry.name,)
        up.add_metric(name, status.phase is Phase.RUNNING)
        failed.add_metric(name, status.phase is Phase.FAILED)
        if status.last_success is not None:
            success.add_metric(name, status.last_success)
        if status.progress is not None and status.progress.subscriptions is not None:
            subscriptions.add_metric(name, status.progress.subscriptions)
        if status.progress is not None and status.progress.revision is not None:
            revision.add_metric(name, status.progress.revision)
    yield from (up, failed, success, subscriptions, revision)


def _slots(entries: list[RouteEntry], use: SlotUse) -> Iterator[Metric]:
    """Yield the task slots, and the routes that wait for one."""
    total, busy = MEASURES["turnout_task_slots"].family(), MEASURES["turnout_task_slots_taken"].family()
    waits = MEASURES["turnout_route_waits_for_task_slot"].family()
    total.add_metric((), use.total)
    busy.add_metric((), len(use.taken))
    for entry in entries:
        waits.add_metric((entry.name,), entry.name in use.waiting)
    yield from (total, busy, waits)


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
