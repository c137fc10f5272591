"""Requests to a Kafka cluster without Spark, with a real broker."""

from __future__ import annotations

import time
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from tests.integration.kafka_broker import KafkaBroker
from tests.kafka.conftest import broker, options  # noqa: F401 - fixtures
from tests.kafka.test_producer import refusing, values

from turnout.embedded import free_port
from turnout.engine import Messages
from turnout.engine.messages import RECORDS
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.routes.endpoints import KafkaSink, KafkaSource
from turnout.runtime.endpoints import StreamEnd, adapter_of
from turnout.runtime.kafka.adapter import KafkaProbe
from turnout.runtime.kafka.publisher import KafkaSinkOptions

pytestmark = pytest.mark.kafka


def source(servers: str, topics: str) -> KafkaSource:
    return KafkaSource.model_validate({"format": "kafka", "servers": servers, "topics": topics})


def messages(topic: str, rows: list[dict[str, object]]) -> Messages:
    count = len(rows)
    nulls = dict.fromkeys(RECORDS.names)
    records = pa.RecordBatch.from_pylist([{**nulls, **row} for row in rows], schema=RECORDS)
    ids = pa.nulls(count, pa.string())
    return Messages(pa.array([topic] * count), ids, np.zeros(count, np.int8), np.arange(count), records)


def test_lag(broker: KafkaBroker, options: KafkaOptions) -> None:  # noqa: F811
    """The bounds of each partition, and the age of the record that is next; a record without a usable time has none."""
    with KafkaAdmin(options) as admin:
        admin.create_topic("lagging", 2, {})
    now = time.time()
    with KafkaProducer(options) as producer:
        times = [int((now - 100) * 1000), int((now - 50) * 1000), 1_790_000_000_000_000_000]
        batch = KafkaMessages(["lagging"] * 3, [b"x"] * 3, [None] * 3, None, times, [1, 1, 1])
        producer.publish(batch, refusing)
        producer.flush()

    adapter = adapter_of(source(broker.servers, "lagging"))
    with adapter.session() as session:
        assert session.ends(adapter.endpoint) == {"lagging:0": StreamEnd(0, 0), "lagging:1": StreamEnd(0, 3)}
        assert session.age("lagging:1", 1, now) == pytest.approx(50, abs=1)
        assert session.age("lagging:1", 2, now) is None
        assert session.age("lagging:0", 0, now) is None


def test_checks(broker: KafkaBroker) -> None:  # noqa: F811
    """An available cluster, a missing topic, and an unavailable cluster have different results."""
    adapter_of(source(broker.servers, "any")).ping()
    with pytest.raises(StreamError, match="there is no topic 'absent'"):
        adapter_of(source(broker.servers, "absent")).source_streams()
    with pytest.raises(ConnectionLostError, match=r"no server of 127.0.0.1:\d+ answers"):
        adapter_of(source(f"127.0.0.1:{free_port()}", "any")).ping()


def test_the_topic_of_deliveries_is_not_checked(broker: KafkaBroker) -> None:  # noqa: F811
    """A run creates it; subjects of deliveries are no topics."""
    sink = KafkaSink.model_validate({"format": "kafka", "servers": broker.servers})
    probes = (KafkaProbe(one, 5) for one in (sink, sink.with_deliveries("webhooks", "DELIVERIES")))
    texts = []
    for probe in probes:
        with closing(probe):
            probe.reach()
            texts.append([check() for _, check in probe.sink_checks(["webhooks.oulu"])])

    assert [topics.partition(":")[0] for topics, *_ in texts] == ["webhooks.oulu", "there is no topic to check"]


def test_partitions_of_messages(broker: KafkaBroker, options: KafkaOptions) -> None:  # noqa: F811
    """The partition is the record's, or set by a header; a missing partition is refused, other messages are stored."""
    with KafkaAdmin(options) as admin:
        for topic in ("by.record", "by.header"):
            admin.create_topic(topic, 3, {})
    rows: list[dict[str, object]] = [
        {"value": b"a", "partition": 2, "headers": [{"key": "city", "value": b"Oulu"}]},
        {"value": b"b", "partition": 5, "headers": [{"key": "city", "value": b"Oulu"}]},
        {"value": b"c", "partition": 0, "headers": None},
    ]
    refused: dict[int, StreamError] = {}

    def sink(by: str) -> KafkaSink:
        return KafkaSink.model_validate({"format": "kafka", "servers": broker.servers, "partitionBy": by})

    adapter_of(sink("record")).send(messages("by.record", rows), refused.__setitem__, "")
    stored = adapter_of(sink("header:city")).send(messages("by.header", rows[:2]), refusing, "")

    assert list(refused) == [1]
    assert "has the partitions 0 to 2, and its record is of 5" in str(refused[1])
    assert [values(options, "by.record", number) for number in range(3)] == [[b"c"], [], [b"a"]]
    assert stored.stored == 2
    assert sorted(values(options, "by.header", number) for number in range(3)) == [[], [], [b"a", b"b"]]


def test_limits_of_batches() -> None:
    """A producer's batches are no larger than the smallest record that a topic takes."""
    from turnout.runtime.kafka.publisher import KafkaLimits

    sink = KafkaSinkOptions(KafkaOptions.of("a:1"))

    assert sink.with_limits(KafkaLimits(1 << 20, {"low": 5000}, 900_000)).client.properties["batch.size"] == "5000"
    assert sink.with_limits(KafkaLimits(1 << 20)).client.properties["batch.size"] == "1000000"
