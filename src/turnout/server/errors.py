"""Errors of requests to the server, and their answers as problems (RFC 9457).

::

    ServerError(TurnoutError)
    ├── RouteNotFoundError(LookupError)   .name       no route has that name
    ├── ConflictError                                 the request does not fit the state that the route is in
    │   └── UnsafeChangeError             .changes    a change needs a new checkpoint and is not confirmed
    ├── StaleError                                    the route was changed concurrently
    ├── NoStoreError                                  the server was started without a store of subscriptions
    ├── TooManyFollowersError                         too many feeds are followed
    └── UnknownPluginError(LookupError)               Kafka Connect's interface knows no such plugin
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from turnout.base.terminal import did_you_mean
from turnout.errors import (
    ConditionError,
    ConfigError,
    ConnectionLostError,
    QuotaExceededError,
    RouteError,
    StoreUnavailableError,
    StreamError,
    SubjectError,
    SubscriptionConflictError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
    TurnoutError,
    message_of,
    shortened,
)
from turnout.secrets import masked_url

if TYPE_CHECKING:
    from turnout.runtime.endpoints import Change


class ServerError(TurnoutError):
    """Raised when the server refuses a request."""


class RouteNotFoundError(ServerError, LookupError):
    """Raised when no route has the requested name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"no route is named {name!r}{did_you_mean(name, known)}")
        self.name = name


class ConflictError(ServerError):
    """Raised when a request does not fit the state that a route is in; nothing has been done."""


class UnsafeChangeError(ConflictError):
    """Raised when a changed route cannot continue from its checkpoint, and a new one is not confirmed.

    Attributes:
        changes: every change, the safe ones included.
    """

    def __init__(self, name: str, changes: Sequence[Change]) -> None:
        reasons = "; ".join(f"{change.change}: {change.reason}" for change in changes if not change.safe)
        super().__init__(f"route {name} cannot continue from its checkpoint: {reasons}")
        self.changes = tuple(changes)


class StaleError(ServerError):
    """Raised when a request names a digest of a route that is not the present one."""


class NoStoreError(ServerError):
    """Raised when subscriptions are requested from a server that was started without a store."""

    def __init__(self) -> None:
        super().__init__("this server has no store of subscriptions: set store in turnout.yaml, or DB_URI")


class TooManyFollowersError(ServerError):
    """Raised when a feed cannot be followed, as too many are; there is room when one of them ends."""

    def __init__(self) -> None:
        super().__init__("too many feeds are followed already: try again later")


class UnknownPluginError(ServerError, LookupError):
    """Raised when a request to Kafka Connect's interface names an unknown plugin."""


_STATUS: tuple[tuple[type[TurnoutError], int], ...] = (
    (RouteNotFoundError, 404),
    (SubscriptionNotFoundError, 404),
    (NoStoreError, 404),
    (UnknownPluginError, 404),
    (StaleError, 412),
    (SubscriptionConflictError, 412),
    (ConflictError, 409),
    (SubscriptionExistsError, 409),
    (RouteError, 422),
    (ConfigError, 422),
    (SubjectError, 422),
    (ConditionError, 422),
    (SubscriptionInvalidError, 422),
    (QuotaExceededError, 403),
    (TooManyFollowersError, 429),
    (StoreUnavailableError, 503),
    (ConnectionLostError, 503),
    (StreamError, 502),
)

RETRY_SECONDS: Final[Mapping[int, int]] = {HTTPStatus.TOO_MANY_REQUESTS: 5, HTTPStatus.SERVICE_UNAVAILABLE: 1}
"""Seconds by status after which to try again."""


def status_of(failure: TurnoutError) -> int:
    """Return the status that an error is answered with."""
    if isinstance(failure, StreamError) and failure.code == HTTPStatus.NOT_FOUND:
        return failure.code
    return next((status for kind, status in _STATUS if isinstance(failure, kind)), 500)


def problem(status: int, detail: str | TurnoutError, **more: object) -> JSONResponse:
    """Return a problem response with a detail of bounded length."""
    text = message_of(detail) if isinstance(detail, TurnoutError) else shortened(masked_url(detail))
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": text}
    return _ProblemResponse({**body, **more}, status, _headers(status), media_type="application/problem+json")


class _ProblemResponse(JSONResponse):
    """JSON in which everything that is not ASCII is escaped: a name that it quotes may be no Unicode."""

    def render(self, content: object) -> bytes:
        """Return the body."""
        return json.dumps(content, separators=(",", ":")).encode()


async def _of_error(request: Request, failure: Exception) -> JSONResponse:
    assert isinstance(failure, TurnoutError)
    if _is_connects(request):
        return _as_connect(status_of(failure), message_of(failure))
    more: dict[str, object] = {}
    if isinstance(failure, RouteError | ConfigError):
        more["mistakes"] = [
            {"path": mistake.path, "problem": masked_url(mistake.problem), "line": mistake.line}
            for mistake in (mistake.shortened() for mistake in failure.mistakes)
        ]
    if isinstance(failure, UnsafeChangeError):
        more["changes"] = [
            {
                "change": change.change,
                "verdict": change.verdict,
                "reason": change.reason,
                "uncovers": change.uncovers,
            }
            for change in failure.changes
        ]
        more["confirm"] = "confirm=new-checkpoint"
    return problem(status_of(failure), failure, **more)


def _headers(status: int) -> dict[str, str]:
    """Return the headers of a status: the time to try again."""
    seconds = RETRY_SECONDS.get(status)
    return {} if seconds is None else {"Retry-After": str(seconds)}


async def _of_http(request: Request, failure: Exception) -> JSONResponse:
    assert isinstance(failure, HTTPException)
    answer = (_as_connect if _is_connects(request) else problem)(failure.status_code, str(failure.detail))
    answer.headers.update(failure.headers or {})
    if failure.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(_methods_of(request))
    return answer


def _methods_of(request: Request) -> list[str]:
    """Return all methods allowed for a path; the framework reports only those of the first matching route."""
    described = request.app.openapi()["paths"].get(request.url.path)
    if described is not None:
        return sorted(method.upper() for method in described)

    def fits(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return [method for method in ("DELETE", "GET", "PATCH", "POST", "PUT") if fits(method)]


async def _of_validation(request: Request, failure: Exception) -> JSONResponse:
    assert isinstance(failure, RequestValidationError)
    mistakes = [
        {"path": ".".join(map(str, error["loc"])), "problem": error["msg"], "line": None} for error in failure.errors()
    ]
    detail = "; ".join(f"{mistake['path']}: {mistake['problem']}" for mistake in mistakes)
    if _is_connects(request):
        return _as_connect(422, detail)
    return problem(422, detail, mistakes=mistakes)


def _is_connects(request: Request) -> bool:
    return request.url.path.startswith(("/connectors", "/connector-plugins"))


def _as_connect(status: int, message: str) -> JSONResponse:
    """Return an error in the form of Kafka Connect."""
    return _ProblemResponse({"error_code": status, "message": masked_url(message)}, status, _headers(status))


async def _of_anything(_: Request, _failure: Exception) -> JSONResponse:
    """Answer an unexpected exception: its details go to the log, not into the answer."""
    return problem(500, "the server has made a mistake; its log says which")


def add_handlers(app: FastAPI) -> None:
    """Answer every error of turnout, of the framework and of a request's form in one shape.

    The handlers are coroutines: functions would wait for one of the threads that all endpoints share.
    """
    app.add_exception_handler(Exception, _of_anything)
    app.add_exception_handler(TurnoutError, _of_error)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_validation)
