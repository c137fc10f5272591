"""Number of records in topics, as a consumer can read them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from turnout.errors import ConnectionLostError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.clients import ErrorWatch, consumer_of, kafka_errors, raise_error
from turnout.kafka.options import KafkaOptions

_BATCH_RECORDS = 10_000


def count_records(options: KafkaOptions, topics: Iterable[str]) -> dict[str, int]:
    """Read topics to their ends, and return the number of records in each; by default only committed ones.

    Offsets do not give it: transactions and compaction leave some without a record.

    Raises:
        StreamError: a topic does not exist, or may not be read.
        ConnectionLostError: no broker answers for ``options.patience`` seconds.
    """
    from confluent_kafka import TopicPartition

    with KafkaAdmin(options) as admin:
        infos = admin.describe(list(topics))
        partitions = [(name, number) for name, info in infos.items() for number in info.partitions]
        ends = admin.ends(partitions)
    waiting = {topic_partition for topic_partition, end in ends.items() if end.next > end.first}
    counts = dict.fromkeys(infos, 0)
    watch, what = ErrorWatch(), "the topics cannot be counted"
    consumer = consumer_of(options, watch)
    try:
        with kafka_errors(what, options, watch):
            consumer.assign([TopicPartition(topic, number, ends[topic, number].first) for topic, number in waiting])
        deadline = time.monotonic() + options.patience
        while waiting:
            with kafka_errors(what, options, watch):
                messages = consumer.consume(_BATCH_RECORDS, 0.5)
            for message in messages:
                error = message.error()
                if error is None:
                    counts[str(message.topic())] += 1
                elif error.name() == "_PARTITION_EOF":
                    waiting.discard((str(message.topic()), int(message.partition() or 0)))
                elif not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
                    raise_error(what, error, options, watch)
            if messages:
                deadline = time.monotonic() + options.patience
            elif time.monotonic() > deadline:
                raise ConnectionLostError(f"{what}: nothing received for {options.patience:g} s")
    finally:
        consumer.close()
    return counts
