"""``inputs`` of turnout.yaml: the senders permitted at ``POST /v1/in/NAME``, and the streams of their messages."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from turnout.routes.endpoints import NatsSink, Part
from turnout.server.durations import Seconds
from turnout.server.inputs.signatures import check_secret
from turnout.server.request_bodies import MAX_BODY
from turnout.subjects import is_publishable
from turnout.subjects.rights import Rights

InputName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
InputKind = Literal["standard-webhooks", "github", "stripe", "cloudevents", "json", "lines"]


class InputPart(Part):
    """One input.

    Attributes:
        kind: form of its requests, and how they prove their sender: ``standard-webhooks``, ``github`` and ``stripe``
            are signed; ``cloudevents``, ``json`` and ``lines`` (a JSON text on each line) have a bearer token.
        secrets: of signatures, or tokens; two while one is replaced by another. ``${NAME}``, ``${NAME:-default}`` and
            ``${file:path}`` are filled in as in routes.
        subject: subject of the stored messages.
        sink: the server, and the stream that has to take them.
        tolerance: longest difference between a signature's time and now.
        rate: verified requests a second; further ones are answered with 429.
        max_body: bytes of a request.
    """

    kind: InputKind
    secrets: Annotated[list[str], Field(min_length=1, max_length=4, repr=False)]
    subject: str
    sink: NatsSink
    tolerance: Seconds = Field(default=300.0, gt=0)
    rate: float | None = Field(default=None, gt=0)
    max_body: int = Field(default=1 << 20, ge=1, le=MAX_BODY)

    @field_validator("subject")
    @classmethod
    def _subject(cls, subject: str) -> str:
        if not is_publishable(subject):
            raise ValueError("expected a subject without wildcards")
        return subject

    @model_validator(mode="after")
    def _rights(self) -> Self:
        refusal = Rights(self.sink.writable, prefixes=self.sink.prefixes).refusal(self.subject)
        if refusal is not None:
            raise ValueError(f"subject: {self.subject!r} {refusal}")
        return self

    @model_validator(mode="after")
    def _secrets(self) -> Self:
        for secret in self.secrets:
            check_secret(self.kind, secret)
        return self
