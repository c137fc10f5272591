"""``/``: all routes; routes that need attention are first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from turnout.console.attention import needs
from turnout.console.figures import sparkline
from turnout.console.flow_counts import traffic_of
from turnout.console.formatting import rate
from turnout.console.render import page, page_router
from turnout.engine.counts import Counts
from turnout.runtime.lag import Lag
from turnout.secrets import masked_url
from turnout.server.rest.dependencies import Parts, PartsDep, Reads
from turnout.server.route_entry import RouteEntry
from turnout.server.state import StoredEvent

router = page_router()

_ON_PAGE = 50


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A route in the table.

    Attributes:
        needs: why it needs attention; "" if it does not.
        traffic: of the last hour.
        keeps_letters: it writes dead letters; without, a record that fails is discarded.
        error: the last failure, and when that was.
    """

    name: str
    state: str
    reason: str
    needs: str
    lag: Lag | None
    read: float
    sent: float
    hour: Markup
    failures: int
    traffic: Counts
    keeps_letters: bool
    error: str
    error_at: float | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of routes for the table: part of a name, the attention filter, and the page."""

    q: str
    show: str
    number: int


def _selection(q: str = "", show: str = "all", number: Annotated[int, Query(alias="page", ge=1)] = 1) -> Selection:
    return Selection(q, show, number)


Selected = Annotated[Selection, Depends(_selection)]


@router.get("/")
def routes(request: Request, parts: PartsDep, _: Reads, selected: Selected) -> HTMLResponse:
    return page(request, "routes.html", _table(parts, selected))


@router.get("/fragments/routes")
def table(request: Request, parts: PartsDep, _: Reads, selected: Selected) -> HTMLResponse:
    return page(request, "_routes.html", _table(parts, selected))


def _table(parts: Parts, selected: Selection) -> dict[str, object]:
    reasons = {entry.name: needs(entry, parts) for entry in parts.routes.entries()}
    named = [entry for entry in parts.routes.entries() if selected.q.lower() in entry.name.lower()]
    troubled = [entry for entry in named if reasons.get(entry.name)]
    fine = [entry for entry in named if not reasons.get(entry.name)]
    chosen = troubled if selected.show == "attention" else troubled + fine
    pages = max(1, -(-len(chosen) // _ON_PAGE))
    number = min(selected.number, pages)
    failures = parts.state.last_failures()
    entries = chosen[(number - 1) * _ON_PAGE : number * _ON_PAGE]
    return {
        "rows": [_row(entry, parts, reasons.get(entry.name, ""), failures.get(entry.name)) for entry in entries],
        "q": selected.q,
        "show": selected.show,
        "number": number,
        "pages": pages,
        "total": len(named),
        "troubled": len(troubled),
        "query": urlencode({"q": selected.q, "show": selected.show, "page": number}),
    }


def _row(entry: RouteEntry, parts: Parts, reason: str, failure: StoredEvent | None) -> RouteRow:
    status = entry.status
    traffic = traffic_of(parts.state, entry.name)
    read, sent = traffic.rate("read"), traffic.rate("messages")
    error = str(failure.detail.get("reason", "")) if failure else ""
    return RouteRow(
        name=entry.name,
        state=str(status.phase),
        reason=masked_url(status.reason),
        needs=masked_url(reason),
        lag=parts.survey.lag(entry.name),
        read=read,
        sent=sent,
        hour=sparkline([traffic.read, traffic.sent], f"the last hour, now {rate(read)} in and {rate(sent)} out"),
        failures=status.failures,
        traffic=traffic.total,
        keeps_letters=entry.version is not None and entry.version.route.dead_letter is not None,
        error=masked_url(error),
        error_at=failure.at if failure else None,
    )
