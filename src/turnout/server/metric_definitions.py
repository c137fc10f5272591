"""Metrics of a server's routes: name, type, labels and description of each, defined once.

`turnout.server.metrics` fills them in, and docs/reference/metrics.md is generated from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from turnout.engine.counts import COUNTS, OUTCOMES, CountInfo

_FAMILIES: Final[dict[str, Any]] = {
    "counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily,
}  # fmt: skip

_BATCH = "when a micro-batch has ended; since the server began"
_END = "when a micro-batch has ended"
_LOOK = "every 2 s, from the servers of NATS; no other source reports it"
_ASKED = "on request"
_POSTED = "when a request has ended; since the server began"
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
