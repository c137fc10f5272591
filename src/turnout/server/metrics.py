"""Prometheus metrics of routes: most are read at the scrape, only durations are counted here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Histogram,
    Info,
    generate_latest,
)
from prometheus_client.core import Metric

from turnout._built import version as __version__
from turnout.base.background import BackgroundStatus, statuses
from turnout.engine.counts import COUNTS, OUTCOMES, Counts
from turnout.engine.flow import Stages
from turnout.runtime.lag import Lag
from turnout.runtime.open_splits.slots import SlotUse
from turnout.runtime.progress import Progress
from turnout.server.inputs.intake import OUTCOMES as OUTCOMES_OF_INPUTS
from turnout.server.inputs.intake import Intake
from turnout.server.losses import LossReport
from turnout.server.metric_definitions import MEASURES
from turnout.server.route_entry import RouteEntry
from turnout.server.supervisor import Phase

"""Outcomes of a record; their sum is the number of records read."""

_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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

    def watch_webhooks(self, totals: Callable[[], Mapping[str, Mapping[str, int]]]) -> None:
        """Register metrics of deliveries over HTTP, which are read at each scrape."""
        self.registry.register(_Webhooks(totals))

    def watch_inputs(self, intake: Intake) -> None:
        """Register metrics of the inputs, which are read at each scrape."""
        self.registry.register(_Inputs(intake))

    def add(self, registry: CollectorRegistry) -> None:
        """Add the metrics of another registry: the subscriptions service's."""
        self.registry.register(registry)

    def progressed(self, name: str, _more: Counts, progress: Progress) -> None:
        """Record a finished micro-batch."""
        if progress.batch >= 0:
            self._seconds.labels(name).observe(progress.batch_seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


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

    def __init__(self, totals: Callable[[], Mapping[str, Mapping[str, int]]]) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all routes with webhooks."""
        messages = MEASURES["turnout_route_webhook_messages_total"].family()
        requests = MEASURES["turnout_route_webhook_requests_total"].family()
        unstored = MEASURES["turnout_route_webhook_unstored_total"].family()
        waiting = MEASURES["turnout_route_webhook_unstored_now"].family()
        for route, counts in self._totals().items():
            for outcome in ("delivered", "dead"):
                messages.add_metric((route, outcome), counts.get(outcome, 0))
            requests.add_metric((route, "taken"), counts.get("delivered", 0))
            requests.add_metric((route, "failed"), counts.get("failed", 0))
            unstored.add_metric((route,), counts.get("unstored", 0))
            waiting.add_metric((route,), counts.get("unstored", 0) - counts.get("stored_late", 0))
        yield from (messages, requests, unstored, waiting)


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
