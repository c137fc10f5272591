"""Dead letters of deliveries: their headers, and reading them for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from turnout.delivery.attempts import Attempt, attempts_of
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.progress import PartitionProgress
from turnout.kafka.reader import PartitionRange, RangeReader, committed_progress
from turnout.nats.protocol.headers import Headers
from turnout.routes.webhooks import WebhooksPart
from turnout.runtime.kafka_source import partitions_of
from turnout.subscriptions.webhooks import delivery_address

ATTEMPTS: Final = "Turnout-Attempts"
"""Header of a dead letter: its failed attempts as JSON, each with time, status and error."""

REASON: Final = "Turnout-Reason"
"""Header of a dead letter: why it was given up."""

WEBHOOK_ID: Final = "Turnout-Webhook-Id"
"""Header of a dead letter, and of redriven messages: the ``webhook-id`` of its requests."""


@dataclass(frozen=True, slots=True)
class DeadDelivery:
    """Delivery that was given up.

    Attributes:
        position: sequence in its stream, or ``partition:offset``.
        destination: as the subscription has it; "" if its subject names none.
        subscription: its id, empty for none.
        at: time at which it was given up; None if unknown.
        reason: why.
        webhook_id: ``webhook-id`` of its requests.
        attempts: the failed ones, the oldest first; errors are the beginnings of responses.
        size: bytes of the message.
    """

    position: str
    destination: str
    subscription: str
    at: datetime | None
    reason: str
    webhook_id: str
    attempts: tuple[Attempt, ...]
    size: int

    @classmethod
    def of(
        cls, position: str, address: tuple[str, str] | None, at: datetime | None, headers: Headers, size: int
    ) -> Self:
        """Return a dead letter by its headers, which others may have written: attempts that cannot be read are none."""
        reason, webhook_id, written = (headers.get(name, [""])[0] for name in (REASON, WEBHOOK_ID, ATTEMPTS))
        attempts = attempts_of(written.encode(errors="replace") or None)
        destination, subscription = address or ("", "")
        return cls(position, destination, subscription, at, reason, webhook_id, tuple(attempts), size)


def kafka_letters(options: KafkaOptions, webhooks: WebhooksPart, count: int) -> list[DeadDelivery]:
    """Return the last dead letters of each partition that no redrive has moved, the newest first.

    Raises:
        StreamError: a broker refuses the topic.
        ConnectionLostError: no broker answers.
    """
    topic = webhooks.topics[1]
    found: list[DeadDelivery] = []
    with KafkaAdmin(options) as admin:
        ends = admin.ends(partitions_of(admin.describe([topic])))
    moved = committed_progress(options, topic, f"{webhooks.group}.redrive", [number for _, number in ends])
    for (_, number), end in ends.items():
        progress = moved.get(number) or PartitionProgress(end.first)
        start = max(end.first, progress.next, end.next - count)
        span = PartitionRange(topic, number, start, end.next)
        for batch in RangeReader(options, span, fail_on_data_loss=False).batches():
            rows = [row for row in batch.to_pylist() if progress.begin(row["offset"])]
            found += _letters_of(rows, webhooks)
    return sorted(found, key=_newest_last, reverse=True)[:count]


def _letters_of(rows: list[dict[str, object]], webhooks: WebhooksPart) -> Iterator[DeadDelivery]:
    for row in rows:
        headers: Headers = {}
        pairs: object = row["headers"]
        for pair in pairs if isinstance(pairs, list) else ():
            headers.setdefault(pair["key"], []).append((pair["value"] or b"").decode("utf-8", "replace"))
        key, value, at = row["key"], row["value"], row["timestamp"]
        subject = f"{webhooks.subject}.{key.decode('utf-8', 'replace')}" if isinstance(key, bytes) else ""
        yield DeadDelivery.of(
            f"{row['partition']}:{row['offset']}",
            delivery_address(webhooks.subject, subject),
            at if isinstance(at, datetime) else None,
            headers,
            len(value) if isinstance(value, bytes) else 0,
        )


def _newest_last(letter: DeadDelivery) -> tuple[float, str]:
    return (letter.at.timestamp() if letter.at is not None else 0.0, letter.position)
