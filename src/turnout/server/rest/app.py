"""The HTTP application: every router behind one gate."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from turnout._built import version as __version__
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
from turnout.server.rest.dependencies import Parts, known_parameters, unique_keys
from turnout.server.rest.description import Described
from turnout.server.security import Authenticator, Bodies, Entrance, Gate

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
        checks = [Depends(refuse_unread_conditions), Depends(known_parameters), Depends(unique_keys)]
        app.include_router(router, dependencies=checks)
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
) -> Gate:
    """Return the application as the network may see it; see `Gate`."""
    return Gate(ConditionalReads(app), authenticator, hosts, public, entrance, bodies, inputs)
