"""Deliveries for a local HTTP endpoint in topics of a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.delivery.receiver import Hooks
from turnout.delivery.dispatcher import opened_queue
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.nats.protocol.headers import MESSAGE_ID
from turnout.subscriptions.destinations import delivery_subject


class KafkaHooks(Hooks):
    """A route with webhooks on a broker, with topics of its own."""

    @property
    def sink(self) -> dict[str, Any]:
        # A killed dispatcher's partitions go to the next one soon.
        return {"format": "kafka", "servers": self.server, "options": {"kafka.session.timeout.ms": 6000}}

    @property
    def options(self) -> KafkaOptions:
        return KafkaOptions.of(self.server)

    async def publish(
        self,
        *bodies: bytes,
        to: str = "webhook:e",
        subscription: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        async with opened_queue(self.route):
            pass
        key = delivery_subject("", to, subscription)[1:].encode()
        own = [(name, value.encode()) for name, value in (headers or {}).items()]
        identified = [[*own, (MESSAGE_ID, b"%b:%d" % (key, number))] for number in range(len(bodies))]
        with KafkaProducer(self.options) as producer:
            count = len(bodies)
            messages = KafkaMessages([self.name] * count, bodies, [key] * count, identified)
            producer.publish(messages, lambda _, reason: (_ for _ in ()).throw(reason))
            producer.flush()

    async def dead(self) -> list[tuple[bytes, dict[str, str]]]:
        return await asyncio.to_thread(self._dead)

    def _dead(self) -> list[tuple[bytes, dict[str, str]]]:
        topic = f"{self.name}-dead"
        with KafkaAdmin(self.options) as admin:
            ends = admin.ends([(topic, 0)])[topic, 0]
        found = []
        for batch in RangeReader(self.options, PartitionRange(topic, 0, ends.first, ends.next)).batches():
            for value, headers in zip(batch["value"].to_pylist(), batch["headers"].to_pylist(), strict=True):
                found.append((value, {pair["key"]: pair["value"].decode() for pair in headers or ()}))
        return found
