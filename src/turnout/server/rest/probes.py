"""``/live``, ``/ready`` and ``/metrics``: what machines ask again and again."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from turnout.server.rest.parts import Reads, TheParts

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/live", summary="Whether the process works; 503 asks to start it again", responses={503: {}})
def live(parts: TheParts) -> JSONResponse:
    reason = parts.health.live()
    return JSONResponse({"live": reason is None, "reason": reason}, 200 if reason is None else 503)


@router.get("/ready", summary="Whether everything that is needed is there; 503 with what is not", responses={503: {}})
def ready(parts: TheParts) -> JSONResponse:
    readiness = parts.health.ready()
    return JSONResponse({"ready": readiness.ready, "problems": readiness.problems}, 200 if readiness.ready else 503)


@router.get("/metrics", summary="Everything for Prometheus", response_class=Response)
def metrics(parts: TheParts, _: Reads) -> Response:
    return Response(parts.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
