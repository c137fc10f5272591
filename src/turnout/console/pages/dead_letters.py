"""``/dead-letters``: what failed, grouped by stage and reason, each record as it came."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from turnout.console.dead_letters import grouped, letter_at, letters_of, shown
from turnout.console.render import page, page_router
from turnout.server.rest.parts import Reads, TheParts
from turnout.server.sandbox import route_of

__all__ = ["router"]

router = page_router()

_LOOKED_AT = 1000
_ON_PAGE = 25


@router.get("/dead-letters")
def overview(request: Request, parts: TheParts, _: Reads) -> HTMLResponse:
    """The routes that keep dead letters."""
    entries = [entry for entry in parts.routes.entries() if entry.version and entry.version.route.dead_letter]
    rows = [(entry.name, entry.status.counts.dead_lettered + entry.status.counts.undeliverable) for entry in entries]
    return page(request, "dead_letters.html", rows=sorted(rows, key=lambda row: -row[1]))


@router.get("/dead-letters/{name}")
def letters(
    name: str,
    request: Request,
    parts: TheParts,
    _: Reads,
    group: int | None = None,
    number: Annotated[int, Query(alias="page", ge=1)] = 1,
) -> HTMLResponse:
    last = letters_of(route_of(parts.routes.entry(name)), _LOOKED_AT)
    groups = grouped(last.items)
    chosen = groups[group].letters if group is not None and 0 <= group < len(groups) else last.items
    pages = max(1, -(-len(chosen) // _ON_PAGE))
    number = min(number, pages)
    return page(
        request,
        "route_dead_letters.html",
        name=name,
        total=last.total,
        looked_at=len(last.items),
        groups=groups,
        group=group,
        letters=chosen[(number - 1) * _ON_PAGE : number * _ON_PAGE],
        number=number,
        pages=pages,
    )


@router.get("/dead-letters/{name}/{place}")
def letter(name: str, place: str, request: Request, parts: TheParts, _: Reads) -> HTMLResponse:
    one = letter_at(route_of(parts.routes.entry(name)), place)
    return page(
        request,
        "dead_letter.html",
        name=name,
        letter=one,
        key=shown(one.key),
        value=shown(one.value),
        headers=[(header, shown(raw)) for header, raw in one.headers],
    )
