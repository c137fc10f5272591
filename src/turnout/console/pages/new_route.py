"""``/new-route``: a new route from a template or from another route, checked before it is written."""

from __future__ import annotations

import json
from functools import cache
from typing import Final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from pydantic import Field

from turnout.console.pages.route import accepted, mistakes_of
from turnout.console.previews import names_in
from turnout.console.render import page, page_router
from turnout.errors import RouteError
from turnout.routes import json_schema
from turnout.server.rest.dependencies import PartsDep, Writes, asks_servers
from turnout.server.rest.models import RequestForm
from turnout.server.routes.table import Author

router = page_router()

_SAMPLED = 100
"""Records of each stream in which the names of a new route are looked up."""


@cache
def _schema() -> bytes:
    return json.dumps(json_schema.route_schema(), separators=(",", ":")).encode()


class NewRouteForm(RequestForm):
    """Text of a new route."""

    text: str = Field(max_length=1 << 20)


@router.get("/new-route")
def new_route(request: Request, parts: PartsDep, _: Writes, template: str = "subjects", like: str = "") -> HTMLResponse:
    text = parts.routes.entry(like).file.text if like else TEMPLATES.get(template, ("", ""))[1]
    return page(
        request,
        "new_route.html",
        templates=TEMPLATES,
        chosen="" if like else template,
        like=like,
        names=[entry.name for entry in parts.routes.entries()],
        text=text,
    )


@router.get("/fragments/route-schema")
def route_schema(_: Writes) -> Response:
    """Return the JSON Schema of route files, with installed plug-ins, for the editor's completion."""
    return Response(_schema(), media_type="application/schema+json")


@router.post("/fragments/new-route/check")
@asks_servers
def check(form: NewRouteForm, request: Request, parts: PartsDep, _: Writes) -> HTMLResponse:
    """Check the text of a new route and render its mistakes or its meaning; nothing is written."""
    context: dict[str, object] = {"text": form.text, "digest": "", "lines": [], "compared": False}
    try:
        route = parts.routes.check(form.text, author=Author.WRITER)
    except RouteError as wrong:
        return page(request, "_checked.html", context, mistakes=mistakes_of(wrong), name="")
    exists = any(entry.name == route.name for entry in parts.routes.entries())
    if exists:
        problem = {"line": None, "text": f"name: there is a route {route.name} already: change it on its page"}
        return page(request, "_checked.html", context, mistakes=[problem], name=route.name)
    sampled = route.source.keeps_history
    return page(request, "_checked.html", accepted(route, parts), context, name=route.name, sampled=sampled)


@router.post("/fragments/new-route/names")
@asks_servers
def names(form: NewRouteForm, request: Request, parts: PartsDep, _: Writes) -> HTMLResponse:
    """Render how many of the latest records have what the text of a new route names; nothing is delivered."""
    route = parts.routes.check(form.text, author=Author.WRITER)
    return page(request, "_names.html", names=names_in(route, _SAMPLED))


_NATS: Final = 'source: {{format: nats, servers: "nats://127.0.0.1:4222", stream: {stream}}}'
_HEAD: Final = f"name: orders\n{_NATS.format(stream='ORDERS')}\nvalue: {{format: json}}\n"
_TAIL: Final = """sink: {format: nats, servers: "nats://127.0.0.1:4222"}
# Failed records go here, with the reason in headers; a stream has to accept this subject.
deadLetter: {topic: dead.orders}
errors: {tolerance: all}
"""

TEMPLATES: Final = {
    "subjects": (
        "New subjects for the records of a stream",
        _HEAD + 'mappings:\n  "orders.*": "shop.{{wildcard(1)}}"\n' + _TAIL,
    ),
    "transforms": (
        "Records changed and filtered",
        _HEAD + "transforms:\n"
        "  - name: no-tests\n    type: Filter\n    predicate: {type: HasHeaderKey, name: Test}\n"
        '  - {name: renamed, type: "ReplaceField$Value", renames: "city:town"}\n' + _TAIL,
    ),
    "subscriptions": (
        "Delivery to stored subscriptions",
        _HEAD
        + "subscriptions:\n  store: sqlite:///subscriptions.db\n  metadata: {town: value.town, amount: value.amount}\n"
        + _TAIL,
    ),
    "kafka": (
        "Kafka to NATS",
        "name: orders\n"
        "source: {format: kafka, servers: 127.0.0.1:9092, topics: orders}\n"
        "value: {format: json}\n" + _TAIL,
    ),
}
"""Title and text by name."""
