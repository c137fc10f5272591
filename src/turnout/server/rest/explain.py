"""``/v1/routes/{name}/explain``: what each stage of a route does to one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator

from turnout.engine.explain import explain, record_batch
from turnout.errors import ConfigError, Mistake
from turnout.routes import Route
from turnout.routes.endpoints import NatsSource
from turnout.server.errors import ConflictError
from turnout.server.rest.models import Form
from turnout.server.rest.parts import Reads, TheParts
from turnout.server.sources import message, streams_of
from turnout.subjects.explain import explain as explain_subject

__all__ = ["router"]

router = APIRouter(prefix="/v1/routes/{name}", tags=["routes"])


class ExplainForm(Form):
    """The record: as it stands, or by its place."""

    record: dict[str, Any] | None = Field(
        default=None, description="topic, key, value, headers (name: text), timestamp, partition, offset"
    )
    at: str | None = Field(default=None, description="stream:sequence of a message in the route's source")

    @model_validator(mode="after")
    def _one(self) -> ExplainForm:
        if (self.record is None) == (self.at is None):
            raise ValueError("needs exactly one of record and at")
        return self


class Explanation(BaseModel):
    """What becomes of a record."""

    record: dict[str, Any] = Field(description="as it was read")
    stages: list[dict[str, Any]] = Field(description="each transform: its predicates' answers, before and after")
    mapping: dict[str, Any] | None = Field(description="what the mappings make of the topic; null where it was dropped")


@router.post("/explain", summary="What each stage does to one record; nothing is delivered")
def explain_record(name: str, form: ExplainForm, parts: TheParts, _: Reads) -> Explanation:
    entry = parts.routes.entry(name)
    if entry.version is None:
        raise ConflictError(f"route {name} cannot be used: {entry.status.reason}")
    route = entry.version.route
    record = form.record if form.at is None else _fetched(route, form.at)
    assert record is not None
    reports = list(explain(route.chain, route.key, route.value, record_batch(record)))
    gone = any(report.outcome in ("dropped", "failed") for report in reports)
    topic = reports[-1].after["topic"] if reports else record["topic"]
    return Explanation(
        record=dict(record), stages=[asdict(report) for report in reports], mapping=None if gone else _map(route, topic)
    )


def _fetched(route: Route, at: str) -> Mapping[str, Any]:
    stream, _, sequence = at.rpartition(":")
    source = route.source
    if not isinstance(source, NatsSource):
        raise ConflictError(f"route {route.name} does not read a stream: give the record itself")
    known = streams_of(source)
    if stream not in known or not sequence.isdecimal():
        raise ConfigError(
            [Mistake("at", f"expected stream:sequence with a stream of {', '.join(known)}, found {at!r}")]
        )
    return message(source, stream, int(sequence))


def _map(route: Route, topic: str) -> dict[str, Any]:
    explanation = explain_subject(route.mappings, topic, route.cluster)
    return {
        "subject": topic,
        "mapping": explanation.mapping.source if explanation.mapping else None,
        "cluster": explanation.group,
        "outcomes": [asdict(outcome) for outcome in explanation.outcomes],
    }
