"""``/v1/routes``: the routes, their files, their history and their control."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import quote

import yaml
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, StrictInt, StrictStr

from turnout.base.yaml_values import compose
from turnout.errors import RouteError
from turnout.routes.document import secret_names
from turnout.rpc.caller import Right
from turnout.secrets import is_secret, masked_url
from turnout.server.preconditions import Conditions
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, Writes, asks_servers
from turnout.server.rest.models import (
    ChangeModel,
    MistakeModel,
    RequestForm,
    RouteModel,
    RoutePage,
    RouteText,
    any_of,
    changes_of,
    mistakes_of,
    route_model,
    with_headers,
)
from turnout.server.routes.supervisor import Phase
from turnout.server.routes.table import Author, RouteEntry
from turnout.server.security import Principal

_MASK = "***"
_HIDDEN = "# This is not YAML: only callers who may write it can read it.\n"


def without_secrets(text: str) -> str:
    """Replace passwords, tokens and seeds by ``***``, and in URLs the part before the @.

    >>> without_secrets('sink: {servers: "nats://ann:pw@a", password: open sesame, window: 5}')
    'sink: {servers: "nats://***@a", password: ***, window: 5}'
    """
    try:
        # The value of an alias is at its anchor.
        spans = sorted(set(_secrets(compose(text))), reverse=True)
    except yaml.YAMLError:
        return _HIDDEN
    for begin, end in spans:
        # The end of a block of text is the beginning of the next line.
        rest = text[begin:end]
        text = text[:begin] + _MASK + rest[len(rest.rstrip()) :] + text[end:]
    return masked_url(text)


def as_seen(text: str, principal: Principal) -> str:
    """Return a route's text as a caller sees it: writers edit the whole, readers do not see credentials."""
    return text if Right.WRITE in principal.caller.rights else without_secrets(text)


def _secrets(node: yaml.Node | None) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the values of secret names; variables are no secrets."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _secrets(item)
    if not isinstance(node, yaml.MappingNode):
        return
    for name, value in node.value:
        variable = isinstance(value, yaml.ScalarNode) and value.value.startswith("${")
        if (
            isinstance(name, yaml.ScalarNode)
            and (name.value in secret_names() or is_secret(name.value))
            and not variable
        ):
            yield value.start_mark.index, value.end_mark.index
        else:
            yield from _secrets(value)


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
def validate_route(form: TextForm, parts: PartsDep, principal: Reads) -> Validation:
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
    running = entry.version.text if entry.version and entry.version.digest != entry.file.digest else None
    fields = dict(route_model(entry, parts))
    return RouteText(
        **fields,
        text=as_seen(entry.file.text, principal),
        running_text=None if running is None else as_seen(running, principal),
    )


@router.put(
    "/{name}",
    summary="Write a route's file, and start the route",
    responses={
        201: {"model": RouteText, "description": "The route is new", **with_headers("Location")},
        409: {},
        412: {},
    },
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
    if new:
        response.status_code = 201
        response.headers["Location"] = f"/v1/routes/{quote(name, safe='')}"
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
def read_route_status(name: str, parts: PartsDep, _: Reads) -> RouteModel:
    return route_model(parts.routes.entry(name), parts)


@router.get("/{name}/revisions", summary="Started versions of a route, the newest first")
def list_route_revisions(
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
def read_route_history(name: str, parts: PartsDep, _: Reads, since: float = 0.0) -> list[MinuteModel]:
    entry = parts.routes.entry(name)
    return [
        MinuteModel(at=minute.at, counts=minute.counts.as_dict()) for minute in parts.state.counts(entry.name, since)
    ]


control_router = APIRouter(prefix="/v1/routes/{name}", tags=["routes"])


class OffsetsModel(BaseModel):
    """Committed offsets of a route."""

    batch: int | None = Field(description="the last micro-batch that is done; null where none is")
    next: dict[str, object] = Field(description="next sequence by stream, next offset by topic and partition")
    begins_at: object = Field(description="start that was set by a reset; null for the route's own")


class ResetForm(RequestForm):
    """Target of a reset."""

    to: Annotated[
        StrictStr | StrictInt | dict[str, object],
        any_of("earliest, latest, a sequence, an ISO time, or a place for each stream or topic"),
    ] = Field(
        examples=["earliest", 4711, "2026-01-31T12:00:00Z", {"ORDERS": 4711}],
    )


class ConfirmForm(RequestForm):
    """Version to confirm, so that no unseen version is confirmed."""

    digest: StrictStr = Field(description="of the file whose changes are confirmed, as the route's digest says it")


@control_router.post(
    "/pause",
    status_code=202,
    summary="Pause a route after its current micro-batch",
    responses={409: {}},
)
def pause_route(name: str, parts: PartsDep, principal: Writes) -> RouteModel:
    parts.routes.pause(name, who=principal.name)
    return route_model(parts.routes.entry(name), parts)


@control_router.post("/resume", status_code=202, summary="Resume a route from its checkpoint", responses={409: {}})
def resume_route(name: str, parts: PartsDep, _: Writes) -> RouteModel:
    parts.routes.resume(name)
    return route_model(parts.routes.entry(name), parts)


@control_router.post(
    "/restart",
    status_code=202,
    summary="Restart a route after its current micro-batch",
    responses={409: {}},
)
def restart_route(name: str, parts: PartsDep, _: Writes) -> RouteModel:
    parts.routes.restart(name)
    return route_model(parts.routes.entry(name), parts)


@control_router.get("/offsets", summary="Committed offsets of a route")
def read_offsets(name: str, parts: PartsDep, _: Reads) -> OffsetsModel:
    done = parts.routes.offsets(name)
    reset = parts.state.reset_of(name)
    return OffsetsModel(batch=done.batch, next=done.next, begins_at=reset.start if reset else None)


@control_router.put(
    "/offsets",
    summary="Reset the offsets of a paused route",
    responses={409: {}, 412: {}, 502: {}, 503: {}},
)
@asks_servers
def reset_offsets(name: str, form: ResetForm, parts: PartsDep, _: Writes) -> OffsetsModel:
    start = parts.routes.reset_offsets(name, form.to)
    return OffsetsModel(batch=None, next={}, begins_at=start)


@control_router.post(
    "/confirm",
    status_code=202,
    summary="Begin the new checkpoint that a changed file needs; the old one is moved aside",
    responses={409: {}, 412: {}},
)
def confirm_route(name: str, form: ConfirmForm, parts: PartsDep, principal: Writes) -> RouteModel:
    parts.routes.confirm(name, form.digest, who=principal.name)
    return route_model(parts.routes.entry(name), parts)
