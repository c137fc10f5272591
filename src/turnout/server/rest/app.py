"""The HTTP application: every router behind one gate."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from fastapi import Depends, FastAPI
from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout._built import version as __version__
from turnout.base.terminal import trace_ids
from turnout.server.errors import add_handlers
from turnout.server.preconditions import ConditionalReads, refuse_unread_conditions
from turnout.server.rest import (
    connect,
    description,
    feeds,
    monitoring,
    records,
    routes,
    subjects,
    subscriptions,
    webhooks,
)
from turnout.server.rest.dependencies import Parts, known_parameters
from turnout.server.rest.description import Described
from turnout.server.rest.idempotency import KEY_HEADER, REPLAYED_HEADER, IdempotentPosts
from turnout.server.security import Authenticator, Bodies, Entrance, Gate
from turnout.traces.spans import Span, TraceSettings, headers_of

_ABOUT = (
    "Routes, their state and their control; subscriptions; subjects. Errors are application/problem+json"
    " (RFC 9457). What changes something needs Content-Type: application/json or an Authorization header."
)
ROUTERS = (
    routes.router,
    routes.control_router,
    records.explain_router,
    records.letters_router,
    webhooks.router,
    records.tap_router,
    subscriptions.router,
    feeds.router,
    webhooks.inputs_router,
    subjects.router,
    monitoring.events_router,
    monitoring.leader_router,
    connect.router,
    monitoring.probes_router,
    description.router,
)


def build_app(parts: Parts) -> FastAPI:
    """Return the application without its gate; more routers may be included before it is guarded."""
    app = Described(
        title="turnout",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,
        servers=[{"url": "/"}],
        license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
        # An operation is named after its function.
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.parts = parts
    for router in ROUTERS:
        app.include_router(router, dependencies=[Depends(refuse_unread_conditions), Depends(known_parameters)])
    add_handlers(app)
    return app


def guarded(
    app: ASGIApp,
    *,
    authenticator: Authenticator | None = None,
    hosts: Collection[str] | None = None,
    public: Collection[str] = (),
    entrance: Entrance | None = None,
    bodies: Bodies | None = None,
    inputs: Mapping[str, int] | None = None,
    origins: Collection[str] = (),
) -> ASGIApp:
    """Return the application as the network may see it; see `Gate`. Pages of the *origins* may use it too."""
    answering = GZipMiddleware(ConditionalReads(IdempotentPosts(app)), minimum_size=1_024, compresslevel=4)
    gate = Gate(answering, authenticator, hosts, public, entrance, bodies, inputs, origins)
    if not origins:
        return gate
    return CORSMiddleware(
        gate,
        allow_origins=origins,
        allow_methods=("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"),
        allow_headers=("Authorization", KEY_HEADER, "If-Match", "If-None-Match", "Last-Event-ID"),
        expose_headers=("ETag", REPLAYED_HEADER, "Location", "Retry-After", "Warning", "WWW-Authenticate"),
    )


_FAILED: Final = 500


class TracedApp:
    """Application that makes a span of each sampled request, whose context the request then has.

    Args:
        app: the application.
        traces: settings of the spans.
    """

    def __init__(self, app: ASGIApp, traces: TraceSettings) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = MutableHeaders(raw=list(scope["headers"])) if scope["type"] == "http" else None
        sampled = None if headers is None else self._traces.sampled(headers)
        if headers is None or sampled is None:
            await self._app(scope, receive, send)
            return
        parent, context = sampled
        headers.update(headers_of(context, self._traces.propagators))
        scope["headers"], begun, status = headers.raw, time.time_ns(), _FAILED

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        token = trace_ids.set(context.ids())
        try:
            await self._app(scope, receive, sent)
        finally:
            trace_ids.reset(token)
            facts = _facts(scope, status)
            name = f"{facts['http.request.method']} {facts.get('http.route', '')}".rstrip()
            error = f"{status}" if status >= _FAILED else ""
            facts |= {"error.type": error} if error else {}
            self._traces.exporter.emit([Span(name, context, parent, begun, 0, "SERVER", facts, error=error)])


def _facts(scope: Scope, status: int) -> dict[str, str | int]:
    """Return the attributes of a request; of its URL the path alone, as texts of users are in the query."""
    route: str | None = getattr(scope.get("route"), "path", None)
    return {
        "http.request.method": scope["method"],
        "url.scheme": scope["scheme"],
        "url.path": scope["path"],
        "http.response.status_code": status,
        **({} if route is None else {"http.route": route}),
    }
