"""Requests and answers of ``/v1/subscriptions``."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from turnout.base.untrusted import JsonObject
from turnout.conditions import Condition, decode, parse
from turnout.server.rest.models import RequestForm, exactly_one
from turnout.subscriptions import Subscription
from turnout.subscriptions.audit import Action
from turnout.subscriptions.expiry import Expiry, ExpiryClock, expiry_time
from turnout.subscriptions.settings import settings_from_mapping

_MOST_PAIRS = 1000
_MOST_TOGETHER = 100_000
"""Subscriptions or ids of one request; its body has a limit of its own."""

_FROM = "earliest, a time or a sequence: the earlier records that it gets; latest for none"


class SubscriptionRoute(BaseModel):
    """Destinations of a subscription and its condition, as the messages of gRPC have them."""

    destinations: list[str]
    condition: dict[str, object]


class ExpiryModel(RequestForm):
    """Time from which on a subscription matches nothing."""

    at: Annotated[datetime, BeforeValidator(expiry_time)] = Field(description="UTC without an offset")
    by: ExpiryClock = Field(default="record", description="the time of records, or the clock when they are matched")

    def expiry(self) -> Expiry:
        """Return the expiry."""
        return Expiry(self.at, self.by)


class PauseModel(RequestForm):
    """Treatment of the records that pass while a subscription is disabled."""

    keep: StrictBool = Field(default=False, description="deliver them when it is enabled again")


class SubscriptionModel(BaseModel):
    """Subscription with its condition as JSON and as text."""

    id: str
    revision: int = Field(description="the store's revision of this version")
    metadata: dict[str, str]
    route: SubscriptionRoute = Field(description="as gRPC, the command line and files of subscriptions have it")
    destinations: list[str] = Field(description="the destinations of the route again")
    condition: dict[str, object] = Field(description="the condition of the route again")
    condition_text: str = Field(description="the same for people")
    enabled: bool = Field(description="false for one that matches nothing for now")
    expires: ExpiryModel | None = Field(description="null for never")
    delivery: dict[str, object] = Field(description="settings of HTTP deliveries that are not defaults")
    start: StrictInt | StrictStr = Field(serialization_alias="from", description=_FROM)
    pause: PauseModel
    project: str = Field(description="CEL that gives the body of its messages; empty for the record's value")


class SubscriptionPage(BaseModel):
    """Some subscriptions, by id."""

    items: list[SubscriptionModel]
    cursor: str = Field(description='value for the next page; "" on the last page')
    total: int | None = Field(description="of all enabled subscriptions; null in a search, which counts no others")


class SubscriptionRouteForm(RequestForm):
    """Destinations of a new subscription, and its condition as JSON."""

    destinations: list[str]
    condition: dict[str, object]


class SubscriptionForm(RequestForm):
    """A new subscription, in one of three forms: with a route, or with destinations and a condition as JSON or text."""

    model_config = ConfigDict(
        json_schema_extra={
            **exactly_one("route", "condition", "condition_text"),
            "examples": [
                {"destinations": ["deliver.oulu"], "condition_text": "location:Oulu AND NOT kind:test"},
                {
                    "route": {
                        "destinations": ["deliver.oulu"],
                        "condition": {"kiwiCondition": {"key": "location", "pattern": "Oulu"}},
                    }
                },
            ],
        }
    )

    id: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)
    route: SubscriptionRouteForm | None = Field(
        default=None, description="as gRPC, the command line and files of subscriptions have it"
    )
    destinations: list[str] | None = Field(default=None, description="not with a route")
    condition: dict[str, object] | None = Field(
        default=None, examples=[{"kiwiCondition": {"key": "subject", "pattern": "orders*"}}]
    )
    condition_text: str | None = Field(default=None, examples=["subject:orders* AND NOT location:Helsinki"])
    enabled: StrictBool = True
    expires: ExpiryModel | None = None
    delivery: dict[str, object] | None = Field(default=None, examples=[{"ordered": True, "timeout": "5s"}])
    start: StrictInt | StrictStr | None = Field(default=None, alias="from", description=_FROM)
    pause: PauseModel | None = None
    project: str = Field(
        default="",
        description="the messages' body, in CEL; empty for the record's value",
        examples=["{'id': value.id}"],
    )

    @model_validator(mode="after")
    def _one(self) -> SubscriptionForm:
        forms = [self.route, self.condition, self.condition_text]
        if sum(form is not None for form in forms) != 1:
            raise ValueError("needs exactly one of route, condition and condition_text")
        if (self.route is None) == (self.destinations is None):
            raise ValueError("needs destinations: in the route if there is one, else beside the condition")
        return self

    def subscription(self) -> Subscription:
        """Return the subscription.

        Raises:
            ConditionError: the condition cannot be read; the message names the place.
        """
        if self.route is not None:
            condition = decode(self.route.condition, "route.condition")
            return self._with_settings(self.route.destinations, condition)
        condition = parse(self.condition_text) if self.condition_text is not None else decode(self.condition)
        return self._with_settings(self.destinations or [], condition)

    def _with_settings(self, destinations: list[str], condition: Condition) -> Subscription:
        return Subscription(destinations, condition, self.metadata, self.id, enabled=self.enabled, **_settings(self))


class SubscriptionsForm(RequestForm):
    """New subscriptions, stored as one change."""

    subscriptions: list[SubscriptionForm] = Field(max_length=_MOST_TOGETHER)


class IdsForm(RequestForm):
    """Ids of subscriptions; one that is repeated counts once."""

    ids: list[StrictStr] = Field(max_length=_MOST_TOGETHER, examples=[["desk", "depot"]])


class IdsModel(BaseModel):
    """Ids of new subscriptions, in the order of the request."""

    ids: list[str]


class DeletedModel(BaseModel):
    """Number of deleted subscriptions."""

    deleted: int


def _settings(form: SubscriptionForm | SubscriptionChange) -> JsonObject:
    """Return the settings of a form, as far as they are given.

    Raises:
        SubscriptionInvalidError: there are no such settings.
    """
    settings: JsonObject = {}
    if "expires" in form.model_fields_set:
        settings["expires"] = None if form.expires is None else form.expires.expiry()
    if "delivery" in form.model_fields_set:
        settings |= {"delivery": None, **settings_from_mapping({"delivery": form.delivery})}
    if "start" in form.model_fields_set:
        settings |= {"start": None, **settings_from_mapping({"from": form.start})}
    if "pause" in form.model_fields_set:
        settings["keep"] = form.pause is not None and form.pause.keep
    if form.project is not None:
        settings["project"] = form.project
    return settings


class SubscriptionChange(RequestForm):
    """Changes of a subscription: given fields replace the old ones; the condition at most once, as JSON or as text."""

    metadata: dict[str, str] | None = None
    destinations: list[str] | None = None
    condition: dict[str, object] | None = None
    condition_text: str | None = Field(default=None, examples=["subject:orders* AND NOT location:Helsinki"])
    enabled: StrictBool | None = None
    expires: ExpiryModel | None = Field(default=None, description="null makes it never end")
    delivery: dict[str, object] | None = Field(default=None, description="null means the defaults")
    start: StrictInt | StrictStr | None = Field(default=None, alias="from", description=_FROM)
    pause: PauseModel | None = None
    project: str | None = Field(default=None, description="an empty text means the record's value")

    @model_validator(mode="after")
    def _at_most_one(self) -> SubscriptionChange:
        if self.condition is not None and self.condition_text is not None:
            raise ValueError("needs at most one of condition and condition_text")
        return self

    def of(self, found: Subscription) -> Subscription:
        """Return the new version of a subscription.

        Raises:
            ConditionError: the condition cannot be read; the message names the place.
        """
        condition = found.condition
        if self.condition_text is not None:
            condition = parse(self.condition_text)
        elif self.condition is not None:
            condition = decode(self.condition)
        destinations = found.destinations if self.destinations is None else self.destinations
        metadata = found.metadata if self.metadata is None else self.metadata
        enabled = found.enabled if self.enabled is None else self.enabled
        return replace(
            found,
            destinations=destinations,
            metadata=metadata,
            condition=condition,
            enabled=enabled,
            **_settings(self),
        )


class AuditEntryModel(BaseModel):
    """One change of a subscription."""

    revision: int = Field(description="of the store, that the change led to")
    at: datetime | None = Field(description="null where it is not known")
    actor: str = Field(description='name that it was made under; "" where it is not known')
    action: Action
    before: SubscriptionModel | None
    after: SubscriptionModel | None


class HistoryModel(BaseModel):
    """Changes of a subscription that the store remembers, oldest first."""

    entries: list[AuditEntryModel]


_Scalar: TypeAlias = StrictStr | StrictBool | StrictInt | StrictFloat | None


class MatchForm(RequestForm):
    """Metadata of a message to match: numbers and booleans as on a route, null as absent, lists as several values."""

    message: dict[str, _Scalar | list[_Scalar]] = Field(
        max_length=_MOST_PAIRS, examples=[{"subject": "orders 17", "location": "Oulu"}]
    )


class MatchModel(BaseModel):
    """Subscription that matches the message."""

    subscription_id: str
    destinations: list[str]
    condition_ids: list[str] = Field(description="the leaves that are true of it")


class MatchesModel(BaseModel):
    """All subscriptions that match a message."""

    matches: list[MatchModel]
    revision: int = Field(description="of the subscriptions that were checked")


class ConditionForm(RequestForm):
    """A condition, once."""

    condition: dict[str, object] | None = None
    condition_text: str | None = None


class ConditionModel(BaseModel):
    """A condition in both forms, or why it is none."""

    valid: bool
    condition: dict[str, object] | None = None
    condition_text: str | None = None
    problem: str | None = None
    position: int | None = Field(default=None, description="position of the mistake, in characters from 0")
