"""Size limits of Kafka's producer and brokers, applied before messages are sent: a transaction leaves none out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.deferred import pc
from turnout.base.untrusted import decimal
from turnout.engine import Counts, Messages, Result
from turnout.errors import ConfigError, Mistake
from turnout.routes.endpoints import KafkaSink

_MAX_REQUEST_SIZE: Final = 1 << 20
"""Kafka's default of the producer's ``max.request.size``."""

_BUFFER_MEMORY: Final = 32 << 20
"""Kafka's default of the producer's ``buffer.memory``."""

_OVERHEAD: Final = 61 + 21
"""Bytes of a record batch and at most of a record in it (``DefaultRecordBatch``, ``DefaultRecord``)."""

_VARINT_STEPS: Final = (1 << 6, 1 << 13, 1 << 20, 1 << 27)
"""Lengths from which on a zigzag varint takes a byte more."""


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    """The largest records that one Kafka sink takes, in bytes as the producer estimates them.

    Attributes:
        producer: the producer's own limit, for every topic.
        topics: limits of topics that take less.
        others: the broker's limit for topics without one of their own; None if it is not known.
    """

    producer: int
    topics: Mapping[str, int] = field(default_factory=dict)
    others: int | None = None

    @classmethod
    def of(cls, sink: KafkaSink) -> Self:
        """Return the limits that a sink's options set.

        Raises:
            ConfigError: one of them is not a number of bytes.
        """
        options = sink.options()
        texts = {
            "kafka.max.request.size": options.get(
                "kafka.max.request.size", options.get("kafka.message.max.bytes", str(_MAX_REQUEST_SIZE))
            ),
            "kafka.buffer.memory": options.get("kafka.buffer.memory", str(_BUFFER_MEMORY)),
        }
        wrong = [
            Mistake(f"sink.options.{name}", f"expected a number of bytes, found {text!r:.40}")
            for name, text in texts.items()
            if decimal(text.strip()) is None
        ]
        if wrong:
            raise ConfigError(wrong)
        return cls(min(int(text) for text in texts.values()))

    def of_topic(self, topic: str) -> tuple[int, str]:
        """Return the limit of a topic and the setting that defines it."""
        own = self.topics.get(topic, self.others)
        if own is not None and own < self.producer:
            return own, "max.message.bytes of the topic" if topic in self.topics else "message.max.bytes of the broker"
        return self.producer, "max.request.size of the producer"


def record_sizes(records: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the upper bound of each record's size, as ``KafkaProducer`` estimates it before it sends.

    Args:
        records: the columns ``key``, ``value`` and ``headers``.
    """
    headers = records.column("headers")
    pairs = pc.list_flatten(headers)
    header_sizes = _field_sizes(pc.struct_field(pairs, [0])) + _field_sizes(pc.struct_field(pairs, [1]))
    owners = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    of_headers = np.bincount(owners, header_sizes, minlength=len(headers)).astype(np.int64)
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    sizes: NDArray[np.int64] = (
        _OVERHEAD
        + _field_sizes(records.column("key"))
        + _field_sizes(records.column("value"))
        + _varint_sizes(counts)
        + of_headers
    )
    return sizes


def fitting(result: Result, limits: tuple[KafkaLimits | None, ...]) -> list[Result]:
    """Return the batch without the messages that a Kafka sink would refuse for their size, and what replaces them.

    Behind the batch come its corrections: dead letters of refused messages, and dead letters without their values
    where those are too large themselves.

    Args:
        result: result of a batch.
        limits: limits of each of the route's sinks; None for other sinks than Kafka.

    Raises:
        RunError: a message is too large and the route tolerates no failures, or a dead letter is too large even
            without its record.
    """
    reasons = _too_large(result.messages, limits)
    if not reasons:
        return [result]
    results = [result.without(reasons)]
    letters = np.array([index for index in reasons if result.is_dead_letter(index)], np.int64)
    if len(letters):
        results.append(Result(Counts(), _emptied(result, letters, limits)))
    deliveries = {index: reason for index, reason in reasons.items() if not result.is_dead_letter(index)}
    return results + (fitting(result.refused(deliveries), limits) if deliveries else [])


def _emptied(result: Result, letters: NDArray[np.int64], limits: tuple[KafkaLimits | None, ...]) -> Messages:
    """Return the dead letters at *letters* without values; if still too large, also without keys and record headers."""
    messages = result.messages.emptied(letters)
    if _too_large(messages, limits):
        messages = result.messages.emptied(letters, alone=False)
        for index, reason in _too_large(messages, limits).items():
            result.check(int(letters[index]), reason)
    return messages


def _too_large(messages: Messages, limits: tuple[KafkaLimits | None, ...]) -> dict[int, str]:
    """Return message index → reason that its sink's producer or broker refuses it."""
    if not len(messages) or not any(limits):
        return {}
    sizes = record_sizes(messages.records)[messages.rows]
    least = min(min((one.producer, *one.topics.values(), one.others or one.producer)) for one in limits if one)
    reasons = {}
    for index in np.flatnonzero(sizes > least).tolist():
        limit = limits[messages.sinks[index]]
        topic = messages.topics[index].as_py()
        if limit is None:
            continue
        most, setting = limit.of_topic(topic)
        if sizes[index] > most:
            found = f"found up to {sizes[index]:,} with its key and headers"
            reasons[index] = f"takes {most:,} bytes a record ({setting}), {found}"
    return reasons


def _field_sizes(column: pa.Array) -> NDArray[np.int64]:
    """Length and bytes of each key, value, or part of a header; a null is a length alone."""
    lengths: NDArray[np.int64] = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    lengths = lengths.astype(np.int64)
    return lengths + _varint_sizes(lengths)


def _varint_sizes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return 1 + np.searchsorted(_VARINT_STEPS, numbers, side="right")
