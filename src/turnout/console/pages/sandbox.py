"""``/sandbox`` and ``/tap``: a record through a route's engine, stage by stage, and live records at one stage."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse

from turnout.console.formatting import Pair, pretty, side_by_side
from turnout.console.render import page, page_router, text_of_error
from turnout.console.shown_store import store_name
from turnout.engine.explain import RecordExplanation
from turnout.engine.stage_report import StageReport
from turnout.errors import ConfigError, Mistake, TurnoutError
from turnout.history.tap import stages_of
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, is_masked, matches_store
from turnout.server.rest.models import RequestForm, SequenceNumber
from turnout.server.sandbox import as_given, batch_at, batch_of, explained, letter_at, route_of, visible

router = page_router()

_EXAMPLE = '{\n  "topic": "orders.1",\n  "value": {"city": "Oulu"},\n  "headers": {}\n}'
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
def tap(request: Request, parts: PartsDep, _: Reads, route: str = "") -> HTMLResponse:
    versions = [(entry.name, entry.version) for entry in parts.routes.entries()]
    names = [name for name, version in versions if version and version.route.source.keeps_history]
    stages: tuple[str, ...] = ()
    if route:
        chosen = route_of(parts.routes.entry(route))
        stages = stages_of(chosen) if chosen.source.keeps_history else ()
    return page(request, "tap.html", names=names, route=route, stages=stages)
