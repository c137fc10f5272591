"""``/v1/routes/{name}/pause`` and similar: all answer immediately, and the route's state shows the result."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field, StrictInt, StrictStr

from turnout.server.rest.dependencies import PartsDep, Reads, Writes
from turnout.server.rest.models import RequestForm, RouteModel, route_model
from turnout.server.rest.store_calls import asks_servers

router = APIRouter(prefix="/v1/routes/{name}", tags=["routes"])


class OffsetsModel(BaseModel):
    """Committed offsets of a route."""

    batch: int | None = Field(description="the last micro-batch that is done; null where none is")
    next: dict[str, object] = Field(description="next sequence by stream, next offset by topic and partition")
    begins_at: object = Field(description="start that was set by a reset; null for the route's own")


class ResetForm(RequestForm):
    """Target of a reset."""

    to: StrictStr | StrictInt | dict[str, object] = Field(
        description="earliest, latest, a sequence, an ISO time, or a place for each stream or topic",
        examples=["earliest", 4711, "2026-01-31T12:00:00Z", {"ORDERS": 4711}],
    )


class ConfirmForm(RequestForm):
    """Version to confirm, so that no unseen version is confirmed."""

    digest: StrictStr = Field(description="of the file whose changes are confirmed, as the route's digest says it")


@router.post(
    "/pause",
    status_code=202,
    summary="Pause a route after its current micro-batch",
    responses={409: {}},
)
def pause(name: str, parts: PartsDep, principal: Writes) -> RouteModel:
    parts.routes.pause(name, who=principal.name)
    return route_model(parts.routes.entry(name), parts)


@router.post("/resume", status_code=202, summary="Resume a route from its checkpoint", responses={409: {}})
def resume(name: str, parts: PartsDep, _: Writes) -> RouteModel:
    parts.routes.resume(name)
    return route_model(parts.routes.entry(name), parts)


@router.post(
    "/restart",
    status_code=202,
    summary="Restart a route after its current micro-batch",
    responses={409: {}},
)
def restart(name: str, parts: PartsDep, _: Writes) -> RouteModel:
    parts.routes.restart(name)
    return route_model(parts.routes.entry(name), parts)


@router.get("/offsets", summary="Committed offsets of a route")
def offsets(name: str, parts: PartsDep, _: Reads) -> OffsetsModel:
    done = parts.routes.offsets(name)
    reset = parts.state.reset_of(name)
    return OffsetsModel(batch=done.batch, next=done.next, begins_at=reset.start if reset else None)


@router.put(
    "/offsets",
    summary="Reset the offsets of a paused route",
    responses={409: {}, 412: {}, 502: {}, 503: {}},
)
@asks_servers
def reset_offsets(name: str, form: ResetForm, parts: PartsDep, _: Writes) -> OffsetsModel:
    start = parts.routes.reset_offsets(name, form.to)
    return OffsetsModel(batch=None, next={}, begins_at=start)


@router.post(
    "/confirm",
    status_code=202,
    summary="Begin the new checkpoint that a changed file needs; the old one is moved aside",
    responses={409: {}, 412: {}},
)
def confirm(name: str, form: ConfirmForm, parts: PartsDep, principal: Writes) -> RouteModel:
    parts.routes.confirm(name, form.digest, who=principal.name)
    return route_model(parts.routes.entry(name), parts)
