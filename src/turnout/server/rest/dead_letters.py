"""``/v1/routes/{name}/dead-letters``: list, reasons, and redrive."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StrictBool

from turnout.history.dead_letters import DeadLetter, grouped
from turnout.history.masking import hidden_anywhere
from turnout.history.redrive import masked_report, redrive
from turnout.server.dead_letters import as_given, chosen, letter_at, newest, page_of, visible
from turnout.server.rest.dependencies import PartsDep, Reads, Writes, is_masked
from turnout.server.rest.models import JsonSequenceNumber, RequestForm, SequenceNumber
from turnout.server.rest.store_calls import asks_servers, redrives
from turnout.server.sandbox import route_of

router = APIRouter(prefix="/v1/routes/{name}/dead-letters", tags=["dead letters"])

_MAX_LETTERS = 10_000
LetterCondition = Annotated[str, Query(description="only letters whose records meet this condition, as they came")]
LetterStream = Annotated[str | None, Query(description="only letters of this stream; of Kafka topic:partition")]
_ERRORS: dict[int | str, dict[str, object]] = {409: {}, 502: {}, 503: {}}
"""The route may set nothing aside, and its server or its stream may be away."""


class LetterModel(BaseModel):
    """Record, or single delivery of a record, that was set aside. Times are seconds since the epoch."""

    sequence: int = Field(description="in the stream of the letters")
    stream: str
    stored: float
    stage: str | None = Field(description="stage that failed; null for a record that no subscription matched")
    class_name: str | None
    reason: str | None
    subscription: str | None = Field(description="of one delivery, whose it was")
    destination: str | None
    tries: int = Field(description="number of redrives that failed again")
    done: bool = Field(description="true if it was delivered since")
    verified: bool = Field(description="true if the route wrote it; always true for a route without a secret")
    record: dict[str, object] = Field(description="the record as it was read, in the form that explain accepts")


class LetterPage(BaseModel):
    """Some dead letters, the newest first."""

    items: list[LetterModel]
    cursor: int | None = Field(description="value of before for the next page; null on the last page")


class GroupModel(BaseModel):
    """Dead letters with one stage and one reason."""

    stage: str | None
    reason: str | None
    count: int
    first: float
    last: float


class RedriveForm(RequestForm):
    """Selection of letters and the mode of a redrive; all letters by default."""

    sequences: list[JsonSequenceNumber] | None = Field(default=None, max_length=_MAX_LETTERS)
    stream: str | None = Field(default=None, description="only letters of this stream; of Kafka topic:partition")
    stage: str | None = None
    reason: str | None = None
    dry_run: StrictBool = Field(default=True, description="deliver nothing, only report the outcomes")
    delete: StrictBool = Field(default=False, description="delete letters that are delivered")
    where: str = Field(default="", description="only letters whose records meet this condition, as they came")
    unverified: StrictBool = Field(default=False, description="also letters that lack the seal of the route's secret")


@router.get("", summary="Dead letters, the newest first", responses=_ERRORS)
@asks_servers
def list_letters(
    name: str,
    parts: PartsDep,
    principal: Reads,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: SequenceNumber | None = None,
    stage: str | None = None,
    reason: str | None = None,
    stream: LetterStream = None,
    done: bool = False,
    where: LetterCondition = "",
) -> LetterPage:
    route = route_of(parts.routes.entry(name))
    masked = is_masked(principal)
    found = newest(route, done=done, where=where, masked=masked)
    letters = visible(route, found, masked=masked, stage=stage, reason=reason)
    page, cursor = page_of(chosen(letters, None, stream), before, limit)
    return LetterPage(items=[_model(letter) for letter in page], cursor=cursor)


@router.get("/groups", summary="Dead letters by stage and reason, the largest group first", responses=_ERRORS)
@asks_servers
def groups(name: str, parts: PartsDep, principal: Reads, where: LetterCondition = "") -> list[GroupModel]:
    route = route_of(parts.routes.entry(name))
    masked = is_masked(principal)
    return [
        GroupModel(
            stage=group.stage,
            reason=group.reason,
            count=group.count,
            first=group.first_seconds,
            last=group.last_seconds,
        )
        for group in grouped(visible(route, newest(route, where=where, masked=masked), masked=masked))
    ]  # fmt: skip


@router.get("/{sequence:number}", summary="One dead letter", responses=_ERRORS)
@asks_servers
def read_letter(
    name: str, sequence: SequenceNumber, parts: PartsDep, principal: Reads, stream: LetterStream = None
) -> LetterModel:
    route = route_of(parts.routes.entry(name))
    return _model(visible(route, [letter_at(route, sequence, stream)], masked=is_masked(principal))[0])


@router.post(
    "/redrive",
    summary="Put dead letters through the route as it is now, and deliver what passes",
    responses=_ERRORS,
)
@redrives
def redrive_letters(name: str, form: RedriveForm, parts: PartsDep, principal: Writes) -> dict[str, object]:
    route = route_of(parts.routes.entry(name))
    # The call's time is for the store; letters may take long.
    index = parts.matchers.index(route)
    masked = is_masked(principal)
    letters = newest(route, where=form.where, masked=masked)[::-1]
    shown = visible(route, letters, masked=masked, stage=form.stage, reason=form.reason)
    selected = {(letter.stream, letter.sequence) for letter in chosen(shown, form.sequences, form.stream)}
    letters = [letter for letter in letters if (letter.stream, letter.sequence) in selected]
    report = redrive(route, letters, dry_run=form.dry_run, delete=form.delete, unverified=form.unverified, index=index)
    return (masked_report(report, hidden_anywhere(route.chain)) if masked else report).as_dict()


def _model(letter: DeadLetter) -> LetterModel:
    return LetterModel(
        sequence=letter.sequence,
        stream=letter.stream,
        stored=letter.stored_seconds,
        stage=letter.stage,
        class_name=letter.class_name,
        reason=letter.reason,
        subscription=letter.subscription,
        destination=letter.destination,
        tries=letter.tries,
        done=letter.done,
        verified=letter.verified,
        record=as_given(letter.record),
    )
