"""The forms of answers and requests about routes."""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError
from starlette.convertors import Convertor, PathConvertor, register_url_convertor

from turnout.base.untrusted import is_text
from turnout.errors import Mistake
from turnout.runtime.endpoints import Change
from turnout.runtime.open_splits import SlotUse
from turnout.secrets import masked_url
from turnout.server.rest.dependencies import Parts
from turnout.server.routes.supervisor import Phase
from turnout.server.routes.table import RouteEntry


class _NumberConvertor(Convertor[int]):
    """Number in a path, of as many digits as 64 bits have; a path with more is not found."""

    regex = "[0-9]{1,19}"

    def convert(self, value: str) -> int:
        """Return the number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """Return its digits."""
        return str(value)


register_url_convertor("number", _NumberConvertor())


class _IdConvertor(PathConvertor):
    """Id of a subscription at the end of a path, with slashes or without."""

    regex = ".+"


class _SubscriptionConvertor(PathConvertor):
    """Id of a subscription in a path below which there are other operations; it is not the path of one of these."""

    regex = "(?!conditions/validate$|.*/history$).+"


register_url_convertor("id", _IdConvertor())
register_url_convertor("subscription", _SubscriptionConvertor())

_LARGEST_NUMBER = (1 << 53) - 1
"""Largest integer that a JSON number holds exactly everywhere."""

SequenceNumber = Annotated[int, Field(ge=0, le=_LARGEST_NUMBER)]
"""Number of a message, an event or a task."""


def _no_text_or_boolean(value: object) -> object:
    if isinstance(value, bool | str):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


JsonSequenceNumber = Annotated[SequenceNumber, BeforeValidator(_no_text_or_boolean)]
"""The same in a JSON body, where a boolean or a text is no number."""


class RequestForm(BaseModel):
    """Body of a request; unknown names and texts that are no Unicode are refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _is_unicode(cls, body: object) -> object:
        """Refuse lone surrogates, which JSON can escape and UTF-8 cannot hold.

        Raises:
            ValueError: some name or text has one.
        """
        if not is_text(json.dumps(body, ensure_ascii=False, default=repr)):
            raise ValueError("a text has half of a surrogate pair")
        return body


def any_of(description: str) -> WithJsonSchema:
    """Describe a choice of which one is a list or an object: generators of clients take it for any value."""
    return WithJsonSchema({"description": description})


_HEADERS: Final = {
    "ETag": "of this version, for If-Match and If-None-Match",
    "Location": "path of what was stored",
    "Warning": "parts of conditions that another query language would read differently",
    "Retry-After": "seconds after which to try again",
    "WWW-Authenticate": "scheme of authentication that is expected",
}


def with_headers(*names: str) -> dict[str, object]:
    """Return the description of a response's headers."""
    return {"headers": {name: {"schema": {"type": "string"}, "description": _HEADERS[name]} for name in names}}


class MistakeModel(BaseModel):
    """Mistake in a route's file."""

    path: str = Field(description="the place, as its author would name it")
    problem: str
    line: int | None = Field(default=None, description="of the file, from 1")


class ChangeModel(BaseModel):
    """Difference between two versions of a route."""

    change: str
    verdict: Literal["safe", "needs_new_checkpoint"] = Field(description="safe: the checkpoint stays valid")
    reason: str
    uncovers: bool = Field(description="content that was masked or removed may be delivered as it is")


class LagModel(BaseModel):
    """Lag of a route behind its source."""

    records: dict[str, int] = Field(description="by stream, the sequences that are not done yet")
    seconds: float | None = Field(description="the age of the oldest of them")


class BatchModel(BaseModel):
    """The last micro-batch."""

    number: int
    seconds: float
    ended_at: float | None
    subscriptions: int | None
    subscriptions_revision: int | None


class RouteModel(BaseModel):
    """Route with the data of its file and its state. Times are seconds since the epoch."""

    name: str
    state: Phase
    reason: str = Field(description="reason of a failure or a pause, as a sentence")
    since: float
    retry_at: float | None = Field(description="time of the next start")
    failures: int = Field(description="failures within the policy's window")
    file: str
    digest: str = Field(description="of the file as it is now")
    running_digest: str | None = Field(description="of the version that runs, or would")
    summary: str | None = Field(description="the route in one line")
    source: str | None = Field(description="the format of the source")
    sinks: list[str]
    notes: list[str]
    counts: dict[str, int] = Field(description="since the server began")
    last_batch: BatchModel | None
    lag: LagModel | None
    task_slot: Literal["taken", "waiting"] | None = Field(description="the task slot of a route with latency: low")
    problem: str | None = Field(description="a server of the route that is away")
    losses: list[str] = Field(
        description="a sentence for each share of lost records that is above its limit, or far above the day before"
    )
    loss_shares: dict[str, float] = Field(description="by kind of loss, of the last 15 minutes")
    mistakes: list[MistakeModel] = Field(description="in the current file; the previous version continues")
    pending: list[ChangeModel] = Field(description="changes that wait for confirm=new-checkpoint")


class RoutePage(BaseModel):
    """Some routes, by name."""

    items: list[RouteModel]
    cursor: str = Field(description='value for the next page; "" on the last page')
    total: int


class RouteText(RouteModel):
    """Route with its file's text."""

    text: str
    running_text: str | None = Field(description="of the version that runs, where the file says something else")


def mistakes_of(mistakes: tuple[Mistake, ...]) -> list[MistakeModel]:
    """Return the mistakes in the form of a response."""
    return [
        MistakeModel(path=mistake.path, problem=masked_url(mistake.problem), line=mistake.line)
        for mistake in (mistake.shortened() for mistake in mistakes)
    ]


def changes_of(changes: list[Change] | tuple[Change, ...]) -> list[ChangeModel]:
    """Return the changes in the form of a response."""
    return [ChangeModel.model_validate(change, from_attributes=True) for change in changes]


def route_model(entry: RouteEntry, parts: Parts) -> RouteModel:
    """Return a route in the form of a response."""
    status, version = entry.status, entry.version
    lag = parts.survey.lag(entry.name)
    return RouteModel(
        name=entry.name,
        state=status.phase,
        reason=status.reason,
        since=status.since,
        retry_at=status.retry_at,
        failures=status.failures,
        file=str(entry.file.path),
        digest=entry.file.digest,
        running_digest=version.digest if version else None,
        summary=version.route.summary() if version else None,
        source=version.route.source.format if version else None,
        sinks=[sink.format for sink in version.route.sinks.values()] if version else [],
        notes=version.route.remarks if version else [],
        counts=status.counts.as_dict(),
        last_batch=_batch(entry),
        lag=LagModel(records=lag.records, seconds=lag.seconds) if lag else None,
        task_slot=_task_slot(entry.name, parts.routes.slots()),
        problem=parts.survey.problems.get(entry.name),
        losses=list(parts.losses.report(entry.name).problems),
        loss_shares=dict(parts.losses.report(entry.name).shares),
        mistakes=mistakes_of(entry.mistakes),
        pending=changes_of(entry.pending.changes) if entry.pending else [],
    )


def _task_slot(route: str, use: SlotUse | None) -> Literal["taken", "waiting"] | None:
    if use is None or route not in (*use.taken, *use.waiting):
        return None
    return "taken" if route in use.taken else "waiting"


def _batch(entry: RouteEntry) -> BatchModel | None:
    status = entry.status
    if status.progress is None:
        return None
    return BatchModel(
        number=status.progress.batch,
        seconds=status.progress.batch_seconds,
        ended_at=status.last_success,
        subscriptions=status.progress.subscriptions,
        subscriptions_revision=status.progress.revision,
    )
