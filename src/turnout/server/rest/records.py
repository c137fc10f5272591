"""Records of a route: the explanation of one, dead letters, and live records at one stage."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from turnout.base.background import run_once
from turnout.conditions import parse
from turnout.errors import TurnoutError
from turnout.history.dead_letters import DeadLetter, grouped
from turnout.history.masking import hidden_anywhere
from turnout.history.redrive import masked_report, redrive
from turnout.history.tap import DELIVERED, Tapped, taps
from turnout.secrets import masked_url
from turnout.server.rest.dependencies import (
    PartsDep,
    Reads,
    Writes,
    asks_servers,
    in_pool,
    is_masked,
    matches_store,
    redrives,
)
from turnout.server.rest.models import JsonSequenceNumber, RequestForm, SequenceNumber
from turnout.server.sandbox import (
    as_given,
    batch_at,
    batch_of,
    chosen,
    explained,
    letter_at,
    newest,
    page_of,
    route_of,
    visible,
)

explain_router = APIRouter(prefix="/v1/routes/{name}", tags=["routes"])


class ExplainForm(RequestForm):
    """Record to explain, given directly or by its position."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"record": {"topic": "orders.1", "value": {"city": "Oulu"}, "headers": {"Kind": "new"}}}],
        }
    )

    record: dict[str, object] | None = Field(
        default=None, description="topic, key, value, headers (name: text), timestamp, partition, offset"
    )
    at: str | None = Field(default=None, description="stream:sequence or topic:partition:offset in the route's source")
    subscription: str | None = Field(default=None, description="the id of one to explain why it does not match")

    @model_validator(mode="after")
    def _one(self) -> ExplainForm:
        if (self.record is None) == (self.at is None):
            raise ValueError("needs exactly one of record and at")
        return self


class ExplanationModel(BaseModel):
    """Outcome of a record; see `turnout.engine.explain.RecordExplanation`."""

    record: dict[str, object] = Field(description="the record as it was read")
    change: dict[str, object] | None = Field(description="the value as a change event of Debezium; null if it is none")
    stages: list[dict[str, object]] = Field(description="each transform: its predicates' answers, before and after")
    mapped: dict[str, object] | None = Field(description="by the mappings; null if the record did not reach them")
    metadata: dict[str, str] = Field(description="metadata that conditions saw")
    wanted: list[dict[str, object]] = Field(description="the subscriptions that match it, with the true leaves")
    asked: dict[str, object] | None = Field(description="the requested subscription, with the leaves to blame")
    outcome: str
    failure: dict[str, object] | None
    messages: list[dict[str, object]] = Field(description="messages that would be sent")
    notes: list[str] = Field(description="failed requests to the route's servers, a sentence each")


@explain_router.post(
    "/explain",
    summary="Effect of each stage on one record, and its recipients; nothing is delivered",
    responses={409: {}, 502: {}, 503: {}},
)
@matches_store
def explain_record(name: str, form: ExplainForm, parts: PartsDep, principal: Reads) -> ExplanationModel:
    route = route_of(parts.routes.entry(name))
    if form.record is not None:
        batch = batch_of(route, form.record)
    else:
        assert form.at is not None
        batch = batch_at(route, form.at)
    # The caller knows the record that the request holds.
    masked = form.record is None and is_masked(principal)
    explanation = explained(route, batch, parts.matchers, asked=form.subscription or None, masked=masked)
    return ExplanationModel(**explanation.as_dict())


letters_router = APIRouter(prefix="/v1/routes/{name}/dead-letters", tags=["dead letters"])

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


@letters_router.get("", summary="Dead letters, the newest first", responses=_ERRORS)
@asks_servers
def list_dead_letters(
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


@letters_router.get("/groups", summary="Dead letters by stage and reason, the largest group first", responses=_ERRORS)
@asks_servers
def group_dead_letters(name: str, parts: PartsDep, principal: Reads, where: LetterCondition = "") -> list[GroupModel]:
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


@letters_router.get("/{sequence:number}", summary="One dead letter", responses=_ERRORS)
@asks_servers
def read_dead_letter(
    name: str, sequence: SequenceNumber, parts: PartsDep, principal: Reads, stream: LetterStream = None
) -> LetterModel:
    route = route_of(parts.routes.entry(name))
    return _model(visible(route, [letter_at(route, sequence, stream)], masked=is_masked(principal))[0])


@letters_router.post(
    "/redrive",
    summary="Put dead letters through the route as it is now, and deliver what passes",
    responses=_ERRORS,
)
@redrives
def redrive_dead_letters(name: str, form: RedriveForm, parts: PartsDep, principal: Writes) -> dict[str, object]:
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


tap_router = APIRouter(prefix="/v1/tap", tags=["routes"])

_TAP_SLOTS = threading.BoundedSemaphore(8)
_QUIET_SECONDS = 15.0
_BEHIND = 100


@tap_router.get(
    "/{name}",
    summary="Live records at one stage of a route; masked fields need the right unmasked",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}, 409: {}, 429: {}},
)
async def tap_route(
    name: str,
    parts: PartsDep,
    principal: Reads,
    stage: str = DELIVERED,
    where: Annotated[str, Query(description="a condition, over the metadata as it is there")] = "",
    rate: Annotated[float, Query(gt=0, le=50, description="records a second at most")] = 5.0,
    start: Annotated[
        str,
        Query(description="a sequence, an ISO time, earliest, or {topic:partition: offset}; new records if not given"),
    ] = "",
) -> StreamingResponse:
    route = route_of(parts.routes.entry(name))
    stop = threading.Event()
    condition = parse(where) if where.strip() else None
    # The first use of a store reads it, for which other requests must not wait.
    index = await in_pool(parts.threads.matches, parts.matchers.index, route) if stage == DELIVERED else None
    unmasked = not is_masked(principal)
    records = taps(
        route,
        stage,
        where=condition,
        rate=rate,
        start=start.strip() or None,
        stop=stop,
        index=index,
        unmasked=unmasked,
        strict=True,
    )
    if not _TAP_SLOTS.acquire(blocking=False):
        raise HTTPException(429, "too many taps are open already: try again later")
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(records, stop), media_type="text/event-stream", headers=headers)


async def _stream(records: Iterator[Tapped], stop: threading.Event) -> AsyncIterator[str]:
    """Yield the events of a reader thread, until the client disconnects or the route cannot be read."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    def put(event: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(queue.put_nowait, event)

    run_once("tap", lambda: _read(records, put, stop, lambda: queue.qsize() > _BEHIND))
    try:
        yield "retry: 5000\n\n"
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), _QUIET_SECONDS)
            except TimeoutError:
                yield ": nothing new\n\n"
                continue
            if event is None:
                return
            yield event
    finally:
        stop.set()


def _read(
    records: Iterator[Tapped],
    put: Callable[[str | None], None],
    stop: threading.Event,
    is_behind: Callable[[], bool],
) -> None:
    try:
        for record in records:
            if is_behind():
                # A slow client misses records: a tap is a sample.
                continue
            put(_event("record", record.as_dict()))
    except TurnoutError as failure:
        put(_event("problem", {"detail": masked_url(str(failure))}))
    except Exception as failure:
        put(_event("problem", {"detail": f"internal error: {type(failure).__name__}; the server's log has the rest"}))
        raise
    finally:
        stop.set()
        put(None)
        _TAP_SLOTS.release()


def _event(kind: str, body: dict[str, object]) -> str:
    return f"event: {kind}\ndata: {json.dumps(body, ensure_ascii=False, default=str)}\n\n"
