"""``/v1/subjects/map``: subjects mapped by a transform, or by the mappings of a route (ADR-30)."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from turnout.errors import SubjectError
from turnout.server.errors import ConflictError
from turnout.server.rest.dependencies import Parts, PartsDep, Reads
from turnout.server.rest.models import RequestForm
from turnout.subjects import MappingTable, SubjectTransform
from turnout.subjects.mapping import explain

router = APIRouter(prefix="/v1/subjects", tags=["subjects"])


class MapForm(RequestForm):
    """Subjects, and what maps them: a source and a destination, mappings as in a route's file, or a route's name."""

    model_config = ConfigDict(
        json_schema_extra={
            "dependentRequired": {"source": ["destination"], "destination": ["source"]},
            "examples": [{"subjects": ["orders.17"], "source": "orders.*", "destination": "eu.{{wildcard(1)}}"}],
        }
    )

    subjects: list[str] = Field(min_length=1, max_length=1000)
    source: str | None = Field(default=None, examples=["orders.*"])
    destination: str | None = Field(default=None, examples=["{{partition(8,1)}}.orders.{{wildcard(1)}}"])
    mappings: dict[str, object] | None = None
    route: str | None = None
    cluster: str | None = None

    @model_validator(mode="after")
    def _one(self) -> MapForm:
        if (self.source is None) != (self.destination is None):
            raise ValueError("source and destination belong together")
        if sum(choice is not None for choice in (self.source, self.mappings, self.route)) != 1:
            raise ValueError("needs exactly one of source with destination, mappings, and route")
        return self


class MappedModel(BaseModel):
    """Result of mapping one subject."""

    subject: str
    mapping: str | None = Field(description="the source that it matches; null where nothing maps it")
    cluster: str | None = Field(default=None, description="whose destinations apply")
    outcomes: list[dict[str, object]] = Field(description="destination, subject (null: lost), share in percent")
    problem: str | None = None


@router.post("/map", summary="Map subjects, with the reasons", responses={404: {}, 409: {}})
def map_subjects(form: MapForm, parts: PartsDep, _: Reads) -> list[MappedModel]:
    if form.source is not None and form.destination is not None:
        transform = SubjectTransform.parse(form.source, form.destination)
        return [_transformed(transform, subject) for subject in form.subjects]
    table, cluster = _table(form, parts)
    return [_mapped(table, subject, cluster) for subject in form.subjects]


def _table(form: MapForm, parts: Parts) -> tuple[MappingTable, str | None]:
    if form.route is None:
        return MappingTable.from_config(form.mappings or {}), form.cluster
    entry = parts.routes.entry(form.route)
    if entry.version is None:
        raise ConflictError(f"route {form.route} cannot be used: {entry.status.reason}")
    return entry.version.route.mappings, form.cluster or entry.version.route.cluster


def _transformed(transform: SubjectTransform, subject: str) -> MappedModel:
    try:
        mapped = transform.apply(subject)
    except SubjectError as failure:
        return MappedModel(subject=subject, mapping=None, outcomes=[], problem=str(failure))
    outcome = {"destination": transform.destination, "subject": mapped, "share": 100, "completed": False}
    return MappedModel(subject=subject, mapping=transform.source, outcomes=[outcome])


def _mapped(table: MappingTable, subject: str, cluster: str | None) -> MappedModel:
    try:
        explanation = explain(table, subject, cluster)
    except SubjectError as failure:
        return MappedModel(subject=subject, mapping=None, outcomes=[], problem=str(failure))
    return MappedModel(
        subject=subject,
        mapping=explanation.mapping.source if explanation.mapping else None,
        cluster=explanation.group,
        outcomes=[asdict(outcome) for outcome in explanation.outcomes],
    )
