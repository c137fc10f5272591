"""Receiver of OTLP over HTTP and gRPC, which keeps the spans that it gets."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True)
class Received:
    """Span as a collector has it."""

    name: str
    kind: str
    trace_id: int
    span_id: int
    parent: int
    start: int
    end: int
    attributes: dict[str, Any]
    links: list[int]
    error: str
    resource: dict[str, Any]

    @property
    def traceparent(self) -> bytes:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}".encode()


@dataclass
class Receiver:
    """Spans, in the order in which they came; *answer* is the status of the answer over HTTP."""

    url: str = ""
    answer: int = 200
    spans: list[Received] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            own = _attributes(resource.resource.attributes)
            self.spans += [_received(span, own) for scope in resource.scope_spans for span in scope.spans]

    def named(self, start: str) -> list[Received]:
        return [span for span in self.spans if span.name.startswith(start)]

    def wait_for(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        until = monotonic() + seconds
        while not condition():
            assert monotonic() < until, sorted({span.name for span in self.spans})
            sleep(0.02)


def _received(span: Any, resource: dict[str, Any]) -> Received:
    return Received(
        span.name,
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        int.from_bytes(span.trace_id),
        int.from_bytes(span.span_id),
        int.from_bytes(span.parent_span_id),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        [int.from_bytes(link.span_id) for link in span.links],
        span.status.message if span.status.code == 2 else "",
        resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def over_http() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            receiver.paths.add(self.path)
            if receiver.answer == 200 and self.path == "/v1/traces":
                receiver.take(ExportTraceServiceRequest.FromString(body))
            self.send_response(receiver.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def over_grpc() -> Iterator[Receiver]:
    receiver = Receiver()

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            receiver.take(request)
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    receiver.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()
