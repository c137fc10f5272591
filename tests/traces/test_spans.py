"""Spans that a collector receives, over HTTP and gRPC, and the contexts that messages carry."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.streams import own_stream
from tests.traces.test_propagation import stored
from turnout.conditions import exists
from turnout.delivery.requests import request_of
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.engine.spans import RouteTracer
from turnout.errors import ConfigError
from turnout.nats.wire import Connection
from turnout.nats.wire.records import SCHEMA, with_stream
from turnout.routes import Route
from turnout.runtime.publishing import log_failures
from turnout.server.inputs import messages_of
from turnout.spark.stage import SparkStage
from turnout.subscriptions import Subscription
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.index import Index
from turnout.subscriptions.stores.memory import MemoryStore
from turnout.traces.spans import SpanContext, TraceSettings, context_of, forwarded, headers_of, new_trace, parsed

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason='OTLP needs "turnout[otlp]"')

from tests.traces.receiver import Received, Receiver, over_grpc, over_http

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
AWAY = {ENDPOINT: "http://127.0.0.1:9"}
ROUTE = """
name: traced
source: {{format: {source}}}
value: {{format: json}}
transforms:
  - {{name: place, type: InsertHeader, header: place, value.literal: x}}
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
mappings: {{"in.a": "{out}.good"}}
sink: {{format: {sink}}}
deadLetter: {{topic: "{out}.dead"}}
errors: {{tolerance: all, log: true}}
{more}
"""

COMMON = {"messaging.system", "messaging.operation.name", "messaging.operation.type"}
REQUIRED: dict[tuple[str, str], set[str]] = {
    ("process", "CONSUMER"): {*COMMON, "messaging.destination.name", "messaging.message.id"},
    ("send", "PRODUCER"): {*COMMON, "messaging.destination.name"},
    ("receive", "CLIENT"): {*COMMON, "messaging.batch.message_count"},
    ("POST", "CLIENT"): {"http.request.method", "server.address", "server.port", "url.full"},
    ("POST", "SERVER"): {"http.request.method", "url.path", "url.scheme", "http.route", "http.response.status_code"},
    ("subscriptions.", "SERVER"): {"rpc.system.name", "rpc.method", "rpc.response.status_code"},
}
"""What OpenTelemetry's conventions require of spans for messages, HTTP and RPC, by the first word of their name."""


def assert_conventions(received: list[Received]) -> set[tuple[str, str]]:
    """Check each span with a kind of its own, and return the kinds that there are."""
    kinds = set()
    for span in received:
        assert span.trace_id
        assert span.span_id
        assert 0 < span.start <= span.end <= time.time_ns()
        assert bool(span.error) == ("error.type" in span.attributes)
        if span.kind == "INTERNAL":
            continue
        (key,) = (key for key in REQUIRED if span.name.startswith(key[0]) and span.kind == key[1])
        missing = REQUIRED[key] - span.attributes.keys()
        assert not missing, (span.name, missing)
        if key[0] in ("process", "send", "receive"):
            facts = span.attributes
            named = facts.get("messaging.destination.template", facts.get("messaging.destination.name"))
            assert span.name == " ".join(filter(None, (facts["messaging.operation.name"], named)))
        kinds.add(key)
    return kinds


@pytest.fixture(params=[over_http, over_grpc], ids=["http", "grpc"])
def receiver(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    opened: Callable[[], AbstractContextManager[Receiver]] = request.param
    with opened() as receiver:
        monkeypatch.setenv(ENDPOINT, receiver.url)
        if opened is over_grpc:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        yield receiver


@pytest.fixture
def out(connection: Connection) -> Iterator[str]:
    with own_stream(connection) as name:
        yield name


def route_of(out: str, url: str = "nats://a", more: str = "") -> Route:
    nats = f'nats, servers: "{url}"'
    return Route.parse(ROUTE.format(source=f"{nats}, stream: IN", sink=nats, out=out, more=more), {})


def batch_of(contexts: list[SpanContext | None], **more: bytes) -> Any:
    """Records with these contexts; the value of every fourth is no JSON."""
    rows = [
        {
            "topic": "in.a", "partition": 0, "offset": 1 + at, "timestamp": at,
            "value": b"{}" if (1 + at) % 4 else b"-",
            "headers": [{"key": name, "value": text} for name, text in more.items()]
            + ([{"key": "traceparent", "value": own.traceparent.encode()}] if own else []),
        }
        for at, own in enumerate(contexts)
    ]  # fmt: skip
    return with_stream(pa.RecordBatch.from_pylist(rows, schema=SCHEMA), "IN")


def traceparent_of(headers: list[dict[str, Any]]) -> SpanContext | None:
    texts = [pair["value"].decode() for pair in headers if pair["key"].lower() == "traceparent"]
    assert len(texts) <= 1
    return parsed(texts[0]) if texts else None


def test_spans_of_a_task(receiver: Receiver, nats_server: NatsServer, out: str) -> None:
    """Of sampled records one each, with those of its stages and its message, whose context the message carries; others
    pass as they are. The task's own span links to the records."""
    sampled, other = [new_trace() for _ in range(5)], new_trace()._replace(flags=0)
    batch = batch_of([*sampled, other, None])

    list(SparkStage.of(route_of(out, nats_server.url), splits=False).publish([batch]))

    receiver.wait_for(lambda: receiver.named("receive"))
    assert assert_conventions(receiver.spans) == {("process", "CONSUMER"), ("send", "PRODUCER"), ("receive", "CLIENT")}
    (task,) = receiver.named("receive")
    assert task.attributes["messaging.batch.message_count"] == 7
    assert sorted(task.links) == sorted(context.span_id for context in sampled)
    records = {span.trace_id: span for span in receiver.named("process")}
    assert {(span.trace_id, span.parent) for span in records.values()} == {one[:2] for one in sampled}
    assert all(span.links == [task.span_id] for span in records.values())
    good = [row["headers"] for row in stored(nats_server.url, out) if row["topic"] == f"{out}.good"]
    contexts = list(map(traceparent_of, good))
    assert contexts[-2:] == [other, None]
    sent = {(span.trace_id, span.span_id): span for span in receiver.named("send")}
    assert [context and context[:2] for context in contexts[:-2]] == list(sent)
    assert all(span.parent == records[span.trace_id].span_id for span in sent.values())
    failed = records[sampled[3].trace_id]
    assert failed.attributes["turnout.outcome"] == "dead_lettered"
    assert failed.error.startswith("VALUE_CONVERTER")
    stages = [[span.name for span in receiver.spans if span.parent == one.span_id] for one in (*records.values(),)]
    whole = ["send", "value", "place", "old", "mapping", "sink"]
    assert sorted(map(sorted, stages)) == sorted(
        [*[sorted(f"{name} {out}.>" if name == "send" else name for name in whole)] * 4, ["value"]]
    )
    assert receiver.spans[0].resource["service.name"] == "turnout"


def test_fan_out(receiver: Receiver, nats_server: NatsServer, out: str) -> None:
    """Each message of a record has a span and a context of its own, up to a limit, with a link to the record's."""
    destinations = [f"{out}.{number}" for number in range(40)]
    store = MemoryStore.open("memory://")
    store.create(Subscription(destinations, exists("place")))
    more = 'subscriptions: {store: "memory://", metadata: {}}\nunmatched: drop'
    traced, own = TraceSettings.of_process(), new_trace()
    program = Program.of(route_of(out, more=more), traces=traced)

    result = program.run(batch_of([own, None]), Index.of(store))

    contexts = list(map(traceparent_of, result.messages.column("headers").to_pylist()))
    sent = [span for span in result.spans if span.kind == "PRODUCER"]
    (record,) = (span for span in result.spans if span.kind == "CONSUMER")
    assert contexts[:40] == [*(span.context for span in sent), *[record.context] * 24]
    assert contexts[40:] == [None] * 40
    assert {span.attributes["messaging.destination.name"] for span in sent} <= set(destinations)
    assert {span.links for span in sent} == {(own,)}
    assert result.messages.records.num_rows == 2 + 17


@pytest.mark.parametrize("ratio", ["0", "0.25", "1"])
def test_traces_that_begin_here(ratio: str) -> None:
    """A share of the records without a context; its trace ids are those that other samplers of the share take."""
    environment = {**AWAY, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": ratio}
    environment["TURNOUT_SPANS_PER_SECOND"] = "1000000"
    program = Program.of(route_of("o"), traces=TraceSettings.of(environment))
    unsampled = new_trace()._replace(flags=0)

    result = program.run(batch_of([None, unsampled] * 2_000))

    begun = [span for span in result.spans if span.kind == "CONSUMER"]
    assert abs(len(begun) - 2_000 * float(ratio)) <= 200
    assert all(span.parent is None and span.context.trace_id % 2**64 < float(ratio) * 2**64 for span in begun)


def test_no_more_than_a_process_should_make() -> None:
    """Sampled records beyond a limit pass with the context that they came with, and a second later others are traced.
    Where there are many, few have spans of their stages."""
    settings = TraceSettings.of({**AWAY, "TURNOUT_SPANS_PER_SECOND": "200"})
    assert settings is not None
    route, now = route_of("o"), [100.0]
    program = Program.of(route, traces=settings)
    program._tracer = RouteTracer(route, settings, clock=lambda: now[0])
    contexts = [new_trace() for _ in range(600)]
    size = 400

    first, second = (program.run(batch_of(list(contexts))) for _ in range(2))
    now[0] += 0.3
    third = program.run(batch_of(list(contexts)))

    counts = [[span.kind for span in result.spans] for result in (first, second, third)]
    assert counts[0].count("CONSUMER") == size // 2
    assert counts[0].count("INTERNAL") == 5
    assert counts[1].count("CONSUMER") < size / 8
    assert counts[2].count("CONSUMER") > 0
    kept = list(map(traceparent_of, first.messages.column("headers").to_pylist()))
    good = [context for at, context in enumerate(contexts, 1) if at % 4]
    assert kept[150 : len(good)] == good[150:]


def test_a_context_that_the_route_removes_is_not_put_back() -> None:
    """The record is traced all the same."""
    text = ROUTE.replace("InsertHeader, header: place, value.literal: x", "DropHeaders, headers: traceparent")
    nats = 'nats, servers: "nats://a"'
    route = Route.parse(text.format(source=f"{nats}, stream: IN", sink=nats, out="o", more=""), {})

    result = Program.of(route, traces=TraceSettings.of(AWAY)).run(batch_of([new_trace()] * 3))

    assert list(map(traceparent_of, result.messages.column("headers").to_pylist())) == [None] * 3
    assert {span.kind for span in result.spans} == {"CONSUMER", "INTERNAL"}


def test_nothing_is_imported_where_it_is_off(nats_server: NatsServer, out: str) -> None:
    """A task without an endpoint: no OpenTelemetry, no span, and the route's own headers."""
    program = f"""
import sys
import pyarrow as pa
from tests.traces.test_propagation import ROUTE, SCHEMA, contexts, rows_of
from turnout.routes import Route
from turnout.spark.stage import SparkStage
stage = SparkStage.of(Route.parse(ROUTE.format(url={nats_server.url!r}, out={out!r}, more=""), {{}}), splits=False)
rows = list(stage.publish([pa.RecordBatch.from_pylist(rows_of(contexts(6)), schema=SCHEMA)]))
print(stage.traces, [name for name in sys.modules if name.startswith("opentelemetry")])
"""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout == "None []\n"


def test_a_collector_that_is_away_holds_no_task_up(
    nats_server: NatsServer, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits a moment for an export, and not again while that is tried."""
    from turnout.traces import export

    monkeypatch.setenv(ENDPOINT, AWAY[ENDPOINT])
    stage = SparkStage.of(route_of(out, nats_server.url), splits=False)
    list(stage.publish([batch_of([new_trace()])]))
    waits: list[float] = []
    gives_up, flush = threading.Event(), export.Exporter.flush

    def counted(exporter: export.Exporter, seconds: float) -> None:
        waits.append(seconds)
        flush(exporter, seconds)

    monkeypatch.setattr(export.Exporter, "flush", counted)
    monkeypatch.setattr("turnout.traces.export.BatchSpanProcessor.force_flush", lambda *_: gives_up.wait(600))
    monkeypatch.setattr(export, "EXPORT_SECONDS", 0.0)
    try:
        for _ in range(10):
            list(stage.publish([batch_of([new_trace()])]))
    finally:
        gives_up.set()

    assert len(waits) <= 1


def test_logs_of_failures_have_the_ids(caplog: pytest.LogCaptureFixture) -> None:
    """Also where no spans are made: those that the record came with."""
    context = new_trace()

    result = Program.of(route_of("o")).run(batch_of([None, None, None, context]))

    with caplog.at_level(logging.ERROR):
        failures = [json.dumps(failure) for failure in result.failures]
        log_failures({"_failures": failures, "_failures_count": 1}, route="traced")
    # An exporter of an earlier test may say at the same time that its collector has gone.
    own = [vars(record) for record in caplog.records if record.name == "turnout.errors"]
    assert [(record["trace_id"], record["span_id"]) for record in own] == [tuple(context.ids().values())]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio"},
            "OTEL_TRACES_SAMPLER: found 'traceidratio', expected 'always_off' or",
        ),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: found 'zipkin', expected 'otlp' or 'none'"),
        ({"OTEL_PROPAGATORS": "b3,jaeger"}, "OTEL_PROPAGATORS: found 'jaeger', expected 'tracecontext' or 'b3'"),
        (
            {"TURNOUT_SPANS_PER_SECOND": "0"},
            "TURNOUT_SPANS_PER_SECOND: found '0', expected a number of spans, 1 or more",
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "found 'http/json', expected 'http/protobuf' or 'grpc'"),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1%"},
            "OTEL_TRACES_SAMPLER_ARG: found '1%', expected a number from 0 to 1",
        ),
    ],
)
def test_variables(more: dict[str, str], problem: str) -> None:
    """What is not supported is an error where spans are made."""
    with pytest.raises(ConfigError, match=problem):
        TraceSettings.of({**AWAY, **more})
    assert TraceSettings.of(more) is None


@pytest.mark.parametrize(
    "more",
    [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_SAMPLER": "always_off"}],
)
def test_ways_to_turn_spans_off(more: dict[str, str]) -> None:
    """By OpenTelemetry's own variables."""
    assert TraceSettings.of({**AWAY, **more}) is None


@pytest.mark.parametrize("limit", ["1", "10", "100"])
def test_large_batches_are_searched_at_any_limit(limit: str) -> None:
    """When there is room for some of their records."""
    program = Program.of(route_of("o"), traces=TraceSettings.of({**AWAY, "TURNOUT_SPANS_PER_SECOND": limit}))

    result = program.run(batch_of([new_trace()] * 4_000))

    assert sum(span.kind == "CONSUMER" for span in result.spans) == int(limit)


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
CONTEXT = SpanContext(int(TRACE, 16), int(SPAN, 16), 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PARENT, CONTEXT),
        (f"00-{TRACE}-{SPAN}-00", CONTEXT._replace(flags=0)),
        (f"00-{TRACE}-{SPAN}-03", CONTEXT._replace(flags=3)),
        (f"00-{TRACE}-{SPAN}-fd", CONTEXT._replace(flags=1)),
        (f"cc-{TRACE}-{SPAN}-01-of-the-future", CONTEXT),
        (f"cc-{TRACE}-{SPAN}-01.of-the-future", None),
        (f"{PARENT}-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (PARENT.upper(), None),
        (f" {PARENT}", None),
        (f"00-{TRACE}-{SPAN}-1", None),
        (f"00-{TRACE[1:]}\u0661-{SPAN}-01", None),
        ("", None),
    ],
)
def test_traceparent(text: str, expected: SpanContext | None) -> None:
    """The examples and the rules of W3C Trace Context; unknown flags are not passed on."""
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"b3": f"{TRACE}-{SPAN}-1"}, CONTEXT),
        ({"b3": f"{TRACE}-{SPAN}-d-{SPAN}"}, CONTEXT),
        ({"b3": f"{TRACE[16:]}-{SPAN}-1"}, CONTEXT._replace(trace_id=int(TRACE[16:], 16))),
        ({"b3": f"{TRACE}-{SPAN}"}, CONTEXT._replace(flags=0)),
        ({"b3": "0"}, None),
        ({"b3": f"{'0' * 32}-{SPAN}-1"}, None),
        ({"x-b3-traceid": TRACE.upper(), "x-b3-spanid": SPAN, "x-b3-sampled": "1"}, CONTEXT),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-flags": "1"}, CONTEXT),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-sampled": "0"}, CONTEXT._replace(flags=0)),
        ({"x-b3-traceid": TRACE}, None),
        ({"traceparent": PARENT, "b3": f"{SPAN}-{SPAN}-0"}, CONTEXT),
        ({"traceparent": "00-wrong", "b3": f"{TRACE}-{SPAN}-1"}, CONTEXT),
    ],
)
def test_b3(headers: dict[str, str], expected: SpanContext | None) -> None:
    """One header or several, behind W3C's; without the option none of them counts."""
    assert context_of(headers, ("tracecontext", "b3", "b3multi")) == expected
    assert context_of(headers, ("tracecontext",)) == (expected if headers.get("traceparent") == PARENT else None)


def test_written_headers_are_read_back() -> None:
    """By each propagator, and by all of them together."""
    context = new_trace()
    everything = ("tracecontext", "b3", "b3multi")
    for propagators in (*((one,) for one in everything), everything):
        headers = {name.lower(): text for name, text in headers_of(context, propagators).items()}
        read = context_of(headers, propagators)
        assert read is not None
        assert (read.trace_id, read.span_id, read.is_sampled) == (context.trace_id, context.span_id, True)
    assert context.child().trace_id == context.trace_id
    assert context.child().span_id != context.span_id


def test_requests_pass_contexts_on() -> None:
    """Into a webhook, and from the HTTP source; not what breaks a header or is longer than others take."""
    headers = {"Traceparent": PARENT, "tracestate": "a=1", "b3": "0", "X-Other": "x"}
    kept = {"traceparent": PARENT, "tracestate": "a=1", "b3": "0"}
    stored = {name: [text] for name, text in headers.items()}

    request, fixed = (
        request_of(DeliverySettings(headers=own), "m", stored, b"{}", lambda: datetime.now(UTC), "s")[0]
        for own in ({}, {"Traceparent": "own"})
    )
    lowered = {name.lower(): text for name, text in headers.items()}
    taken = [
        message.headers
        for kind, body in (("json", b"1"), ("lines", b"1\n2"), ("github", b"{}"))
        for message in messages_of(kind, lowered, body)
    ]

    assert kept.items() <= request.items()
    assert "X-Other" not in request
    assert [text for name, text in fixed.items() if name.lower() == "traceparent"] == ["own"]
    assert len(taken) == 4
    assert all(kept.items() <= own.items() for own in taken)
    assert forwarded([("tracestate", "a=\r\nX: 1"), ("b3", "ä"), ("traceparent", "0" * 513)]) == {}
