"""Common handling of calls: authentication, result and duration."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from socket import AF_INET, AF_INET6, socket
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore
from types import TracebackType
from typing import Any, Never, Protocol, TypeAlias, TypeVar, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import grpc
import structlog
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from structlog.typing import FilteringBoundLogger

from turnout.base.background import Background
from turnout.base.untrusted import JsonObject
from turnout.errors import StoreUnavailableError, TurnoutError
from turnout.rpc.caller import (
    ACTOR_KEY,
    MAX_ACTOR,
    MAX_RESPONSE,
    MAX_RESPONSE_KEY,
    NEEDS,
    OPEN,
    TENANT_KEY,
    CallContext,
    Caller,
    Right,
)
from turnout.rpc.status import UNAVAILABLE, RefusedError, rich_status, status_of, trailers_of
from turnout.rpc.tokens import Tokens
from turnout.subscriptions.past import acting_as
from turnout.subscriptions.store import BoundedPool, StoreThreads, within
from turnout.traces.spans import Span, TraceSettings

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


_SCRAPES = 16
"""Requests for metrics at once; a connection beyond them is closed."""
_READ_SECONDS = 10.0

Request: TypeAlias = socket | tuple[bytes, socket]
"""Connection of a client, as `socketserver` hands it on."""
Address: TypeAlias = "tuple[object, ...] | str"
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

    def count_call(
        self, service: str, method: str, code: str, seconds: float, ids: dict[str, str] | None = None
    ) -> None:
        """Count a call that has ended; *ids* are those of its span, if it has one."""
        self._of(self._calls, service, method, code).inc()
        self._of(self._seconds, service, method).observe(seconds, ids or None)

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


_SERVER_ERRORS = ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
"""Codes that OpenTelemetry's conventions take for errors of a server."""

_QUIET_CHECKS = 3
_CHECK_SECONDS = 0.02
"""A server that stops waits until so many checks in a row, with this pause, find no call.

Checks that come late do not count: threads that take calls off connections then wait for a processor too. Behind calls
that have come meanwhile there are more checks: a client sends the next ones when those are answered."""

_MAX_DETAILS = 2_000
"""Characters of an error's details: trailers beyond 8 kB are refused by clients, which then see another error."""


Requests: TypeAlias = "Message | Iterable[Message]"
"""The message of a call, or an iterator of messages for a method that reads a stream."""
Behaviour: TypeAlias = Callable[[Requests, CallContext], "Message | Iterator[Message]"]
"""Method of a service; returns a message, or an iterator of messages."""


class MetadataPair(Protocol):
    """Pair of a call's metadata."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class _Malformed:
    """Placeholder for a request that is not a message of the proto."""

    problem: str


def logger(level: str = "info") -> FilteringBoundLogger:
    """A logger that writes a JSON object a line to standard error."""
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    return log


class Calls(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Interceptor of every method: authentication, status codes for errors, a log line, metrics.

    Each method gets a `CallContext` in place of gRPC's context, with the caller whose subscriptions it is about.
    """

    def __init__(
        self, *, log: FilteringBoundLogger, metrics: CallMetrics, tokens: Tokens, threads: StoreThreads | None = None
    ) -> None:
        self._log = log
        self._metrics = metrics
        self._tokens = tokens
        self._threads = threads
        self._traces = TraceSettings.of_process()
        self._handlers: dict[str, grpc.RpcMethodHandler] = {}
        self._refusals: dict[str, tuple[BoundedPool, grpc.RpcMethodHandler]] = {}
        self._stopping: dict[str, grpc.RpcMethodHandler] = {}
        self._is_stopping = False
        self._accepted = 0
        """Calls that have begun, so that `drain` sees whether there are new ones; only gRPC's own thread counts."""
        self._unary = set[_Ending]()
        """Calls with one request and one response that are being answered."""

    def drain(self, seconds: float) -> None:
        """Refuse further calls with UNAVAILABLE, and wait until those that were accepted are answered.

        Calls that gRPC has taken off a connection and not yet given to a thread would be cancelled by its own stop.

        Args:
            seconds: longest time to wait. Streams are not waited for: those of the server end by themselves.
        """
        self._is_stopping = True
        deadline = time.monotonic() + seconds
        quiet, first, accepted = 0, self._accepted, -1
        while quiet < _QUIET_CHECKS * (1 if accepted == first else 5) and (begun := time.monotonic()) < deadline:
            time.sleep(_CHECK_SECONDS)
            is_late = time.monotonic() - begun > 2 * _CHECK_SECONDS
            quiet = quiet + 1 if accepted == self._accepted and not self._unary and not is_late else 0
            accepted = self._accepted

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None],
        call: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """See ``grpc.ServerInterceptor``."""
        # Known calls are not wrapped again; unknown names are not cached, as their number is unbounded.
        wrapped = self._handlers.get(call.method)
        if wrapped is None:
            handler = continuation(call)
            if handler is None:
                return None
            _, service, method = call.method.split("/", 2)
            end = partial(_Ending, self, service, method)
            pool = self._pool_of(service, method)
            wrapped = self._handlers[call.method] = _wrapped(handler, end, pool)
            if pool is not None:
                self._refusals[call.method] = pool, _wrapped(handler, end, None, partial(_refuse, pool))
            if service not in OPEN:
                self._stopping[call.method] = _wrapped(handler, end, None, _refuse_stopping)
        self._accepted += 1
        if self._is_stopping and call.method in self._stopping:
            return self._stopping[call.method]
        pool, refusal = self._refusals.get(call.method, (None, None))
        return refusal if pool is not None and pool.full else wrapped

    def _pool_of(self, service: str, method: str) -> BoundedPool | None:
        """The threads of a method that waits for the store; streams of unknown length have others."""
        if self._threads is None or (service, method) in _STREAMS:
            return None
        right = NEEDS.get((service, method))
        return {Right.READ: self._threads.reads, Right.WRITE: self._threads.writes}.get(right) if right else None

    def caller(self, service: str, method: str, metadata: Iterable[MetadataPair] | None) -> Caller:
        """Return the caller named by the call's metadata.

        Raises:
            RefusedError: the caller is unknown, has no right to the method, or names another tenant.
        """
        if service in OPEN:
            return Caller()
        written: JsonObject = {pair.key: pair.value for pair in metadata or ()}
        if self._tokens:
            caller = self._bearer(written.get("authorization", ""))
        else:
            caller = Caller(name=written.get(ACTOR_KEY, b"").decode("utf-8", "replace")[:MAX_ACTOR])
        caller.admit(service, method)
        return caller.acting_for(written.get(TENANT_KEY, ""))

    def _bearer(self, authorization: str) -> Caller:
        scheme, _, token = authorization.partition(" ")
        caller = self._tokens.caller(token.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, "this service needs a bearer token that it knows")
        return caller

    def note(self, ended: FinishedCall, problem: object) -> None:
        """Count the call and log it: failures of ours with their trace, refusals as warnings."""
        code, ids = ended.code, self._trace(ended)
        self._metrics.count_call(ended.service, ended.method, code, ended.seconds, ids)
        facts = {**ended.facts(), **ids}
        if code == "OK":
            self._log.debug("call", **facts)
        elif code in ("INTERNAL", "UNKNOWN"):
            self._log.error("call", **facts, problem=str(problem), exc_info=problem)
        else:
            self._log.warning("call", **facts, problem=str(problem))

    def _trace(self, ended: FinishedCall) -> dict[str, str]:
        """Emit the span of a call whose caller's one is sampled; return its ids, or none."""
        headers = {pair.key: pair.value for pair in ended.metadata or () if isinstance(pair.value, str)}
        sampled = None if self._traces is None else self._traces.sampled(headers)
        if self._traces is None or sampled is None:
            return {}
        parent, context = sampled
        name, code = f"{ended.service}/{ended.method}", ended.code
        facts = {"rpc.system.name": "grpc", "rpc.method": name, "rpc.response.status_code": code}
        error = code if code in _SERVER_ERRORS else ""
        facts |= {"error.type": error} if error else {}
        end = time.time_ns()
        span = Span(name, context, parent, end - int(ended.seconds * 1e9), end, "SERVER", facts, error=error)
        self._traces.exporter.emit([span])
        return context.ids()

    def running(self, service: str, method: str) -> AbstractContextManager[None]:
        """Count the call as running."""
        return self._metrics.running(service, method)

    @contextmanager
    def answering(self, ending: _Ending) -> Iterator[None]:
        """Note a call with one request and one response while it is being answered."""
        self._unary.add(ending)
        try:
            yield
        finally:
            self._unary.discard(ending)


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """Finished call, with the facts for the log."""

    service: str
    method: str
    code: str
    seconds: float
    peer: str
    tenant: str | None
    metadata: Iterable[MetadataPair] | None = None

    def facts(self) -> dict[str, object]:
        """Return the fields of the log line."""
        whose = {} if self.tenant is None else {"tenant": self.tenant}
        milliseconds = round(self.seconds * 1e3, 3)
        return {"service": self.service, "method": self.method, "code": self.code, "ms": milliseconds} | {
            "peer": self.peer,
            **whose,
        }


class _Ending:
    """Context manager around one call that converts any exception to a status."""

    def __init__(self, calls: Calls, service: str, method: str, context: grpc.ServicerContext, request: object) -> None:
        self._calls = calls
        self._names = (service, method)
        self._context = context
        self._request = request
        self._running = calls.running(service, method)
        self._begun = 0.0
        self._caller = Caller()

    def __enter__(self) -> None:
        self._begun = time.perf_counter()
        self._running.__enter__()

    def answering(self) -> AbstractContextManager[None]:
        """Note the call while it is being answered, for the end of the server."""
        return self._calls.answering(self)

    def admit(self) -> CallContext:
        """Check rights, message and deadline; return the context with its caller."""
        self._caller = self._calls.caller(*self._names, self._context.invocation_metadata())
        check_message(self._request)
        left = self._context.time_remaining()
        if left is not None and left <= 0:
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before the work began")
        return CallContext(self._context, self._caller)

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, problem, trace)
        # A disconnected caller gets no status, whatever the error here.
        cancelled = isinstance(problem, GeneratorExit) or not self._context.is_active()
        code, details = _verdict(None if cancelled else problem)
        shown = grpc.StatusCode.CANCELLED if cancelled else code
        seconds = time.perf_counter() - self._begun
        peer, metadata = self._context.peer(), self._context.invocation_metadata()
        ended = FinishedCall(*self._names, shown.name, seconds, peer, self._caller.tenant, metadata)
        self._calls.note(ended, problem)
        if problem is None or cancelled:
            return
        details = _shortened(details)
        self._context.set_trailing_metadata((*trailers_of(problem), *rich_status(problem, code, details)))
        self._context.abort(code, details)


def _shortened(details: str) -> str:
    return details if len(details) <= _MAX_DETAILS else f"{details[:_MAX_DETAILS]}…"


def _verdict(problem: BaseException | None) -> tuple[grpc.StatusCode, str]:
    """The status, and its details."""
    match problem:
        case None:
            return grpc.StatusCode.OK, ""
        case RefusedError():
            return problem.code, problem.details
        case TurnoutError():
            return status_of(problem), str(problem)
        case NotImplementedError():
            return grpc.StatusCode.UNIMPLEMENTED, "this server does not have this method"
    # The error is in the log; an unknown caller gets no details.
    return grpc.StatusCode.INTERNAL, "internal error"


def check_message(request: object) -> None:
    """Refuse bytes that were not a message.

    Raises:
        RefusedError: with INVALID_ARGUMENT, where grpc alone would say INTERNAL.
    """
    if isinstance(request, _Malformed):
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"not a message of this method: {request.problem}")


_STREAMS = (
    ("turnout.subscriptions.v1.Matching", "Watch"),
    ("turnout.subscriptions.v1.Storage", "CreateMany"),
    ("turnout.subscriptions.v1.Storage", "CreateLines"),
    ("turnout.subscriptions.v1.Storage", "DeleteMany"),
    ("turnout.feeds.v1.Feeds", "Read"),
)


def _refuse(pool: BoundedPool, _request: object, _call: object) -> Never:
    """Refuse a method that would wait for the store, while its thread pool is full."""
    try:
        pool.check()
    except StoreUnavailableError as busy:
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(busy)) from None
    raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "the store was slow: try again")


def _refuse_stopping(_request: object, _call: object) -> Never:
    """Refuse a call that comes while the server shuts down."""
    raise RefusedError(UNAVAILABLE, "the server is shutting down: call another one, or try again")


def _wrapped(
    handler: grpc.RpcMethodHandler,
    end: Callable[[grpc.ServicerContext, object], _Ending],
    pool: BoundedPool | None = None,
    replacement: Behaviour | None = None,
) -> grpc.RpcMethodHandler:
    """Return the handler with every call inside an `_Ending`, on the threads of a pool."""
    behaviour = replacement or next(
        method
        for method in (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        if method is not None
    )

    def single(request: Requests, context: grpc.ServicerContext) -> object:
        ending = end(context, None if handler.request_streaming else request)
        with ending.answering(), ending:
            call = ending.admit()
            with within(context.time_remaining()), acting_as(call.caller.name):
                return _bounded(behaviour(_checked(request) if handler.request_streaming else request, call), call)

    def streaming(request: Requests, context: grpc.ServicerContext) -> Iterator[object]:
        ending = end(context, None if handler.request_streaming else request)
        with ending:
            call = ending.admit()
            for response in behaviour(_checked(request) if handler.request_streaming else request, call):
                yield _bounded(response, call)

    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[bool(handler.request_streaming), bool(handler.response_streaming)]
    chosen: Any = streaming if handler.response_streaming else single
    if pool is not None:
        # Called experimental for seven years; if it is no longer read, the call runs with all others.
        chosen.experimental_thread_pool = pool
    return make(
        chosen,
        request_deserializer=_tolerant(handler.request_deserializer),
        response_serializer=handler.response_serializer,
    )


def _bounded(response: Message, call: CallContext) -> Message:
    """Return a response, or refuse it: a client that gets a larger one than it takes has an error of its own library.

    Raises:
        RefusedError: with RESOURCE_EXHAUSTED and both sizes.
    """
    size = response.ByteSize()
    if size > MAX_RESPONSE and size > call.max_response:
        raise RefusedError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"the response has {size:,} bytes, and this client takes {call.max_response:,}: ask for less, or raise the"
            f" client's grpc.max_receive_message_length and say so in the metadata {MAX_RESPONSE_KEY}",
        )
    return response


def _checked(requests: Iterable[object]) -> Iterator[object]:
    for request in requests:
        check_message(request)
        yield request


def _tolerant(deserialize: Callable[[bytes], object] | None) -> Callable[[bytes], object] | None:
    if deserialize is None:
        return None

    def read(data: bytes) -> object:
        try:
            return deserialize(data)
        except Exception as problem:  # noqa: BLE001 - the parser's own errors differ between its implementations
            return _Malformed(f"{type(problem).__name__}: {problem}")

    return read
