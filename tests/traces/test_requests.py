"""Spans of requests: of webhooks, and to REST, inputs and gRPC; what they log, and exemplars of metrics."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.delivery.receiver import Hooks, run
from tests.delivery.receiver import Receiver as Endpoint
from tests.server.conftest import Bench, bench
from tests.server.test_inputs import BEARER, Scene
from turnout.base.terminal import JsonLines, TextLines
from turnout.embedded import NatsServer
from turnout.engine.counts import Counts
from turnout.rpc.server import ServerSettings, subscriptions_server
from turnout.rpc.v1 import subscriptions_pb2, subscriptions_pb2_grpc
from turnout.runtime.offsets import Progress
from turnout.server.metrics import Metrics
from turnout.server.rest.app import TracedApp, build_app, guarded
from turnout.subscriptions import open_store
from turnout.traces.spans import TraceSettings, new_trace, parsed

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason='OTLP needs "turnout[otlp]"')

from tests.traces.receiver import Receiver, over_http
from tests.traces.test_spans import ENDPOINT, assert_conventions

__all__ = ["bench"]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with over_http() as receiver:
        monkeypatch.setenv(ENDPOINT, receiver.url)
        yield receiver


def test_webhooks(nats_server: NatsServer, receiver: Receiver) -> None:
    """Each attempt has a span of its own, whose context the request has; other contexts pass, and others have none."""
    sampled, other = new_trace(), new_trace()._replace(flags=0)
    failed: list[Any] = []

    def answer(request: Any) -> web.Response:
        if not failed:
            failed.append(request)
            return web.Response(status=503)
        return web.Response(status=204)

    async def work(hooks: Hooks, _: Endpoint) -> None:
        headers = {"traceparent": sampled.traceparent, "tracestate": "a=1"}
        await hooks.publish(b"1", headers=headers)
        await hooks.deliver()
        await hooks.publish(b"2", headers={"traceparent": other.traceparent}, subscription="s")
        await hooks.publish(b"3", subscription="t")
        await hooks.deliver()

    requests = run(nats_server, answer, work, delivery={"retry": [0.05], "jitter": 0}).requests

    receiver.wait_for(lambda: len(receiver.spans) == 2)
    assert assert_conventions(receiver.spans) == {("POST", "CLIENT")}
    assert [(span.trace_id, span.parent) for span in receiver.spans] == [sampled[:2]] * 2
    assert sorted(span.error for span in receiver.spans) == ["", "503"]
    headers = {body: [one.headers for one in requests if one.body == body] for body in (b"1", b"2", b"3")}
    contexts = [parsed(own["traceparent"]) for own in headers[b"1"]]
    assert {own and own.span_id for own in contexts} == {span.span_id for span in receiver.spans}
    assert [own["tracestate"] for own in headers[b"1"]] == ["a=1"] * 2
    assert [parsed(own["traceparent"]) for own in headers[b"2"]] == [other]
    assert ["traceparent" in own for own in headers[b"3"]] == [False]
    assert all(re.fullmatch(r"http://127.0.0.1:\d+/", span.attributes["url.full"]) for span in receiver.spans)


def test_an_input_and_rest(
    bench: Bench, nats_server: NatsServer, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """A sampled request has a span with its route; its messages have its context, and its log lines its ids."""
    traces, sampled, other = TraceSettings.of_process(), new_trace(), new_trace()._replace(flags=0)
    assert traces is not None
    scene = Scene(bench, nats_server.url)
    scene.make_stream()
    with scene.serving():
        app = TracedApp(guarded(build_app(bench.parts), inputs={"shop": scene.part.max_body}), traces)
        client = TestClient(app, base_url="http://127.0.0.1:8090")
        for context in (sampled, other):
            own = {"traceparent": context.traceparent, "tracestate": "a=1"}
            assert client.post("/v1/in/shop", content=b"1", headers={**BEARER, **own}).status_code == 200
        assert client.get("/v1/routes/none", headers={"traceparent": sampled.traceparent}).status_code == 404
        assert client.get("/live").status_code == 200

    receiver.wait_for(lambda: len(receiver.spans) == 2)
    first, second = receiver.spans
    assert assert_conventions([first]) == {("POST", "SERVER")}
    assert (first.name, second.name) == ("POST /v1/in/{name}", "GET /v1/routes/{name}")
    assert [(span.trace_id, span.parent) for span in receiver.spans] == [sampled[:2]] * 2
    assert second.attributes["http.response.status_code"] == 404
    stored = [message.headers for message in scene.stored()]
    assert stored[0]["traceparent"] == [f"{first.traceparent.decode()}-{sampled.flags:02x}"]
    assert stored[1]["traceparent"] == [other.traceparent]
    assert [own["tracestate"] for own in stored] == [["a=1"]] * 2


def test_lines_of_a_log() -> None:
    """The ids are fields of JSON, and the end of a line of text; without a span there are none."""
    record = logging.makeLogRecord({"msg": "x", **new_trace().ids()})
    plain = logging.makeLogRecord({"msg": "x"})

    line = json.loads(JsonLines().format(record))
    text = TextLines("%(message)s").format(record)

    assert (line["trace_id"], line["span_id"]) == (vars(record)["trace_id"], vars(record)["span_id"])
    assert text == f"x trace_id={line['trace_id']} span_id={line['span_id']}"
    assert "trace_id" not in json.loads(JsonLines().format(plain))
    assert TextLines("%(message)s").format(plain) == "x"


def test_grpc(tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """A call has a span with its status, its log line the ids, and its duration an exemplar."""
    sampled = new_trace()
    settings = ServerSettings(host="127.0.0.1", port=0, grace_seconds=2.0, log_level="info")
    with (
        open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store,
        subscriptions_server(store, settings) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub = subscriptions_pb2_grpc.ServiceStub(channel)
        metadata = (("traceparent", sampled.traceparent),)
        with pytest.raises(grpc.RpcError):
            stub.Read(subscriptions_pb2.ReadRequest(id="none"), metadata=metadata)
        receiver.wait_for(lambda: receiver.spans)
        (calls,) = (one for one in server.metrics.registry.collect() if one.name == "turnout_rpc_seconds")

    (span,) = receiver.spans
    assert assert_conventions([span]) == {("subscriptions.", "SERVER")}
    assert (span.trace_id, span.parent) == sampled[:2]
    assert (span.attributes["rpc.response.status_code"], span.error) == ("NOT_FOUND", "")
    (line,) = (json.loads(text) for text in capsys.readouterr().err.splitlines() if "trace_id" in text)
    assert int(line["span_id"], 16) == span.span_id
    ids = [sample.exemplar.labels for sample in calls.samples if sample.exemplar]
    assert [int(own["trace_id"], 16) for own in ids] == [sampled.trace_id]


def test_exemplars_of_micro_batches(bench: Bench) -> None:
    """In OpenMetrics, for who accepts it and once there are some."""
    asked = "application/openmetrics-text; version=1.0.0; q=0.8, text/plain; q=0.5"
    metrics, context = bench.metrics, new_trace()
    bench.start("a")
    plain = metrics.answer(asked)
    metrics.progressed("a", Counts(), Progress(1, Counts(), 1.0, 0.2, None, None, context))

    text, content_type = metrics.answer(asked)

    assert plain[1].startswith("text/plain")
    assert content_type.startswith("application/openmetrics-text")
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    (sample,) = (one for one in families["turnout_route_batch_seconds"].samples if one.exemplar)
    assert (sample.exemplar.labels, sample.exemplar.value) == (context.ids(), 0.2)
    assert b"trace_id" not in metrics.text()
    assert isinstance(metrics, Metrics)
