"""Storing of single records in Kafka from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from turnout.errors import StreamError
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaHeaders, KafkaMessages, KafkaProducer


class _Record(NamedTuple):
    """Record to store."""

    topic: str
    key: bytes
    value: bytes | None
    headers: KafkaHeaders


class KafkaWriter:
    """Stores records; one flush stores all that have arrived during the one before.

    Args:
        options: options of the client.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._producer = KafkaProducer(options)
        self._waiting: list[tuple[_Record, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def store(self, topic: str, key: bytes, value: bytes | None, headers: KafkaHeaders = ()) -> None:
        """Store a record; after the return it is in the topic.

        Raises:
            StreamError: a broker refuses it.
            ConnectionLostError: no broker answers.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((_Record(topic, key, value, headers), stored))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await stored

    async def close(self) -> None:
        """Wait for what is being stored, and close the connections."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        await asyncio.to_thread(self._producer.close)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                refused: dict[int, Exception] = {}
                failure: Exception | None = None
                try:
                    await asyncio.to_thread(self._publish, [record for record, _ in batch], refused)
                except Exception as problem:  # noqa: BLE001 - the caller that waits for a record raises it
                    failure = problem
                for index, (_, stored) in enumerate(batch):
                    reason = failure or refused.get(index)
                    if stored.done():
                        continue
                    if reason is None:
                        stored.set_result(None)
                    else:
                        stored.set_exception(reason)
        finally:
            self._flushing = None

    def _publish(self, records: Sequence[_Record], refused: dict[int, Exception]) -> None:
        def refuse(index: int, reason: StreamError) -> None:
            refused[index] = reason

        topics, keys, values, headers = map(list, zip(*records, strict=True))
        self._producer.publish(KafkaMessages(topics, values, keys, headers), refuse)
        self._producer.flush()
