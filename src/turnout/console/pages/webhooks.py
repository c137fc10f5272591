"""``/webhooks``: the endpoints of routes with webhooks, their dead letters, and the redrive of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field, StrictStr

from turnout.console.pages.dead_letters import Piece, grouped
from turnout.console.pages.route import tabs_of
from turnout.console.render import page, page_router, store_name
from turnout.secrets import masked_url
from turnout.server.deliveries import dead_letters, enable, redrive
from turnout.server.rest.dependencies import PartsDep, Reads, Writes, asks_servers, redrives
from turnout.server.rest.models import RequestForm
from turnout.server.rest.webhooks import EnableForm, hidden_of, webhook_route

if TYPE_CHECKING:
    from turnout.delivery.queue import DeadDelivery

router = page_router()

_LETTERS = 500
"""Number of the last dead letters in a stream that are read."""
_ON_PAGE = 25
_GROUPS_ON_PAGE = 20


class RedriveForm(RequestForm):
    """Position of one dead letter, or the endpoint and the reason of a group; all without them."""

    letter: Annotated[StrictStr, Field(max_length=40)] | None = None
    endpoint: StrictStr | None = None
    reason: StrictStr = ""


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
def webhooks(
    name: str,
    request: Request,
    parts: PartsDep,
    principal: Reads,
    group: str | None = None,
    number: Annotated[int, Query(alias="page", ge=1)] = 1,
    groups_number: Annotated[int, Query(alias="groups", ge=1)] = 1,
) -> HTMLResponse:
    """Render the endpoints of a route, those in need first, and its dead letters by endpoint and reason."""
    route = webhook_route(parts, name)
    endpoints = parts.webhooks.endpoints(name)
    order = {"disabled": 0, "open": 1, "closed": 2}
    pending = dead_letters(route, _LETTERS)
    every = grouped(pending, _endpoint_and_reason)
    chosen = next((candidate for candidate in every if candidate.id == group), None)
    return page(
        request,
        "route_webhooks.html",
        tabs_of(parts.routes.entry(name), "webhooks"),
        of=store_name(parts, route),
        endpoints=sorted(endpoints or (), key=lambda one: (order[one.state], -one.waiting, one.destination)),
        is_running=endpoints is not None,
        problem=masked_url(parts.webhooks.problem(name)),
        total=len(pending),
        groups=Piece.of(every, groups_number, _GROUPS_ON_PAGE),
        chosen=chosen,
        letters=Piece.of(chosen.letters if chosen else pending, number, _ON_PAGE),
        hidden=hidden_of(route, principal),
        reach=_LETTERS,
    )


def _endpoint_and_reason(letter: DeadDelivery) -> tuple[str, str]:
    return letter.destination, letter.reason


@router.post("/fragments/webhooks/{name}/redrive")
@redrives
def redriven(name: str, form: RedriveForm, request: Request, parts: PartsDep, _: Writes) -> HTMLResponse:
    """Render the result of a redrive of all dead letters, of a group, or of one."""
    route = webhook_route(parts, name)
    positions = None if form.letter is None else [form.letter]
    if form.endpoint is not None:
        chosen = (form.endpoint, form.reason)
        positions = [one.position for one in dead_letters(route, _LETTERS) if _endpoint_and_reason(one) == chosen]
    moved = redrive(route, positions)
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
