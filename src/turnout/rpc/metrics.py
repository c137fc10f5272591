"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

__all__ = ["CallMetrics"]

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class CallMetrics:
    """The numbers of one server, in a registry of its own, so that two servers in a process do not mix."""

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
        self._labelled: dict[tuple[Any, ...], Any] = {}
        self._served: tuple[Any, Thread] | None = None

    def running(self, service: str, method: str) -> AbstractContextManager[None]:
        """Count a call as running inside the block."""
        running: AbstractContextManager[None] = self._of(self._running, service, method).track_inprogress()
        return running

    def ended(self, service: str, method: str, code: str, seconds: float) -> None:
        """Count a call that has ended."""
        self._of(self._calls, service, method, code).inc()
        self._of(self._seconds, service, method).observe(seconds)

    def _of(self, metric: Any, *labels: str) -> Any:
        """The metric's counter for these labels; the library would check and lock for each call."""
        counter = self._labelled.get((metric, *labels))
        if counter is None:
            counter = self._labelled[metric, *labels] = metric.labels(*labels)
        return counter

    def watch_index(self, subscriptions: Callable[[], float], revision: Callable[[], float]) -> None:
        """Offer the size of the index of subscriptions, and the revision that it is at, read when Prometheus asks."""
        self._watch("turnout_subscriptions", "Subscriptions in the index.", subscriptions)
        self._watch("turnout_revision", "The store's revision that the index is at.", revision)

    def _watch(self, name: str, doc: str, read: Callable[[], float]) -> None:
        Gauge(name, doc, registry=self.registry).set_function(read)

    def serve(self, port: int, host: str) -> int:
        """Answer Prometheus on this address and port, or on a free one for 0, and give the port."""
        self._served = start_http_server(port, addr=host, registry=self.registry)
        return int(self._served[0].server_port)

    def close(self) -> None:
        """Stop answering."""
        if self._served is not None:
            server, thread = self._served
            server.shutdown()
            server.server_close()
            thread.join()
            self._served = None
