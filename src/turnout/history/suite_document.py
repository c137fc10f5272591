"""A file of tests as pydantic checks it: names and types."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from turnout.routes.endpoints import Part
from turnout.untrusted import JsonObject

Compared = Literal["value", "headers", "deliveries"]


class SubscriptionPart(Part):
    """A subscription that the tests are matched with.

    Attributes:
        id: id for expectations.
        destinations: destinations of its messages.
        when: its condition, in the text syntax.
        project: expression of CEL that gives the body of its messages.
    """

    id: str = Field(min_length=1)
    destinations: str | list[str]
    when: str
    project: str = ""


class DeliveryPart(Part):
    """A message that is expected: of one subscription, to one destination; a text alone is a destination.

    Attributes:
        subscription: the id of the subscription that it is for.
        destination: its destination, as the subscription names it.
        body: JSON, or text: the record's value, or the result of the subscription's projection.
    """

    subscription: str | None = None
    destination: str | None = None
    body: Any = None

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: Any) -> Any:
        return {"destination": value} if isinstance(value, str) else value


class ExpectPart(Part):
    """Expected outcome of the record; fields that are not given are not compared.

    Attributes:
        outcome: how it ends; ``delivered`` unless a stage or a reason is named, then ``dead_lettered``.
        stage: stage that failed.
        reason: a part of why.
        topic: as transformed and mapped.
        key: as written.
        value: likewise: JSON, or text.
        value_base64: likewise, of bytes that are no text.
        headers: name → text, or a list of texts; null for none of that name.
        deliveries: subscription and destination of messages, in any order; an empty list for none.
        exact: parts without unexpected additions: true for all, or a list of them.
    """

    outcome: (
        Literal["delivered", "filtered", "unmatched", "dead_lettered", "lost_by_weight", "discarded", "stopped"] | None
    ) = None
    stage: str | None = None
    reason: str | None = None
    topic: str | None = None
    key: Any = None
    value: Any = None
    value_base64: str | None = None
    headers: JsonObject | None = None
    deliveries: list[DeliveryPart] | None = None
    exact: list[Compared] = Field(default_factory=list)

    @field_validator("exact", mode="before")
    @classmethod
    def _of_flag(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return ["value", "headers", "deliveries"] if value else []
        return value


class CasePart(Part):
    """Test of a route: a record, and its expected outcome.

    Attributes:
        name: a sentence.
        record: topic, key, value, headers, timestamp, partition, offset.
        expect: expected outcome; ``--update`` writes the actual one if none is given.
        cluster: cluster whose mappings apply, if not the suite's.
        subscriptions: those of this test alone.
    """

    name: str = Field(min_length=1)
    record: JsonObject
    expect: ExpectPart | None = None
    cluster: str | None = None
    subscriptions: list[SubscriptionPart] | None = None


class SuiteDocument(Part):
    """Tests of a route: the ``tests`` in its file, or the file next to it.

    Attributes:
        cluster: cluster whose mappings apply; the route's if not given.
        subscriptions: subscriptions of all tests.
        cases: the tests.
    """

    cluster: str | None = None
    subscriptions: list[SubscriptionPart] | None = None
    cases: list[CasePart]
