"""``/v1/routes/{name}/explain``: the effect of each stage of a route on one record, and its recipients."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from turnout.server.rest.dependencies import PartsDep, Reads, is_masked
from turnout.server.rest.models import RequestForm, exactly_one
from turnout.server.rest.store_calls import matches_store
from turnout.server.sandbox import batch_at, batch_of, explained, route_of

router = APIRouter(prefix="/v1/routes/{name}", tags=["routes"])


class ExplainForm(RequestForm):
    """Record to explain, given directly or by its position."""

    model_config = ConfigDict(
        json_schema_extra={
            **exactly_one("record", "at"),
            "examples": [{"record": {"topic": "orders.1", "value": {"city": "Oulu"}, "headers": {"Kind": "new"}}}],
        }
    )

    record: dict[str, object] | None = Field(
        default=None, description="topic, key, value, headers (name: text), timestamp, partition, offset"
    )
    at: str | None = Field(default=None, description="stream:sequence or topic:partition:offset in the route's source")
    subscription: str | None = Field(default=None, description="the id of one to explain why it does not match")

    @model_validator(mode="after")
    def _one(self) -> ExplainForm:
        if (self.record is None) == (self.at is None):
            raise ValueError("needs exactly one of record and at")
        return self


class ExplanationModel(BaseModel):
    """Outcome of a record; see `turnout.engine.explain.RecordExplanation`."""

    record: dict[str, object] = Field(description="the record as it was read")
    change: dict[str, object] | None = Field(description="the value as a change event of Debezium; null if it is none")
    stages: list[dict[str, object]] = Field(description="each transform: its predicates' answers, before and after")
    mapped: dict[str, object] | None = Field(description="by the mappings; null if the record did not reach them")
    metadata: dict[str, str] = Field(description="metadata that conditions saw")
    wanted: list[dict[str, object]] = Field(description="the subscriptions that match it, with the true leaves")
    asked: dict[str, object] | None = Field(description="the requested subscription, with the leaves to blame")
    outcome: str
    failure: dict[str, object] | None
    messages: list[dict[str, object]] = Field(description="messages that would be sent")
    notes: list[str] = Field(description="failed requests to the route's servers, a sentence each")


@router.post(
    "/explain",
    summary="Effect of each stage on one record, and its recipients; nothing is delivered",
    responses={409: {}, 502: {}, 503: {}},
)
@matches_store
def explain_record(name: str, form: ExplainForm, parts: PartsDep, principal: Reads) -> ExplanationModel:
    route = route_of(parts.routes.entry(name))
    if form.record is not None:
        batch = batch_of(route, form.record)
    else:
        assert form.at is not None
        batch = batch_at(route, form.at)
    # The caller knows the record that the request holds.
    masked = form.record is None and is_masked(principal)
    explanation = explained(route, batch, parts.matchers, asked=form.subscription or None, masked=masked)
    return ExplanationModel(**explanation.as_dict())
