"""Streams, or Kafka topics, of a route's deliveries to webhooks, made before the first is stored or posted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from turnout.kafka.admin import KafkaAdmin
from turnout.nats.protocol.errors import StreamNotFoundError
from turnout.nats.wire import Connection, create_stream, stream_info
from turnout.routes import Route
from turnout.routes.endpoints import KafkaSink, NatsSink
from turnout.routes.webhooks import WebhooksPart

_DUPLICATE_WINDOW_NANOSECONDS: Final = 3_600 * 10**9
_PARTITIONS: Final = 8
_MONTH_MS: Final = 31 * 86_400_000
_TOPICS: Final[tuple[tuple[int, Mapping[str, str]], ...]] = (
    # Deliveries have the times of their records, which may be older than the retention.
    (_PARTITIONS, {"retention.ms": str(_MONTH_MS), "message.timestamp.type": "LogAppendTime"}),
    (1, {"retention.ms": "-1"}),
    (1, {"cleanup.policy": "compact"}),
)
"""Partitions and settings of the topics of waiting deliveries, of dead letters, and of attempts."""


def make_webhook_streams(route: Route) -> None:
    """Make the stream of waiting deliveries and that of dead letters, or their Kafka topics, unless they exist.

    Args:
        route: the route; without webhooks nothing is made.

    Raises:
        ConnectionLostError: the server cannot be reached.
        StreamError: the server refuses one; another stream may have its subjects.
    """
    webhooks = route.webhooks
    if webhooks is None:
        return
    sink = list(route.sinks.values())[webhooks.sink_index(list(route.sinks))]
    if isinstance(sink, KafkaSink):
        _make_topics(sink, webhooks)
    else:
        assert isinstance(sink, NatsSink)
        _make_streams(sink, webhooks)


def _make_topics(sink: KafkaSink, webhooks: WebhooksPart) -> None:
    with KafkaAdmin(sink.client) as admin:
        existing = admin.existing(webhooks.topics)
        for name, (partitions, config) in zip(webhooks.topics, _TOPICS, strict=True):
            if name not in existing:
                admin.create_topic(name, partitions, config)


def _make_streams(sink: NatsSink, webhooks: WebhooksPart) -> None:
    with Connection.open(sink.connection) as connection:
        subjects, retentions = (webhooks.subject, webhooks.dead_subject), ("workqueue", "limits")
        for name, subject, retention in zip(webhooks.streams, subjects, retentions, strict=True):
            try:
                stream_info(connection, name)
            except StreamNotFoundError:
                config = {
                    "name": name,
                    "subjects": [f"{subject}.>"],
                    "retention": retention,
                    "duplicate_window": _DUPLICATE_WINDOW_NANOSECONDS,
                    "allow_direct": True,
                }
                create_stream(connection, config)
