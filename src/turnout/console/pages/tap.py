"""``/tap``: live records before and after one stage of a route."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse

from turnout.console.render import page, page_router
from turnout.history.tap import stages_of
from turnout.server.rest.dependencies import PartsDep, Reads
from turnout.server.sandbox import route_of

router = page_router()


@router.get("/tap")
def tap(request: Request, parts: PartsDep, _: Reads, route: str = "") -> HTMLResponse:
    versions = [(entry.name, entry.version) for entry in parts.routes.entries()]
    names = [name for name, version in versions if version and version.route.source.keeps_history]
    stages: tuple[str, ...] = ()
    if route:
        chosen = route_of(parts.routes.entry(route))
        stages = stages_of(chosen) if chosen.source.keeps_history else ()
    return page(request, "tap.html", names=names, route=route, stages=stages)
