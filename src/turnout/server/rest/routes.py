"""``/v1/routes``: the routes, their files, and their events."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from turnout.errors import RouteError
from turnout.rpc.caller import Right
from turnout.server.preconditions import Conditions
from turnout.server.principal import Principal
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, Writes
from turnout.server.rest.hiding import without_secrets
from turnout.server.rest.models import (
    ChangeModel,
    MistakeModel,
    RequestForm,
    RouteModel,
    RoutePage,
    RouteText,
    changes_of,
    mistakes_of,
    route_model,
)
from turnout.server.route_entry import RouteEntry
from turnout.server.route_files import Author
from turnout.server.supervisor import Phase

router = APIRouter(prefix="/v1/routes", tags=["routes"])


class TextForm(RequestForm):
    """A route's file."""

    text: str = Field(description="YAML", max_length=1 << 20)


class Validation(BaseModel):
    """Validity of a route, and its changes."""

    valid: bool
    name: str | None
    summary: str | None
    notes: list[str]
    mistakes: list[MistakeModel]
    changes: list[ChangeModel] = Field(
        description="of the version that runs; secrets are compared for callers alone that may write"
    )


class RevisionModel(BaseModel):
    """A version of a route that was started."""

    digest: str
    at: float
    who: str
    text: str


class MinuteModel(BaseModel):
    """Counts of a route's records within a minute."""

    at: int = Field(description="start of the minute, in seconds since the epoch")
    counts: dict[str, int]


@router.get("", summary="All routes, by name")
def list_routes(
    parts: PartsDep,
    _: Reads,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: str = "",
    state: Phase | None = None,
) -> RoutePage:
    entries = [entry for entry in parts.routes.entries() if state in (None, entry.status.phase)]
    page = [entry for entry in entries if entry.name > cursor][: limit + 1]
    more = page[limit - 1].name if len(page) > limit else ""
    return RoutePage(items=[route_model(entry, parts) for entry in page[:limit]], cursor=more, total=len(entries))


@router.post("/validate", summary="Check a text that could be put as a route")
def validate(form: TextForm, parts: PartsDep, principal: Reads) -> Validation:
    author = Author.WRITER if Right.WRITE in principal.caller.rights else Author.READER
    try:
        route = parts.routes.check(form.text, author=author)
    except RouteError as wrong:
        mistakes = mistakes_of(wrong.mistakes)
        return Validation(valid=False, name=None, summary=None, notes=[], mistakes=mistakes, changes=[])
    return Validation(
        valid=True,
        name=route.name,
        summary=route.summary(),
        notes=route.remarks,
        mistakes=[],
        changes=changes_of(parts.routes.changes(route, masked=author is Author.READER)),
    )


@router.get("/{name}", summary="One route with its file's text", responses={304: {}, 412: {}})
def read_route(name: str, parts: PartsDep, principal: Reads, response: Response) -> RouteText:
    return _tagged(parts.routes.entry(name), parts, principal, response)


def _tagged(entry: RouteEntry, parts: Parts, principal: Principal, response: Response) -> RouteText:
    """Return a route whose tag is the version of its file, for changes, and a digest of its state, for reads."""
    model = _with_text(entry, parts, principal)
    state = hashlib.sha256(model.model_dump_json().encode()).hexdigest()[:16]
    response.headers["ETag"] = f'"{entry.file.digest}-{state}"'
    return model


def _with_text(entry: RouteEntry, parts: Parts, principal: Principal) -> RouteText:
    def as_seen(text: str) -> str:
        # Writers edit the whole text; readers do not see credentials.
        return text if Right.WRITE in principal.caller.rights else without_secrets(text)

    running = entry.version.text if entry.version and entry.version.digest != entry.file.digest else None
    fields = dict(route_model(entry, parts))
    return RouteText(
        **fields, text=as_seen(entry.file.text), running_text=None if running is None else as_seen(running)
    )


@router.put(
    "/{name}",
    summary="Write a route's file, and start the route",
    responses={201: {"model": RouteText, "description": "The route is new"}, 409: {}, 412: {}},
)
def put_route(
    name: str,
    form: TextForm,
    parts: PartsDep,
    principal: Writes,
    response: Response,
    conditions: Conditions,
    confirm: Annotated[Literal["new-checkpoint"] | None, Query(description="begin anew where that is needed")] = None,
) -> RouteText:
    new = parts.routes.put(
        name, form.text, who=principal.name, confirmed=confirm is not None, conditions=conditions.of_versions()
    )
    response.status_code = 201 if new else 200
    return _tagged(parts.routes.entry(name), parts, principal, response)


@router.delete(
    "/{name}",
    status_code=204,
    summary="Remove a route's file, and stop it; its checkpoint is kept",
    responses={409: {}, 412: {}},
)
def delete_route(name: str, parts: PartsDep, principal: Writes, conditions: Conditions) -> None:
    parts.routes.delete(name, who=principal.name, conditions=conditions.of_versions())


@router.get("/{name}/status", summary="State of one route")
def status(name: str, parts: PartsDep, _: Reads) -> RouteModel:
    return route_model(parts.routes.entry(name), parts)


@router.get("/{name}/revisions", summary="Started versions of a route, the newest first")
def revisions(
    name: str, parts: PartsDep, principal: Reads, limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> list[RevisionModel]:
    entry = parts.routes.entry(name)
    writes = Right.WRITE in principal.caller.rights
    return [
        RevisionModel(
            digest=revision.digest,
            at=revision.at,
            who=revision.who,
            text=revision.text if writes else without_secrets(revision.text),
        )
        for revision in parts.state.revisions(entry.name, limit)
    ]


@router.get("/{name}/history", summary="Outcomes of a route's records, by minute")
def history(name: str, parts: PartsDep, _: Reads, since: float = 0.0) -> list[MinuteModel]:
    entry = parts.routes.entry(name)
    return [
        MinuteModel(at=minute.at, counts=minute.counts.as_dict()) for minute in parts.state.counts(entry.name, since)
    ]
