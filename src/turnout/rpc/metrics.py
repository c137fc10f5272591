"""Prometheus metrics of the subscriptions service."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from socket import AF_INET, AF_INET6, socket
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore
from typing import Any, TypeAlias, TypeVar, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from turnout.base.background import Background

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


_SCRAPES = 16
"""Requests for metrics at once; a connection beyond them is closed."""
_READ_SECONDS = 10.0

Request: TypeAlias = socket | tuple[bytes, socket]
"""Connection of a client, as `socketserver` hands it on."""
Address: TypeAlias = "Any"
"""Address of a client, of a form that depends on the socket's family."""


M = TypeVar("M", Counter, Gauge, Histogram)


class _Handler(WSGIRequestHandler):
    timeout = _READ_SECONDS

    def log_message(self, *_: object) -> None:
        """Log nothing: Prometheus sends a request every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    """Server with a bounded number of threads, in which slow clients time out."""

    daemon_threads = True
    # With Python's 5, a client beyond them connects again only after a second or more.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._slots = BoundedSemaphore(_SCRAPES)
        super().__init__(address, handler)

    def process_request(self, request: Request, client_address: Address) -> None:
        """See `socketserver.BaseServer`."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Request, client_address: Address) -> None:
        """See `socketserver.ThreadingMixIn`."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Request, client_address: Address) -> None:
        """Print nothing: a client's timeout or disconnect is not a failure of the server."""


def _server_class(host: str) -> type[_Server]:
    family = AF_INET6 if ":" in host else AF_INET
    return type("_MetricsServer", (_Server,), {"address_family": family})


class CallMetrics:
    """Metrics of one server, in a registry of its own to separate several servers in a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("service", "method")
        self._calls = Counter(
            "turnout_rpc_calls", "Calls that have ended, by their status.", (*labels, "code"), registry=self.registry
        )
        self._seconds = Histogram(
            "turnout_rpc_seconds", "How long calls took.", labels, buckets=_BUCKETS, registry=self.registry
        )
        self._running = Gauge("turnout_rpc_running", "Calls that are being answered.", labels, registry=self.registry)
        self._labelled: dict[tuple[object, ...], Counter | Gauge | Histogram] = {}
        self._served: tuple[WSGIServer, Background] | None = None

    def running(self, service: str, method: str) -> AbstractContextManager[None]:
        """Count a call as running inside the block."""
        running: AbstractContextManager[None] = self._of(self._running, service, method).track_inprogress()
        return running

    def count_call(self, service: str, method: str, code: str, seconds: float) -> None:
        """Count a call that has ended."""
        self._of(self._calls, service, method, code).inc()
        self._of(self._seconds, service, method).observe(seconds)

    def _of(self, metric: M, *labels: str) -> M:
        """Return the metric for these labels; the library would check and lock for each call."""
        labelled = self._labelled.get((metric, *labels))
        if labelled is None:
            labelled = self._labelled[metric, *labels] = metric.labels(*labels)
        return cast("M", labelled)

    def watch_index(self, subscriptions: Callable[[], float], revision: Callable[[], float]) -> None:
        """Export size and revision of the subscription index, read at each Prometheus request."""
        self._watch("turnout_subscriptions", "Subscriptions in the index.", subscriptions)
        self._watch("turnout_revision", "The store's revision that the index is at.", revision)

    def _watch(self, name: str, doc: str, read: Callable[[], float]) -> None:
        Gauge(name, doc, registry=self.registry).set_function(read)

    def serve(self, port: int, host: str) -> int:
        """Answer Prometheus on this address and port, or on a free one for 0, and give the port."""
        server = _server_class(host)((host, port), _Handler)
        server.set_app(make_wsgi_app(self.registry))
        self._served = server, Background("metrics server", server.serve_forever).start()
        return server.server_port

    def close(self) -> None:
        """Stop answering."""
        if self._served is not None:
            server, background = self._served
            background.stop()
            server.shutdown()
            server.server_close()
            background.join()
            self._served = None
