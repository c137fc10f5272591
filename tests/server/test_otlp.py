"""Metrics pushed to a collector: a small one that takes them over HTTP and reads what protobuf says."""

from __future__ import annotations

import gzip
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import route_text, wait_for
from tests.server.fakes import FakeRunner
from turnout.base.histogram import Histogram
from turnout.engine.counts import Flow
from turnout.errors import ConfigError, MissingExtraError
from turnout.server.config import ServerConfig
from turnout.server.metrics import endpoint_of
from turnout.server.serving import RouteServer

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Collector:
    """Collector that records the pushed requests; *answer* is the status that it returns."""

    def __init__(self) -> None:
        self.answer = 200
        self.paths: list[str] = []
        self.requests: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                collector.paths.append(self.path)
                if collector.answer == 200:
                    collector.requests.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(collector.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def resource(self) -> dict[str, str]:
        (one,) = self.requests[-1].resource_metrics
        return {each.key: each.value.string_value for each in one.resource.attributes}

    def samples(self) -> Samples:
        """The last push, as Prometheus would have it."""
        (resource,) = self.requests[-1].resource_metrics
        (scope,) = resource.scope_metrics
        samples: Samples = {}
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            assert kind == "gauge" or data.aggregation_temporality == 2, "cumulative"
            for point in data.data_points:
                labels = frozenset((attribute.key, attribute.value.string_value) for attribute in point.attributes)
                if kind != "histogram":
                    assert kind == "gauge" or (data.is_monotonic and point.start_time_unix_nano)
                    samples[metric.name, labels] = point.as_double
                    continue
                samples[f"{metric.name}_count", labels] = point.count
                samples[f"{metric.name}_sum", labels] = point.sum
                bounds = [*point.explicit_bounds, float("inf")]
                for place, bound in enumerate(bounds):
                    key = f"{metric.name}_bucket", labels | {("le", str(bound))}
                    samples[key] = sum(point.bucket_counts[: place + 1])
        return samples


@pytest.fixture
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason='OTLP needs "turnout[otlp]"')
    collector = Collector()
    yield collector
    collector.close()


def serving(folder: Path, runner: FakeRunner, **environment: str) -> RouteServer:
    (folder / "a.yaml").write_text(route_text("a"))
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0", "interval": "20ms"})
    return RouteServer(config, [folder], environment=environment, runner_of=lambda *_: runner)


def scraped(server: RouteServer) -> Samples:
    """Return the samples that the server exposes to Prometheus."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    samples = [sample for family in families for sample in family.samples if not sample.name.endswith("_created")]
    return {(sample.name, frozenset(_bounds_as_numbers(sample.labels).items())): sample.value for sample in samples}


def _bounds_as_numbers(labels: dict[str, str]) -> dict[str, str]:
    """The bounds of buckets as Python writes them: +Inf is inf."""
    return labels | ({"le": str(float(labels["le"]))} if "le" in labels else {})


def ours(samples: Samples) -> Samples:
    """Return the samples that do not change without traffic: no process metrics, and no times."""
    names = ("turnout_route", "turnout_build_info")
    return {key: value for key, value in samples.items() if key[0].startswith(names)}


def test_what_is_pushed_is_what_is_scraped(tmp_path: Path, collector: Collector) -> None:
    """Every sum, histogram and gauge, by the same names and labels; and the last push has what came last."""
    runner = FakeRunner()
    flow = Flow({"source": 10, "sink": 9}, {"value": 1}, Histogram.of(0.003, 30) + Histogram.of(40.0))
    interval = {"OTEL_METRIC_EXPORT_INTERVAL": "50"}
    with serving(tmp_path, runner, **{ENDPOINT: f"{collector.url}/"}, **interval) as server:
        wait_for(lambda: runner.runs["a"])
        runner.runs["a"][0].deliver(10, flow, delivered=9, dead_lettered=1)
        scrape = scraped(server)
        pushed = len(collector.requests)
        # The push that is under way may have begun before.
        wait_for(lambda: len(collector.requests) > pushed + 1)

        assert ours(collector.samples()) == ours(scrape)
        assert {name for name, _ in collector.samples()} == {name for name, _ in scrape}
        runner.runs["a"][0].deliver(5)

    assert set(collector.paths) == {"/v1/metrics"}
    assert collector.resource()["service.name"] == "turnout"
    route, last = ("route", "a"), collector.samples()
    assert ours(scrape)["turnout_route_delivery_seconds_bucket", frozenset({route, ("le", "0.005")})] == 30
    assert last["turnout_route_records_read_total", frozenset({route})] == 15


def test_over_grpc(tmp_path: Path) -> None:
    """By OpenTelemetry's variable for the protocol."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason='OTLP needs "turnout[otlp]"')
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as pb2
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc

    requests: list[Any] = []

    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            requests.append(request)
            return pb2.ExportMetricsServiceResponse()

    collector = grpc.server(ThreadPoolExecutor(1))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), collector)
    url = f"http://127.0.0.1:{collector.add_insecure_port('127.0.0.1:0')}"
    collector.start()
    with serving(tmp_path, FakeRunner(), **{ENDPOINT: url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}):
        pass
    collector.stop(None).wait()

    (scope,) = requests[-1].resource_metrics[0].scope_metrics
    assert "turnout_build_info" in {metric.name for metric in scope.metrics}


def test_a_collector_that_is_away_holds_nothing_up(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server serves, ends without waiting for it, and pushes again when it is back; its name may be given."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "depot")
    collector.answer = 400
    runner = FakeRunner()
    environment = {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{collector.url}/mine",
        "OTEL_METRIC_EXPORT_INTERVAL": "50",
        "OTEL_SERVICE_NAME": "depot",
    }
    with serving(tmp_path, runner, **environment) as server:
        wait_for(lambda: len(collector.paths) > 1)
        assert scraped(server)
        collector.answer = 200
        wait_for(lambda: collector.requests)

    assert set(collector.paths) == {"/mine"}
    assert collector.resource()["service.name"] == "depot"


def test_what_has_not_been_observed_is_not_pushed(tmp_path: Path, collector: Collector) -> None:
    """Without a route there is no distribution: an OTLP metric without data is left out."""
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0"})
    with RouteServer(config, [tmp_path], environment={ENDPOINT: collector.url}, runner_of=lambda *_: FakeRunner()):
        pass

    (scope,) = collector.requests[-1].resource_metrics[0].scope_metrics
    assert "turnout_build_info" in {metric.name for metric in scope.metrics}
    assert [metric.name for metric in scope.metrics if metric.WhichOneof("data") is None] == []


def test_nothing_is_pushed_unless_it_is_asked_for(tmp_path: Path) -> None:
    """No endpoint, or the exporter turned off: no thread, and no need for the package."""
    assert endpoint_of({}) is None
    assert endpoint_of({ENDPOINT: "http://127.0.0.1:1", "OTEL_METRICS_EXPORTER": "none"}) is None
    assert endpoint_of({ENDPOINT: "http://127.0.0.1:1"}) == "http://127.0.0.1:1/v1/metrics"
    with serving(tmp_path, FakeRunner()):
        assert "turnout-otlp" not in {thread.name for thread in threading.enumerate()}


def test_what_cannot_be_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unsupported protocol, an invalid interval, and a missing package, each with the remedy."""
    at = {ENDPOINT: "http://127.0.0.1:1"}
    with (
        pytest.raises(
            ConfigError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL: found 'http/json', expected 'http/protobuf' or 'grpc'"
        ),
        serving(tmp_path, FakeRunner(), **at, OTEL_EXPORTER_OTLP_PROTOCOL="http/json"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match=r"OTEL_METRIC_EXPORT_INTERVAL: found '1 min', expected a number"),
        serving(tmp_path, FakeRunner(), **at, OTEL_METRIC_EXPORT_INTERVAL="1 min"),
    ):
        pass
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with (
        pytest.raises(
            MissingExtraError, match=r"^'opentelemetry.*' is not installed: pip install \"turnout\[otlp\]\"$"
        ),
        serving(tmp_path, FakeRunner(), **at),
    ):
        pass
