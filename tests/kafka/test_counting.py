"""Counts of records, which offsets do not tell."""

from __future__ import annotations

import pytest
from tests.kafka.test_producer import refusing
from tests.kafka.test_reader import topic

from turnout.errors import StreamError
from turnout.kafka.counting import count_records
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer

pytestmark = pytest.mark.kafka


def test_committed_records_are_counted(options: KafkaOptions) -> None:
    """Marks of transactions are no records, and aborted records do not count; an empty topic has none."""
    topic(options, "counted", 2)
    topic(options, "counted.empty", 1)

    def send(producer: KafkaProducer, count: int) -> None:
        producer.begin()
        numbers = [number % 2 for number in range(count)]
        producer.publish(
            KafkaMessages(["counted"] * count, [b"x"] * count, [None] * count, None, None, numbers), refusing
        )
        producer.flush()

    with KafkaProducer(options, "turnout.test.counted") as producer:
        send(producer, 5)
        producer.commit()
    with KafkaProducer(options, "turnout.test.counted") as producer:
        send(producer, 3)
        producer.abort()

    assert count_records(options, ["counted", "counted.empty"]) == {"counted": 5, "counted.empty": 0}
    with pytest.raises(StreamError, match=r"there is no topic 'counted\.absent'"):
        count_records(options, ["counted.absent"])
