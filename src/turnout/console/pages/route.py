"""Pages of routes: ``/`` lists them, ``/new-route`` makes one, ``/routes/{name}`` has the tabs of one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from pydantic import Field

from turnout.base.background import statuses
from turnout.base.terminal import plural
from turnout.console.charts import (
    HOUR,
    LENGTHS,
    Period,
    PeriodDep,
    activity_of,
    difference,
    picture_of,
    rate,
    segment,
    span,
    sparkline,
    traffic_of,
)
from turnout.console.previews import effect_of, meaning_of, names_in, replay_of
from turnout.console.render import page, page_router
from turnout.engine.counts import Counts
from turnout.errors import Mistake, RouteError
from turnout.history.diff.report import report_lines
from turnout.routes import Route, json_schema
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.preflight import Lag
from turnout.secrets import masked_url
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, Writes, asks_servers, is_masked, matches_store
from turnout.server.rest.models import RequestForm
from turnout.server.rest.routes import as_seen
from turnout.server.routes.compatibility import is_safe
from turnout.server.routes.state import Losses, Pause, StoredEvent
from turnout.server.routes.supervisor import Phase
from turnout.server.routes.table import Author, RouteEntry
from turnout.server.sandbox import route_of
from turnout.server.security import Principal

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
        "behind": lambda entry: -1 if (lag := parts.survey.lag(entry.name)) is None else sum(lag.records.values()),
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
def check_new(form: NewRouteForm, request: Request, parts: PartsDep, _: Writes) -> HTMLResponse:
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


_EVENTS = 15
_REVISIONS = 10
_MOST_COMPARED = 20_000


class CheckForm(RequestForm):
    """Edited text of a route's file, and the digest of the version that was edited."""

    text: str = Field(max_length=1 << 20)
    digest: str


class EffectForm(RequestForm):
    """Edited text of a route's file, and the number of records to judge it on."""

    text: str = Field(max_length=1 << 20)
    count: int = Field(default=2000, ge=1, le=_MOST_COMPARED)


@dataclass(frozen=True, slots=True)
class Controls:
    """Reasons why operations are unavailable, as sentences; "" for available operations."""

    pause: str
    resume: str
    restart: str
    reset: str


class Tab(NamedTuple):
    """Tab of a route's page."""

    id: str
    address: str
    title: str
    mistakes: int = 0


def tabs_of(entry: RouteEntry, current: str) -> dict[str, object]:
    """Return the tabs of a route's page, those of parts that it has."""
    route = entry.version.route if entry.version else None
    path = f"/routes/{segment(entry.name)}"
    tabs = [
        Tab("overview", path, "Overview"),
        Tab("records", f"{path}/records", "Records") if route and route.source.keeps_history else None,
        Tab("letters", f"/dead-letters/{segment(entry.name)}", "Dead letters") if route and route.dead_letter else None,
        Tab("subscriptions", f"{path}/subscriptions", "Subscriptions") if route and route.subscriptions else None,
        Tab("webhooks", f"/webhooks/{segment(entry.name)}", "Webhooks") if route and route.webhooks else None,
        Tab("file", f"{path}/file", "File", len(entry.mistakes)),
        Tab("revisions", f"{path}/revisions", "Revisions"),
    ]
    return {"name": entry.name, "tab": current, "tabs": [tab for tab in tabs if tab is not None]}


@router.get("/routes/{name}")
def route(name: str, request: Request, parts: PartsDep, principal: Reads, period: PeriodDep) -> HTMLResponse:
    entry = parts.routes.entry(name)
    return page(
        request,
        "route.html",
        tabs_of(entry, "overview"),
        _state(entry, parts),
        _pictures(entry, parts, period),
        controls=_controls(entry, parts.state.paused(name)),
        offsets=parts.routes.offsets(name),
        waiting=_waiting(entry, principal),
    )


@router.get("/routes/{name}/file")
def file(name: str, request: Request, parts: PartsDep, principal: Reads) -> HTMLResponse:
    entry = parts.routes.entry(name)
    lines = _lines(entry, principal)
    return page(
        request,
        "route_file.html",
        tabs_of(entry, "file"),
        entry=entry,
        lines=lines,
        mistakes=_with_lines(entry.mistakes),
    )


@router.get("/routes/{name}/revisions")
def revisions(name: str, request: Request, parts: PartsDep, principal: Reads) -> HTMLResponse:
    entry = parts.routes.entry(name)
    revisions = _revisions(entry, parts, principal)
    return page(request, "route_revisions.html", tabs_of(entry, "revisions"), revisions=revisions)


@router.get("/fragments/routes/{name}/state")
def state(name: str, request: Request, parts: PartsDep, _: Reads) -> HTMLResponse:
    return page(request, "_route_state.html", _state(parts.routes.entry(name), parts))


@router.get("/fragments/routes/{name}/control")
def control(name: str, request: Request, parts: PartsDep, _: Reads) -> HTMLResponse:
    return page(request, "_route_control.html", _control(parts.routes.entry(name), parts))


@router.get("/fragments/routes/{name}/reset")
def reset(name: str, request: Request, parts: PartsDep, _: Reads) -> HTMLResponse:
    return page(request, "_route_reset.html", _control(parts.routes.entry(name), parts))


@router.get("/fragments/routes/{name}/pictures")
def pictures(name: str, request: Request, parts: PartsDep, _: Reads, period: PeriodDep) -> HTMLResponse:
    entry = parts.routes.entry(name)
    return page(request, "_route_pictures.html", _pictures(entry, parts, period), entry=entry)


@router.get("/fragments/routes/{name}/pending")
@asks_servers
def pending(name: str, request: Request, parts: PartsDep, principal: Reads) -> HTMLResponse:
    """A change that waits to be confirmed, with its consequences."""
    entry = parts.routes.entry(name)
    return page(request, "_route_pending.html", _waiting(entry, principal), name=name, pending=entry.pending)


@router.post("/fragments/routes/{name}/check")
@asks_servers
def check(name: str, form: CheckForm, request: Request, parts: PartsDep, _: Writes) -> HTMLResponse:
    """Check a route text and render its mistakes or its changes; nothing is written."""
    entry = parts.routes.entry(name)
    context: dict[str, object] = {"name": name, "text": form.text, "digest": form.digest, "most": _MOST_COMPARED}
    try:
        route = _read(form.text, entry, parts)
    except RouteError as wrong:
        return page(request, "_checked.html", context, mistakes=mistakes_of(wrong))
    return page(
        request,
        "_checked.html",
        accepted(route, parts),
        context,
        lines=difference(entry.version.text if entry.version else entry.file.text, form.text),
        compared=entry.version is not None and entry.version.route.source.keeps_history,
        sampled=False,
    )


@router.post("/fragments/routes/{name}/effect")
@matches_store
def effect(name: str, form: EffectForm, request: Request, parts: PartsDep, principal: Writes) -> HTMLResponse:
    """Render the differences between a text and the running version for the last records; nothing is delivered."""
    entry = parts.routes.entry(name)
    new = _read(form.text, entry, parts)
    report, names = effect_of(route_of(entry), new, form.count, parts.matchers, masked=is_masked(principal))
    lines = list(map(masked_url, report_lines(report)))
    return page(request, "_effect.html", report=report, report_lines=lines, names=names)


def accepted(route: Route, parts: Parts) -> dict[str, object]:
    """Return the context of ``_checked.html`` for a route without mistakes: its effect, and that of its change."""
    changes = parts.routes.changes(route)
    return {
        **meaning_of(route, changes),
        "mistakes": [],
        "summary": route.summary(),
        "notes": route.remarks,
        "unsafe": not is_safe(changes),
        "uncovers": any(change.uncovers for change in changes),
    }


def mistakes_of(wrong: RouteError) -> list[dict[str, object]]:
    """Return the mistakes of a route's text with their lines, without secrets."""
    return _with_lines(wrong.mistakes)


def _with_lines(mistakes: Iterable[Mistake]) -> list[dict[str, object]]:
    return [{"line": mistake.line, "text": masked_url(_mistake_text(mistake))} for mistake in mistakes]


def _mistake_text(mistake: Mistake) -> str:
    return f"{mistake.path}: {mistake.problem}" if mistake.path else mistake.problem


@router.get("/fragments/routes/{name}/replay")
@asks_servers
def replay(name: str, request: Request, parts: PartsDep, _: Reads, to: str = "") -> HTMLResponse:
    """Render the effect of a reset: the records read again, and those skipped."""
    unit = adapter_of(route_of(parts.routes.entry(name)).source).position_label
    return page(request, "_replay.html", replays=replay_of(parts.routes, name, to), unit=unit)


def _state(entry: RouteEntry, parts: Parts) -> dict[str, object]:
    return {
        "entry": entry,
        "name": entry.name,
        "mistakes": _with_lines(entry.mistakes),
        "status": entry.status,
        "reason": masked_url(entry.status.reason),
        "needs": masked_url(needs(entry, parts)),
        "lag": parts.survey.lag(entry.name),
        "traffic": traffic_of(parts.state, entry.name),
        "events": parts.state.recent_events(entry.name, _EVENTS),
    }


def _control(entry: RouteEntry, parts: Parts) -> dict[str, object]:
    controls = _controls(entry, parts.state.paused(entry.name))
    return {"entry": entry, "controls": controls, "offsets": parts.routes.offsets(entry.name)}


def _read(text: str, entry: RouteEntry, parts: Parts) -> Route:
    """Return the route in a text that may replace this file."""
    route = parts.routes.check_change(entry, text)
    if route.name != entry.name:
        raise RouteError([Mistake("name", f"found {route.name!r}, expected {entry.name!r}")])
    return route


def _waiting(entry: RouteEntry, principal: Principal) -> dict[str, object]:
    """Describe the waiting version, and its difference from the running one."""
    if entry.pending is None:
        return {"lines": [], "changes": [], "beginnings": [], "unknown": ""}
    waiting = entry.pending.version
    before = as_seen(entry.version.text, principal) if entry.version else ""
    lines = difference(before, as_seen(waiting.text, principal))
    return {"lines": lines, **meaning_of(waiting.route, list(entry.pending.changes))}


def _pictures(entry: RouteEntry, parts: Parts, period: Period) -> dict[str, object]:
    charts, empty, traffic = activity_of(parts.state, entry.name, period)
    return {
        "period": period,
        "lengths": LENGTHS,
        "picture": picture_of(entry.version.route, traffic) if entry.version else None,
        "charts": charts,
        "empty": empty,
        "kept": parts.state.kept_seconds,
    }


def _lines(entry: RouteEntry, principal: Principal) -> list[dict[str, object]]:
    """Return the lines of the file with their mistakes; mistakes without a line are shown at the first line."""
    mistakes: dict[int, list[str]] = {}
    for mistake in entry.mistakes:
        mistakes.setdefault(mistake.line or 1, []).append(masked_url(_mistake_text(mistake)))
    lines = as_seen(entry.file.text, principal).splitlines() or [""]
    return [
        {"number": number, "text": line, "mistakes": mistakes.get(number, [])} for number, line in enumerate(lines, 1)
    ]


def _revisions(entry: RouteEntry, parts: Parts, principal: Principal) -> list[dict[str, object]]:
    """Return the started versions, each with its difference from the one before."""
    revisions = parts.state.revisions(entry.name, _REVISIONS + 1)
    before = [*revisions[1:], None]
    return [
        {
            "digest": revision.digest,
            "at": revision.at,
            "who": revision.who,
            "difference": difference(
                as_seen(older.text, principal) if older else "", as_seen(revision.text, principal)
            ),
            "first": older is None,
        }
        for revision, older in list(zip(revisions, before, strict=False))[:_REVISIONS]
    ]


def _controls(entry: RouteEntry, pause: Pause | None) -> Controls:
    """Return the operations that the server would accept now, and its reasons to refuse the others.

    Args:
        entry: the route.
        pause: the pause of the route; None if it is not paused.
    """
    if entry.supervisor is None:
        return Controls(*["The route never ran: its file has mistakes."] * 4)
    if pause is None:
        return Controls("", "The route is not paused.", "", "Offsets are reset while it is paused.")
    reset = "" if entry.status.phase is Phase.PAUSED and entry.supervisor.idle else "Its last micro-batch is under way."
    if entry.checkpoint is None:
        reset = "Its checkpoint is not on this machine: remove it there."
    return Controls(f"It is paused, by {pause.who}.", "", "The route is paused: resume it.", reset)
