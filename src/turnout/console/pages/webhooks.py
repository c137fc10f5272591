"""``/webhooks``: the endpoints of routes with webhooks, their dead letters, and the redrive of these."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field, StrictStr

from turnout.console.render import page, page_router
from turnout.console.shown_store import store_name
from turnout.secrets import masked_url
from turnout.server.deliveries import dead_letters, enable, redrive
from turnout.server.rest.dependencies import PartsDep, Reads, Writes, asks_servers, redrives
from turnout.server.rest.models import RequestForm
from turnout.server.rest.webhooks import EnableForm, hidden_of, webhook_route

router = page_router()

_LETTERS = 100
"""Number of the last dead letters in a stream that are read."""


class RedriveForm(RequestForm):
    """Position of one dead letter; all without it."""

    letter: Annotated[StrictStr, Field(max_length=40)] | None = None


@router.get("/webhooks")
def overview(request: Request, parts: PartsDep, _: Reads) -> HTMLResponse:
    """Render the routes with webhooks and the counts of their dispatchers."""
    names = sorted(
        entry.name for entry in parts.routes.entries() if entry.version and entry.version.route.webhooks is not None
    )
    totals = parts.webhooks.totals()
    return page(request, "webhooks.html", rows=[(name, totals.get(name), _states(parts, name)) for name in names])


def _states(parts: PartsDep, name: str) -> dict[str, int]:
    """Return the number of a route's endpoints that are not closed, by their state."""
    states = [endpoint.state for endpoint in parts.webhooks.endpoints(name) or ()]
    return {state: states.count(state) for state in ("open", "disabled") if state in states}


@router.get("/webhooks/{name}")
@asks_servers
def webhooks(name: str, request: Request, parts: PartsDep, principal: Reads) -> HTMLResponse:
    """Render the endpoints of a route, those in need first, and its dead letters."""
    route = webhook_route(parts, name)
    endpoints = parts.webhooks.endpoints(name)
    order = {"disabled": 0, "open": 1, "closed": 2}
    return page(
        request,
        "route_webhooks.html",
        name=name,
        of=store_name(parts, route),
        endpoints=sorted(endpoints or (), key=lambda one: (order[one.state], -one.waiting, one.destination)),
        is_running=endpoints is not None,
        problem=masked_url(parts.webhooks.problem(name)),
        letters=dead_letters(route, _LETTERS),
        hidden=hidden_of(route, principal),
        reach=_LETTERS,
    )


@router.post("/fragments/webhooks/{name}/redrive")
@redrives
def redriven(name: str, form: RedriveForm, request: Request, parts: PartsDep, _: Writes) -> HTMLResponse:
    """Render the result of a redrive of all dead letters, or of one."""
    moved = redrive(webhook_route(parts, name), None if form.letter is None else [form.letter])
    text = f"{moved:,} dead letters wait for their endpoints again."
    if form.letter is not None:
        text = (
            f"{form.letter} waits for its endpoint again." if moved else f"{form.letter} was moved or removed before."
        )
    return page(request, "_webhooks_done.html", name=name, text=text)


@router.post("/fragments/webhooks/{name}/enable")
@asks_servers
def enabled(name: str, form: EnableForm, request: Request, parts: PartsDep, _: Writes) -> HTMLResponse:
    """Render the result of enabling an endpoint."""
    was_disabled = enable(webhook_route(parts, name), form.destination)
    text = "gets requests again within seconds." if was_disabled else "was not disabled."
    return page(request, "_webhooks_done.html", name=name, text=f"{form.destination} {text}")
