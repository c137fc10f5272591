"""``/live``, ``/ready`` and ``/metrics``: endpoints that are polled by machines."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, Field

from turnout.server.rest.dependencies import PartsDep, Reads
from turnout.server.rest.store_calls import in_pool

router = APIRouter(tags=["health"])
# Coroutines that wait for no store and no thread: a restart helps neither.


class LiveModel(BaseModel):
    """Liveness of the process."""

    live: bool
    reason: str | None = Field(description="reason if it is not live")


class ReadyModel(BaseModel):
    """Readiness of the server."""

    ready: bool
    problems: dict[str, str] = Field(description="reasons by the parts that are not ready")


@router.get(
    "/live",
    summary="Liveness of the process; 503 requests a restart",
    responses={200: {"model": LiveModel}, 503: {"model": LiveModel, "description": "It does not"}},
)
async def live(parts: PartsDep) -> JSONResponse:
    reason = parts.health.live()
    return JSONResponse({"live": reason is None, "reason": reason}, 200 if reason is None else 503)


@router.get(
    "/ready",
    summary="Readiness of the server; 503 with the reasons",
    responses={200: {"model": ReadyModel}, 503: {"model": ReadyModel, "description": "Something is away"}},
)
async def ready(parts: PartsDep) -> JSONResponse:
    readiness = parts.health.ready()
    return JSONResponse({"ready": readiness.ready, "problems": readiness.problems}, 200 if readiness.ready else 503)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(parts: PartsDep, _: Reads) -> Response:
    return Response(await in_pool(parts.scrapes, parts.metrics.text), media_type=CONTENT_TYPE_PLAIN_0_0_4)
