"""Whole runs on Spark: what arrives has its context, and a collector gets the spans of driver and workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.kafka_broker import KafkaBroker, started_broker
from tests.integration.routes import Streams
from turnout.embedded import NatsServer
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import PartitionRange, RangeReader
from turnout.routes import Route
from turnout.runtime.offsets import Progress
from turnout.spark.running.job import run
from turnout.traces.spans import SpanContext, new_trace, parsed

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason='OTLP needs "turnout[otlp]"')

from tests.traces.receiver import Receiver, over_http
from tests.traces.test_spans import ENDPOINT, assert_conventions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 500
ROUTE = """
name: traced
source: {{format: nats, servers: "{url}", stream: {source}}}
value: {{format: json}}
transforms: [{{name: place, type: InsertHeader, header: place, value.literal: x}}]
mappings: {{"in-{name}.k": "{out}"}}
sink: {{format: {sink}}}
{more}
"""


@pytest.fixture
def streams(nats_server: NatsServer) -> Iterator[Streams]:
    streams = Streams(nats_server.url)
    streams.create()
    yield streams
    streams.delete()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with over_http() as receiver:
        monkeypatch.setenv(ENDPOINT, receiver.url)
        monkeypatch.setenv("TURNOUT_SPANS_PER_SECOND", "1000")
        yield receiver


def publish(streams: Streams) -> list[SpanContext]:
    """Messages with contexts, of which every tenth is sampled."""
    contexts = [new_trace()._replace(flags=not number % 10) for number in range(COUNT)]
    streams.publish([("k", b'{"n": 1}', [("traceparent", own.traceparent), ("tracestate", "a=1")]) for own in contexts])
    return contexts


@contextmanager
def running(spark: SparkSession, text: str, folder: Path) -> Iterator[list[Progress]]:
    """Run a route until the end of the block."""
    stop, progress, ready = threading.Event(), list[Progress](), threading.Event()
    route = Route.parse(text, {})
    options = {"checkpoint": folder, "stop": stop, "on_progress": progress.append, "on_ready": ready.set}
    thread = threading.Thread(target=lambda: run(route, spark, **options))  # type: ignore[arg-type]
    thread.start()
    try:
        assert ready.wait(120)
        yield progress
    finally:
        stop.set()
        thread.join()


def count(receiver: Receiver, name: str) -> int:
    return sum(span.attributes["messaging.batch.message_count"] for span in receiver.named(name))


def check(receiver: Receiver, sent: Sequence[SpanContext], arrived: Sequence[tuple[str, str]]) -> None:
    """Check that each message has its context, the sampled ones that of a span which the collector has."""
    contexts = {own.trace_id: own for own in sent}
    assert {state for _, state in arrived} == {"a=1"}
    found = [parsed(text) for text, _ in arrived]
    assert {own and own.trace_id for own in found} == contexts.keys()
    assert len(found) == COUNT
    spans = {span.span_id: span for span in receiver.spans}
    sampled = 0
    for own in found:
        assert own is not None
        if not contexts[own.trace_id].is_sampled:
            assert own == contexts[own.trace_id]
            continue
        sampled += 1
        record = spans[spans[own.span_id].parent]
        assert (spans[own.span_id].kind, record.kind) == ("PRODUCER", "CONSUMER")
        assert (record.trace_id, record.parent) == contexts[own.trace_id][:2]
        assert spans[record.links[0]].name.startswith("receive")
    assert sampled == COUNT // 10
    assert_conventions(receiver.spans)


@pytest.mark.parametrize("trigger", ["{processingTime: 100 milliseconds}", "{latency: low}"])
def test_nats(spark: SparkSession, streams: Streams, receiver: Receiver, tmp_path: Path, trigger: str) -> None:
    """In micro-batches, each with a span, and in open splits."""
    text = ROUTE.format(
        url=streams.url, source=streams.source, name=streams.name, out=streams.out("k"),
        sink=f'nats, servers: "{streams.url}", stream: {streams.sink}', more=f"trigger: {trigger}",
    )  # fmt: skip

    with running(spark, text, tmp_path) as progress:
        sent = publish(streams)
        receiver.wait_for(lambda: streams.stored(streams.sink) == COUNT)
        receiver.wait_for(lambda: "latency" in trigger or (progress and progress[-1].counts.read == COUNT))
    receiver.wait_for(lambda: count(receiver, "micro-batch") == count(receiver, "receive") == COUNT)

    headers = [row["headers"] for row in streams.delivered()]
    check(receiver, sent, [(own["traceparent"], own["tracestate"]) for own in headers])
    batches = {(span.trace_id, span.span_id): span for span in receiver.named("micro-batch")}
    assert {(span.trace_id, span.parent) for span in receiver.named("receive") if span.links} <= batches.keys()
    if "latency" not in trigger:
        known = {context[:2] for context in (one.context for one in progress) if context}
        assert known == batches.keys()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with started_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.mark.kafka
@pytest.mark.heavy
def test_kafka(spark: SparkSession, streams: Streams, broker: KafkaBroker, receiver: Receiver, tmp_path: Path) -> None:
    """From NATS into a topic in transactions, and from there into another one; headers are what they were."""
    options = KafkaOptions.of(broker.servers)
    with KafkaAdmin(options) as admin:
        for topic in ("one", "two"):
            admin.create_topic(topic, 2, {})
    kafka = f'kafka, servers: "{broker.servers}"'
    names = {"url": streams.url, "source": streams.source, "name": streams.name}
    first = ROUTE.format(**names, out="one", sink=f"{kafka}, exactlyOnce: true", more="")
    second = f"""
name: second
source: {{format: {kafka}, topics: one, start: earliest}}
mappings: {{one: two}}
sink: {{format: {kafka}}}
"""
    sent = publish(streams)

    run(Route.parse(first, {}), spark, once=True, checkpoint=tmp_path / "first")
    receiver.wait_for(lambda: receiver.named("micro-batch traced"))
    check(receiver, sent, headers_in(options, "one"))
    between = [parsed(text) for text, _ in headers_in(options, "one")]
    run(Route.parse(second, {}), spark, once=True, checkpoint=tmp_path / "second")
    receiver.wait_for(lambda: receiver.named("micro-batch second"))

    check(receiver, [one for one in between if one], headers_in(options, "two"))
    reads = receiver.named("process one")
    assert {span.attributes["messaging.system"] for span in reads} == {"kafka"}
    assert {type(span.attributes["messaging.kafka.offset"]) for span in reads} == {int}


def headers_in(options: KafkaOptions, topic: str) -> list[tuple[str, str]]:
    with KafkaAdmin(options) as admin:
        ends = admin.ends([(topic, 0), (topic, 1)])
    rows = [
        {pair["key"]: pair["value"].decode() for pair in headers}
        for (name, number), end in ends.items()
        for batch in RangeReader(options, PartitionRange(name, number, end.first, end.next)).batches()
        for headers in batch.column("headers").to_pylist()
    ]
    return [(own["traceparent"], own["tracestate"]) for own in rows]
