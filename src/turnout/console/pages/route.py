"""``/routes/{name}``: the tabs of one route: its flow and charts over a period, its file, and its versions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from turnout.console.charts import LENGTHS, Period, PeriodDep, activity_of, picture_of, traffic_of
from turnout.console.figures import difference, segment
from turnout.console.pages.route_list import needs
from turnout.console.previews import effect_of, meaning_of, replay_of
from turnout.console.render import page, page_router
from turnout.errors import Mistake, RouteError
from turnout.history.diff.report import report_lines
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.secrets import masked_url
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, Writes, asks_servers, is_masked, matches_store
from turnout.server.rest.models import RequestForm
from turnout.server.rest.routes import as_seen
from turnout.server.routes.compatibility import is_safe
from turnout.server.routes.state import Pause
from turnout.server.routes.supervisor import Phase
from turnout.server.routes.table import RouteEntry
from turnout.server.sandbox import route_of
from turnout.server.security import Principal

router = page_router()

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
