"""Records that brokers refuse, in a route's stage: dead letters in their place, at least once and exactly once."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.kafka.test_producer import values

from turnout.engine import Program
from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.nats.wire.records import SCHEMA, with_stream
from turnout.routes import Route
from turnout.routes.endpoints import KafkaSink
from turnout.runtime.kafka.adapter import KafkaProbe
from turnout.runtime.kafka.publisher import Slot
from turnout.runtime.publishing import sum_of
from turnout.spark import stage as module
from turnout.spark.endpoints import endpoint_of
from turnout.spark.stage import SparkStage

pytestmark = pytest.mark.kafka

ROUTE = """
name: refusals
source: {{format: nats, servers: "nats://127.0.0.1:1", stream: S}}
value: {{format: raw}}
sink: {{format: kafka, servers: "{servers}", exactlyOnce: {exactly_once}, controlTopic: {control}}}
deadLetter: {{topic: {dead}}}
errors: {{tolerance: all}}
"""


def records(count: int, old: int, first: int = 0) -> Any:
    """Messages of a stream, of which one is a year old."""
    now = int(time.time() * 1_000_000)
    rows = [
        {
            "topic": "out",
            "partition": 0,
            "offset": number + 1,
            "value": b"%d" % number,
            "headers": None,
            "timestamp": now - (365 * 86_400_000_000 if number == old else 0),
        }
        for number in range(first, first + count)
    ]
    return with_stream(pa.RecordBatch.from_pylist(rows, schema=SCHEMA), "S")


@pytest.mark.parametrize("knows_rules", [True, False])
@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_refused_record_becomes_a_dead_letter(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, exactly_once: bool, knows_rules: bool
) -> None:
    """The others are stored once; in a transaction all of it is committed together, and counted so."""
    case = f"{exactly_once}.{knows_rules}"
    text = ROUTE.format(
        servers=options.servers[0],
        exactly_once=str(exactly_once).lower(),
        control=f"control.{case}",
        dead=f"dead.{case}",
    ).replace("name: refusals", f'name: refusals\nmappings: {{"out": "out.{case}"}}')
    route = Route.parse(text, {})
    with KafkaAdmin(options) as admin:
        admin.create_topic(f"out.{case}", 1, {"message.timestamp.before.max.ms": "600000"})
        # The dead letter has the record's time, which this topic takes as little.
        admin.create_topic(f"dead.{case}", 1, {"message.timestamp.before.max.ms": "600000"})
    endpoint_of(route.sinks[""]).prepare()
    if not knows_rules:
        monkeypatch.setattr(KafkaAdmin, "topic_rules", lambda *_: {})
    monkeypatch.setattr(module, "_slot", lambda _part: Slot(f"query-{case}", 0, 0))

    stage = SparkStage.of(route, splits=False)
    (counted,) = stage.publish([records(300, 200)])

    counts = sum_of(counted.column("counts").to_pylist())
    assert (counts.read, counts.delivered, counts.dead_lettered) == (300, 299, 1)
    assert Counter(values(options, f"out.{case}")) == Counter(b"%d" % n for n in range(300) if n != 200)
    assert values(options, f"dead.{case}") == [b"200"]


def test_check_knows_what_topics_refuse(options: KafkaOptions) -> None:
    """The sample's messages without a key for a compacted topic, and with times beyond its limits, fail the check."""
    with KafkaAdmin(options) as admin:
        admin.create_topic("checked.keys", 1, {"cleanup.policy": "compact,delete"})
        admin.create_topic(
            "checked.times",
            1,
            {"message.timestamp.before.max.ms": "600000", "message.timestamp.after.max.ms": "5000"},
        )
        admin.create_topic("checked.any", 1, {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"})
    text = ROUTE.format(servers=options.servers[0], exactly_once="false", control="control", dead="checked.any")
    probe = KafkaProbe(cast("KafkaSink", Route.parse(text, {}).sinks[""]), 10.0)

    def found(topic: str, old: int) -> str:
        program = Program.of(Route.parse(f'{text}\nmappings: {{"out": "{topic}"}}', {}))
        return dict(probe.sink_checks([topic], [program.run(records(10, old)).messages]))["records"]()

    with closing(probe):
        with pytest.raises(
            StreamError, match=r"10 messages of the sample would be refused, 10 as the topic 'checked.k"
        ):
            found("checked.keys", -1)
        with pytest.raises(StreamError, match=r"1 message of the sample .*before.max.ms is 600,000"):
            found("checked.times", 3)
        assert found("checked.times", -1).startswith("'checked.times' takes records of the last 600,000 ms")
        assert found("checked.any", 3) == "1 topic without limits for keys and times"
