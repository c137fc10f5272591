"""``/``: all routes; routes that need attention are first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from turnout.base.background import statuses
from turnout.base.terminal import plural
from turnout.console.charts import HOUR, traffic_of
from turnout.console.figures import rate, span, sparkline
from turnout.console.render import page, page_router
from turnout.engine.counts import Counts
from turnout.runtime.preflight import Lag
from turnout.secrets import masked_url
from turnout.server.rest.dependencies import Parts, PartsDep, Reads
from turnout.server.routes.state import Losses, StoredEvent
from turnout.server.routes.supervisor import Phase
from turnout.server.routes.table import RouteEntry

router = page_router()

_ON_PAGE = 50
_COLUMNS = (
    ("Route", "name", ""),
    ("State", "state", ""),
    ("Behind", "behind", "n"),
    ("In", "in", "n"),
    ("Out", "out", "n"),
    ("Last hour", "", ""),
    ("Failures", "failures", "n"),
    ("Dead-lettered", "dead-lettered", "n"),
    ("Undeliverable", "undeliverable", "n"),
    ("Last error", "", ""),
)
"""Columns of the table: title, name in the order of an address ("" where there is none), and class."""


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A route in the table.

    Attributes:
        needs: why it needs attention; "" if it does not.
        traffic: traffic of the last hour.
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
    """Selection of routes for the table: part of a name, state, the attention filter, the order, and the page.

    Attributes:
        sort: a column of `_COLUMNS`; with ``-`` before it in the opposite order, "" for those in need first.
    """

    q: str
    show: str
    state: str
    sort: str
    number: int

    def link(self, **changes: object) -> str:
        """Return the URL query of the selection with some changes, from its first page."""
        values = {"q": self.q, "show": self.show, "state": self.state, "sort": self.sort, **changes}
        return urlencode({name: value for name, value in values.items() if value and (name, value) != ("show", "all")})

    def accepts(self, entry: RouteEntry) -> bool:
        """Return True if a route has the name and the state."""
        return self.q.lower() in entry.name.lower() and self.state in ("", str(entry.status.phase))

    def sort_link(self, column: str) -> str:
        """Return the query of the table by a column; again in the opposite order."""
        return self.link(sort=f"-{column}" if self.sort == column else column)

    def direction(self, column: str) -> str:
        """Return the direction by a column, as ARIA names it."""
        if self.sort.removeprefix("-") != column:
            return "none"
        falls = column not in ("name", "state")
        return "descending" if falls != self.sort.startswith("-") else "ascending"


def _selection(
    q: str = "",
    show: str = "all",
    state: Phase | Literal[""] = "",
    sort: Annotated[str, Query(pattern="^(-?(name|state|behind|in|out|failures|dead-lettered|undeliverable))?$")] = "",
    number: Annotated[int, Query(alias="page", ge=1)] = 1,
) -> Selection:
    return Selection(q, show, str(state), sort, number)


Selected = Annotated[Selection, Depends(_selection)]


@router.get("/")
def routes(request: Request, parts: PartsDep, _: Reads, selected: Selected) -> HTMLResponse:
    return page(request, "routes.html", _table(parts, selected))


@router.get("/fragments/routes")
def table(request: Request, parts: PartsDep, _: Reads, selected: Selected) -> HTMLResponse:
    return page(request, "_routes.html", _table(parts, selected))


def _table(parts: Parts, selected: Selection) -> dict[str, object]:
    reasons = {entry.name: needs(entry, parts) for entry in parts.routes.entries()}
    named = [entry for entry in _sorted(parts, selected.sort) if selected.accepts(entry)]
    troubled = [entry for entry in named if reasons.get(entry.name)]
    fine = [entry for entry in named if not reasons.get(entry.name)]
    all_named = named if selected.sort else troubled + fine
    chosen = troubled if selected.show == "attention" else all_named
    pages = max(1, -(-len(chosen) // _ON_PAGE))
    number = min(selected.number, pages)
    failures = parts.state.last_failures()
    entries = chosen[(number - 1) * _ON_PAGE : number * _ON_PAGE]
    return {
        "rows": [_row(entry, parts, reasons.get(entry.name, ""), failures.get(entry.name)) for entry in entries],
        "selected": selected,
        "phases": list(Phase),
        "columns": _COLUMNS,
        "number": number,
        "pages": pages,
        "total": len(named),
        "troubled": len(troubled),
        "failing": [masked_url(status.problem) for status in statuses() if status.problem],
        "query": selected.link(page=number),
    }


def _sorted(parts: Parts, sort: str) -> list[RouteEntry]:
    """Return all routes by a column, numbers from the largest on; by name where they are equal."""
    entries = sorted(parts.routes.entries(), key=lambda entry: entry.name)
    column = sort.removeprefix("-")
    if not column:
        return entries
    now = time.time()
    recent, hour = (parts.state.losses(now - seconds, now) for seconds in (2 * 60, HOUR))
    keys: dict[str, Callable[[RouteEntry], float]] = {
        "behind": lambda entry: _lag_records(parts.survey.lag(entry.name)),
        "in": lambda entry: recent.get(entry.name, Losses()).read,
        "out": lambda entry: recent.get(entry.name, Losses()).messages,
        "failures": lambda entry: entry.status.failures,
        "dead-lettered": lambda entry: hour.get(entry.name, Losses()).dead_lettered,
        "undeliverable": lambda entry: hour.get(entry.name, Losses()).undeliverable,
    }
    if column in keys:
        return sorted(entries, key=keys[column], reverse=not sort.startswith("-"))
    texts = (lambda entry: str(entry.status.phase)) if column == "state" else (lambda entry: entry.name)
    return sorted(entries, key=texts, reverse=sort.startswith("-"))


def _lag_records(lag: Lag | None) -> int:
    return -1 if lag is None else sum(lag.records.values())


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


_LATE_SECONDS = 300.0
"""A route that is so far behind is not keeping up."""


def needs(entry: RouteEntry, parts: Parts) -> str:
    """Return the reason why a route needs attention, as a sentence; "" if it needs none."""
    status = entry.status
    if status.phase is Phase.INVALID and entry.mistakes:
        return _mistake(entry)
    if status.phase in (Phase.FAILED, Phase.INVALID, Phase.WAITING):
        return status.reason or str(status.phase)
    if (problem := parts.survey.problems.get(entry.name)) is not None:
        return problem
    if (problem := parts.webhooks.problem(entry.name)) != "":
        return problem
    if entry.mistakes:
        return _mistake(entry)
    if entry.pending is not None:
        return "its file needs a new checkpoint: confirm it on its page"
    if (problems := parts.losses.report(entry.name).problems) and status.phase is not Phase.PAUSED:
        return problems[0]
    lag = parts.survey.lag(entry.name)
    if status.phase is Phase.RUNNING and lag is not None and (lag.seconds or 0.0) > _LATE_SECONDS:
        return f"it is {span(lag.seconds)} behind"
    return ""


def _mistake(entry: RouteEntry) -> str:
    """Return the first mistake of a file, its place first, and the number of further ones."""
    first, *more = entry.mistakes
    line = f"line {first.line}: " if first.line else ""
    rest = f"; and {plural(len(more), 'more mistake')}" if more else ""
    return f"{line}{first.path or '(the whole)'}: {first.problem}{rest}"
