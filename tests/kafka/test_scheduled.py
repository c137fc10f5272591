"""Messages for Kafka that are delivered later, from a delay stream in NATS."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from turnout.delivery.scheduled import DelayLeader, opened_leader
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.routes import Route
from turnout.runtime.kafka.publisher import KafkaSinkOptions
from turnout.runtime.nats.sink import SinkOptions
from turnout.runtime.preflight import make_delay_stream
from turnout.runtime.publishing import Publishers

pytestmark = pytest.mark.kafka

ROUTE = """
name: later
source: {{format: kafka, servers: "{broker}", topics: [in]}}
value: {{format: raw}}
mappings: {{in: "kafka:later-out"}}
sinks:
  wait: {{format: nats, servers: "{nats}"}}
  kafka: {{format: kafka, servers: "{broker}", delay: header.wait}}
scheduled: {{stream: WAITING}}
"""


def test_keys_nulls_headers_and_times(options: KafkaOptions) -> None:
    """A message comes to Kafka after its delay with its key, its value or null, its headers and its record's time."""
    with KafkaAdmin(options) as admin:
        assert admin.create_topic("later-out", 1, {})
    with NatsServer() as nats:
        route = Route.parse(ROUTE.format(broker=options.servers[0], nats=nats.url))
        make_delay_stream(route)
        base = int(time.time() * 1000)
        records = [
            SampleRecord.of(
                {
                    "topic": "in", "partition": 0, "offset": number, "timestamp": base, "value": value,
                    "key": f"k{number}", "headers": {"wait": f"{1.5 - number * 0.5}", "trace": "ä"},
                }
            )
            for number, value in enumerate(["first", None])
        ]  # fmt: skip
        wait, kafka = route.sinks.values()
        sinks = (SinkOptions.of(wait), KafkaSinkOptions.of(kafka))  # type: ignore[arg-type]
        with Publishers(sinks) as publishers:
            publishers.publish(Program.of(route).run(record_batch(records)))
            publishers.flush()
        stop = threading.Event()

        async def lead() -> DelayLeader:
            async with opened_leader(route) as leader:
                running = asyncio.create_task(leader.run(stop))
                async with asyncio.timeout(60):
                    while leader.counts.published < 2:
                        await asyncio.sleep(0.05)
                stop.set()
                await running
                return leader

        assert asyncio.run(lead()).counts.refused == 0
        (batch,) = RangeReader(options, PartitionRange("later-out", 0, 0, 2)).batches()

    rows = batch.to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(b"k1", None), (b"k0", b"first")]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [base, base]
    headers = [{pair["key"]: pair["value"].decode() for pair in row["headers"]} for row in rows]
    assert [one["trace"] for one in headers] == ["ä", "ä"]
    assert [sorted(one) for one in headers] == [["Turnout-Deliver-At", "trace", "wait"]] * 2
