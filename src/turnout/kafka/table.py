"""Compacted topic of one partition as a table: the last value of each key."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, cast

from turnout.errors import ConnectionLostError
from turnout.kafka.clients import ErrorWatch, consumer_of, kafka_errors, polled, raise_error
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PASSING, partition_bounds

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_POLL_SECONDS: Final = 0.2
_BATCH: Final = 1_000


class TopicTable:
    """Values by keys; a record without a value removes its key. Used by one thread, but for *values*.

    Args:
        options: of the client.
        topic: with one partition, which is compacted.

    Attributes:
        values: as of the last `catch_up`, and of what its owner has written since.
    """

    def __init__(self, options: KafkaOptions, topic: str) -> None:
        self.values: dict[str, bytes] = {}
        self._options = options
        self._topic = topic
        self._watch = ErrorWatch()
        self._next = 0
        self._consumer: Consumer = consumer_of(options, self._watch)
        with self._errors():
            first, _ = self._ends()
            self._next = first
            self._consumer.assign([self._position(first)])

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def catch_up(self) -> None:
        """Read all that is written by now.

        Raises:
            StreamError: the topic may not be read.
            ConnectionLostError: no broker answers for ``options.patience`` seconds.
        """
        with self._errors():
            _, end = self._ends()
        deadline = time.monotonic() + self._options.patience
        while self._next < end:
            with self._errors():
                messages = polled(self._consumer, _POLL_SECONDS, _BATCH)
            for message in messages:
                error = message.error()
                if error is None:
                    self._take(message.key(), message.value())
                    self._next = cast("int", message.offset()) + 1
                elif error.name() == "_PARTITION_EOF":
                    self._next = max(self._next, cast("int", message.offset()))
                elif not error.retriable() and error.name() not in PASSING:
                    raise_error(self._what, error, self._options)
            if self._watch.denied or time.monotonic() > deadline:
                raise ConnectionLostError(f"{self._what}: nothing came for {self._options.patience:g} s")

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode("utf-8", "replace")
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def _ends(self) -> tuple[int, int]:
        return partition_bounds(self._consumer, self._topic, 0, self._options)

    def _position(self, offset: int) -> TopicPartition:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._topic, 0, offset)

    @property
    def _what(self) -> str:
        return f"the topic {self._topic!r} cannot be read"

    def _errors(self) -> Any:
        return kafka_errors(self._what, self._options, self._watch)
