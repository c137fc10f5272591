"""``/sandbox`` and the records of a route: one through its engine, stage by stage, the last ones, and live ones."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from turnout.console.charts import Pair, pretty, segment, side_by_side
from turnout.console.pages.route import tabs_of
from turnout.console.render import page, page_router, store_name, text_of_error
from turnout.engine.explain import RecordExplanation
from turnout.engine.trace import StageReport
from turnout.errors import ConfigError, Mistake, TurnoutError
from turnout.history.tap import Tapped, newest_taps, stages_of
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.server.errors import ConflictError
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, is_masked, matches_store
from turnout.server.rest.models import RequestForm, SequenceNumber
from turnout.server.sandbox import as_given, batch_at, batch_of, explained, letter_at, route_of, visible

router = page_router()

_EXAMPLE = '{\n  "topic": "orders.1",\n  "value": {"city": "Oulu"},\n  "headers": {}\n}'
_WITH_CONTENT = ("delivered", "unmatched")
_LAST_RECORDS = 25
_MOST_CHARACTERS = 400
_MOST_MESSAGES = 5
_SHOWN_ROWS = 100
"""This many subscriptions and messages of a record are shown."""


class SandboxForm(RequestForm):
    """Input of the sandbox; the position takes precedence over the record."""

    route: str
    at: str = ""
    record: str = ""
    subscription: str = ""


@dataclass(frozen=True, slots=True)
class ShownStage:
    """Stage for display: the record before and after it, side by side."""

    report: StageReport
    pairs: list[Pair]
    changed: bool


@router.get("/sandbox")
@matches_store
def sandbox(
    request: Request,
    parts: PartsDep,
    principal: Reads,
    route: str = "",
    at: str = "",
    record: str = "",
    subscription: str = "",
    letter: SequenceNumber | None = None,
    stream: str | None = None,
) -> HTMLResponse:
    names = [entry.name for entry in parts.routes.entries()]
    form = SandboxForm(route=route, at=at, record=record, subscription=subscription)
    context: dict[str, object] = {"names": names, "problems": [], "explanation": None, "form": form}
    masked = is_masked(principal)
    try:
        if letter is not None:
            context |= _answer_of_letter(form, parts, letter, stream, masked=masked)
        elif form.at or form.record:
            context |= _answer(form, parts, masked=masked)
    except TurnoutError as failure:
        context["problems"] = text_of_error(failure)
    return page(request, "sandbox.html", context, example=_EXAMPLE)


@router.post("/fragments/sandbox")
@matches_store
def answer(form: SandboxForm, request: Request, parts: PartsDep, principal: Reads) -> HTMLResponse:
    answered = _answer(form, parts, masked=is_masked(principal))
    return page(request, "_explanation.html", answered, form=form)


def _answer(form: SandboxForm, parts: Parts, *, masked: bool) -> dict[str, object]:
    route = route_of(parts.routes.entry(form.route))
    if form.at.strip():
        return _explained(form, parts, route, batch_at(route, form.at), masked=masked)
    # The caller knows the record that the request holds.
    return _explained(form, parts, route, batch_of(route, _record(form.record)), masked=False)


def _answer_of_letter(
    form: SandboxForm, parts: Parts, sequence: int, stream: str | None, *, masked: bool
) -> dict[str, object]:
    """Explain the record of a dead letter, and put its visible parts into the form."""
    route = route_of(parts.routes.entry(form.route))
    letter = letter_at(route, sequence, stream)
    (shown,) = visible(route, [letter], masked=masked)
    answer = _explained(form, parts, route, batch_of(route, as_given(letter.record)), masked=masked)
    return {**answer, "form": form.model_copy(update={"record": pretty(as_given(shown.record))})}


def _explained(form: SandboxForm, parts: Parts, route: Route, batch: ArrowBatch, *, masked: bool) -> dict[str, object]:
    explanation = explained(route, batch, parts.matchers, asked=form.subscription.strip() or None, masked=masked)
    return {
        "explanation": explanation,
        "stages": _stages(explanation),
        "shown": _SHOWN_ROWS,
        "route": route,
        "of": store_name(parts, route),
    }


def _record(written: str) -> dict[str, object]:
    try:
        record = json.loads(written)
    except json.JSONDecodeError as failure:
        problem = f"is not JSON: {failure.msg} in line {failure.lineno}, column {failure.colno}"
        raise ConfigError([Mistake("record", problem)], what="bad record") from None
    except (ValueError, RecursionError):
        problem = "is nested too deep, or has a number that is too long"
        raise ConfigError([Mistake("record", problem)], what="bad record") from None
    if not isinstance(record, dict):
        raise ConfigError([Mistake("record", "expected a JSON object with topic, value …")], what="bad record")
    return record


def _stages(explanation: RecordExplanation) -> list[ShownStage]:
    stages = []
    for report in explanation.stages:
        before, after = pretty(dict(report.before)), pretty(dict(report.after))
        stages.append(ShownStage(report, side_by_side(before, after), before != after))
    return stages


@router.get("/tap")
def tap(request: Request, parts: PartsDep, _: Reads, route: str = "") -> Response:
    """Render the choice of a route; the records of one are a tab of its page."""
    if route:
        return RedirectResponse(f"/routes/{segment(parts.routes.entry(route).name)}/records", 303)
    versions = [(entry.name, entry.version) for entry in parts.routes.entries()]
    names = [name for name, version in versions if version and version.route.source.keeps_history]
    return page(request, "tap.html", names=names)


@dataclass(frozen=True, slots=True)
class LastRecord:
    """One of the last records of a source: its position, what the route would do with it, and its messages' topics."""

    position: str
    outcome: str
    reason: str | None
    topic: object
    value: str
    messages: tuple[str, ...]


@router.get("/routes/{name}/records")
@matches_store
def records(name: str, request: Request, parts: PartsDep, principal: Reads) -> HTMLResponse:
    """Render the last records of a route with what becomes of them, and the form of its tap."""
    entry = parts.routes.entry(name)
    route = route_of(entry)
    if not route.source.keeps_history:
        raise ConflictError(f"{name} does not read a stream or topics: it has no last records")
    rows: list[LastRecord] = []
    problems: list[str] = []
    try:
        index = parts.matchers.index(route)
        newest = newest_taps(route, _LAST_RECORDS, unmasked=not is_masked(principal), index=index)
        rows = [_last_record(tapped) for tapped in newest]
    except TurnoutError as failure:
        problems = text_of_error(failure)
    return page(
        request,
        "route_records.html",
        tabs_of(entry, "records"),
        stages=stages_of(route),
        rows=rows,
        problems=problems,
    )


def _last_record(tapped: Tapped) -> LastRecord:
    # What a filter dropped, or an error set aside, is no longer there to show.
    text = "–" if tapped.outcome not in _WITH_CONTENT else _text(tapped.before.get("value"))
    return LastRecord(
        f"{tapped.stream}:{tapped.sequence}",
        tapped.outcome,
        tapped.reason,
        tapped.before.get("topic"),
        text[:_MOST_CHARACTERS],
        tuple(message.topic for message in tapped.messages[:_MOST_MESSAGES]),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
