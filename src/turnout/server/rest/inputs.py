"""``/v1/in/{name}``: requests that become messages of a stream."""

from __future__ import annotations

from math import ceil

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, Field

from turnout.server.rest.dependencies import parts_of

router = APIRouter(prefix="/v1/in", tags=["inputs"])


class StoredModel(BaseModel):
    """Outcome of a request whose messages are in the stream."""

    messages: int = Field(description="messages of the request, all of which are stored")
    duplicates: int = Field(description="number of these that were stored before under the same id")


@router.post(
    "/{name}",
    summary="Store the messages of a request; it proves its sender by the input's secret",
    responses={429: {}, 503: {}},
)
async def take(name: str, request: Request) -> StoredModel:
    intake = parts_of(request).intake
    answer = None if intake is None else await intake.take(name, request.headers, await request.body())
    if answer is None:
        raise HTTPException(404, "there is no such input")
    if answer.status != 200:
        headers = {"Retry-After": f"{ceil(answer.retry_after)}"} if answer.retry_after else None
        raise HTTPException(answer.status, answer.detail, headers)
    return StoredModel(messages=answer.stored, duplicates=answer.duplicates)
