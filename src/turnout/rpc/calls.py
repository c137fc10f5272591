"""What every call goes through: who asks, what became of it, how long it took."""

from __future__ import annotations

import hashlib
import hmac
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import grpc
import structlog

from turnout.errors import TurnoutError
from turnout.rpc.metrics import Metrics
from turnout.rpc.status import ID_KEY, id_of, status_of

__all__ = ["Calls", "RefusedError", "logger"]

_OPEN = ("grpc.health.v1.Health",)
"""Services that need no token: a load balancer has none."""


class RefusedError(Exception):
    """Raised inside a call to end it with a status that no turnout error has."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True)
class _Malformed:
    """In place of a request that is not a message of the proto."""

    problem: str


def logger(level: str = "info") -> Any:
    """A logger that writes a JSON object a line to standard error."""
    return structlog.wrap_logger(
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


class Calls(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Wraps every method: the token, errors to status codes, a line in the log, the metrics."""

    def __init__(self, *, log: Any, metrics: Metrics, tokens: tuple[str, ...] = ()) -> None:
        self._log = log
        self._metrics = metrics
        self._tokens = tuple(_digest(token) for token in tokens)
        self._handlers: dict[str, Any] = {}

    def intercept_service(self, continuation: Callable[[Any], Any], call: Any) -> Any:
        """See ``grpc.ServerInterceptor``."""
        # What is known is not wrapped again; what does not exist is not kept, for there is no end of names.
        found = self._handlers.get(call.method)
        if found is None:
            handler = continuation(call)
            if handler is None:
                return None
            _, service, method = call.method.split("/", 2)
            found = self._handlers[call.method] = _wrapped(handler, partial(_Ending, self, service, method))
        return found

    def admits(self, service: str, metadata: Any) -> bool:
        """Whether a call with this metadata has a token, where one is needed."""
        if not self._tokens or service in _OPEN:
            return True
        written = next((pair.value for pair in metadata or () if pair.key == "authorization"), "")
        scheme, _, token = written.partition(" ")
        if scheme.lower() != "bearer":
            return False
        found = _digest(token.strip())
        return any(hmac.compare_digest(found, known) for known in self._tokens)

    def note(self, service: str, method: str, code: str, seconds: float, peer: str, problem: object) -> None:
        """Count the call and log it: failures of ours with their trace, refusals as warnings."""
        self._metrics.ended(service, method, code, seconds)
        facts = {"service": service, "method": method, "code": code, "ms": round(seconds * 1e3, 3), "peer": peer}
        if code == "OK":
            self._log.debug("call", **facts)
        elif code in ("INTERNAL", "UNKNOWN"):
            self._log.error("call", **facts, problem=str(problem), exc_info=problem)
        else:
            self._log.warning("call", **facts, problem=str(problem))

    def running(self, service: str, method: str) -> Any:
        """Count the call as running."""
        return self._metrics.running(service, method)


class _Ending:
    """A context manager around one call that turns whatever it raises into a status."""

    def __init__(self, calls: Calls, service: str, method: str, context: Any, request: Any) -> None:
        self._calls = calls
        self._names = (service, method)
        self._context = context
        self._request = request
        self._running = calls.running(service, method)
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter()
        self._running.__enter__()

    def admit(self) -> None:
        """Refuse who has no token, what is no message, and what nobody waits for any more."""
        if not self._calls.admits(self._names[0], self._context.invocation_metadata()):
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, "this service needs a bearer token that it knows")
        check_message(self._request)
        left = self._context.time_remaining()
        if left is not None and left <= 0:
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before the work began")

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, problem, trace)
        # Where the caller has gone away, whatever that has led to here, nobody is left to be told anything.
        gone = isinstance(problem, GeneratorExit) or not self._context.is_active()
        code, details, about = _verdict(None if gone else problem)
        shown = grpc.StatusCode.CANCELLED if gone else code
        seconds = time.perf_counter() - self._begun
        self._calls.note(*self._names, shown.name, seconds, self._context.peer(), problem)
        if problem is None or gone:
            return
        if about is not None:
            self._context.set_trailing_metadata(((ID_KEY, about.encode("utf-8", "replace")),))
        self._context.abort(code, details)


def _verdict(problem: BaseException | None) -> tuple[grpc.StatusCode, str, str | None]:
    """The status, its details, and the id it is about."""
    match problem:
        case None:
            return grpc.StatusCode.OK, "", None
        case RefusedError():
            return problem.code, problem.details, None
        case TurnoutError():
            return status_of(problem), str(problem), id_of(problem)
    # What went wrong here is in the log; a stranger learns nothing of it.
    return grpc.StatusCode.INTERNAL, "internal error", None


def check_message(request: Any) -> None:
    """Refuse bytes that were not a message.

    Raises:
        RefusedError: with INVALID_ARGUMENT, where grpc alone would say INTERNAL.
    """
    if isinstance(request, _Malformed):
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"not a message of this method: {request.problem}")


def _wrapped(handler: Any, end: Callable[[Any, Any], _Ending]) -> Any:
    """The same handler with every call inside an `_Ending`."""
    behaviour = next(
        found
        for found in (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        if found is not None
    )

    def single(request: Any, context: Any) -> Any:
        ending = end(context, None if handler.request_streaming else request)
        with ending:
            ending.admit()
            return behaviour(_checked(request) if handler.request_streaming else request, context)

    def streaming(request: Any, context: Any) -> Iterator[Any]:
        ending = end(context, None if handler.request_streaming else request)
        with ending:
            ending.admit()
            yield from behaviour(_checked(request) if handler.request_streaming else request, context)

    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[bool(handler.request_streaming), bool(handler.response_streaming)]
    return make(
        streaming if handler.response_streaming else single,
        request_deserializer=_tolerant(handler.request_deserializer),
        response_serializer=handler.response_serializer,
    )


def _checked(requests: Iterator[Any]) -> Iterator[Any]:
    for request in requests:
        check_message(request)
        yield request


def _tolerant(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except Exception as problem:  # noqa: BLE001 - the parser's own errors differ between its implementations
            return _Malformed(f"{type(problem).__name__}: {problem}")

    return read


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
