"""``/v1/subscriptions``: subscriptions of the store. Conditions are accepted and returned as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Final, TypeAlias
from urllib.parse import quote

from fastapi import APIRouter, Body, HTTPException, Query, Request, Response
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
from turnout.conditions import decode, encode, format_condition, parse
from turnout.errors import ConditionError, ConfigError, Mistake
from turnout.server.preconditions import Conditions
from turnout.server.rest.dependencies import (
    Matches,
    Reads,
    SubscriptionsDep,
    Writes,
    matches_store,
    parts_of,
    reads_store,
    writes_store,
)
from turnout.server.rest.models import RequestForm, any_of, with_headers
from turnout.server.sandbox import MAX_COMPARED, import_effect
from turnout.server.security import JSON_LINES
from turnout.subscriptions import Subscription
from turnout.subscriptions.import_set import LAST_RECORDS, ImportSet
from turnout.subscriptions.lines import PlainLine, doubts
from turnout.subscriptions.model import ExpiryClock, expiry_time, settings_from_mapping
from turnout.subscriptions.past import Action
from turnout.subscriptions.search import LEAF_KINDS, Edit, Search

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
    cursor: str = Field(
        description='value for the next page; "" on the last page. In a search without an index a page may have fewer'
        " items than the limit, and more may follow"
    )
    total: int | None = Field(description="of all enabled subscriptions; null in a search, which counts no others")


class SubscriptionRouteForm(RequestForm):
    """Destinations of a new subscription, and its condition as JSON."""

    destinations: list[str]
    condition: dict[str, object]


class SubscriptionForm(RequestForm):
    """A new subscription, in one of three forms: with a route, or with destinations and a condition as JSON or text."""

    model_config = ConfigDict(
        json_schema_extra={
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
        destinations = self.destinations or []
        if self.route is not None:
            destinations, condition = self.route.destinations, decode(self.route.condition, "route.condition")
        elif self.condition_text is not None:
            condition = parse(self.condition_text)
        else:
            condition = decode(self.condition)
        return Subscription(destinations, condition, self.metadata, self.id, **_settings(self))


class SubscriptionsForm(RequestForm):
    """New subscriptions, stored as one change."""

    subscriptions: list[SubscriptionForm] = Field(max_length=_MOST_TOGETHER)


class IdsForm(RequestForm):
    """Ids of subscriptions; one that is repeated counts once."""

    ids: list[StrictStr] = Field(max_length=_MOST_TOGETHER, examples=[["desk", "depot"]])


class IdsModel(BaseModel):
    """Ids of new subscriptions, in the order of the request."""

    ids: list[str]


class ChangedModel(BaseModel):
    """Subscription with a new version."""

    id: str
    fields: list[str] = Field(description="what differs: condition, destinations, metadata …")


class EffectModel(BaseModel):
    """Deliveries of a route's last records with an import, against deliveries without it."""

    records: int = Field(description="records that were compared")
    changed: int = Field(description="records with any difference")
    gained: int = Field(description="deliveries with the import alone")
    lost: int = Field(description="deliveries without it alone")
    gainers: dict[str, int] = Field(description="gained deliveries by subscription")
    losers: dict[str, int] = Field(description="lost deliveries by subscription")


class ReplacedModel(BaseModel):
    """Changes of an import, or those that it would make."""

    revision: int = Field(description="of the store, that they led to; the present one if nothing has changed")
    added: list[str]
    changed: list[ChangedModel]
    removed: list[str]
    adopted: list[str] = Field(description="changed ones that no set has owned before")
    unchanged: int = Field(description="number of those that are stored like this already")
    kept: int = Field(description="number of others, which stay")
    effect: EffectModel | None = Field(default=None, description="if a route was named")


class SearchForm(RequestForm):
    """Parts that subscriptions have to have, all of those that are given; see the query of a search."""

    metadata: dict[str, str] = Field(default_factory=dict, max_length=_MOST_PAIRS)
    key: str | None = None
    pattern: str | None = None
    partial: StrictBool = False
    leaf: str | None = Field(default=None, examples=["total>5"])
    kind: str | None = None
    destination: str | None = None
    text: str | None = None
    enabled: StrictBool | None = None


class EditForm(RequestForm):
    """Change of all subscriptions that a search finds."""

    search: SearchForm = Field(examples=[{"metadata": {"owner": "depot"}}])
    everything: StrictBool = Field(default=False, description="accept a search without a part, which finds all")
    enabled: StrictBool | None = Field(default=None, description="true enables, false disables")
    keep: StrictBool = Field(default=False, description="with enabled false: deliver what passes meanwhile later")
    metadata: dict[str, str] = Field(default_factory=dict, max_length=_MOST_PAIRS, description="pairs to set")
    without: list[str] = Field(default_factory=list, max_length=_MOST_PAIRS, description="names to remove")
    dry_run: StrictBool = Field(default=False, description="change nothing")


class EditedModel(BaseModel):
    """Result of an edit."""

    ids: list[str] = Field(description="those that have changed, or would")
    found: int = Field(description="how many the search has found")
    revision: int


class DeletedModel(BaseModel):
    """Number of deleted subscriptions."""

    deleted: int


def _settings(form: SubscriptionForm | SubscriptionChange) -> JsonObject:
    """Return the settings of a form, as far as they are given.

    Raises:
        SubscriptionInvalidError: there are no such settings.
    """
    given = form.model_dump(by_alias=True, exclude_unset=True)
    # For these two, null is as good as nothing; for others it is the default.
    return settings_from_mapping(
        {name: value for name, value in given.items() if value is not None or name not in ("enabled", "project")}
    )


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
        return replace(found, destinations=destinations, metadata=metadata, condition=condition, **_settings(self))


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

    message: dict[str, Annotated[_Scalar | list[_Scalar], any_of("a text, number or boolean, null, or a list")]] = (
        Field(max_length=_MOST_PAIRS, examples=[{"subject": "orders 17", "location": "Oulu"}])
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


router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])

_STORED: dict[int | str, dict[str, object]] = {404: {}, 503: {}}
"""There may be no store, and it may be away."""


@router.get("", summary="All subscriptions, or the results of a search", responses=_STORED)
@reads_store
def search_subscriptions(
    subscriptions: SubscriptionsDep,
    _: Reads,
    metadata: Annotated[
        list[str] | None, Query(description="name=value that a subscription's own metadata has")
    ] = None,
    key: Annotated[str | None, Query(description="that a leaf of the condition reads")] = None,
    pattern: Annotated[str | None, Query(description="with key: of a kiwi leaf, letter by letter")] = None,
    partial: Annotated[bool, Query(description="the leaf with the pattern tests single words")] = False,
    leaf: Annotated[str | None, Query(description="leaf of any kind as text: total>5")] = None,
    kind: Annotated[str | None, Query(description=f"kind of a leaf: {', '.join(LEAF_KINDS)}")] = None,
    destination: Annotated[str | None, Query(description="one of the destinations; * stands for any text")] = None,
    text: Annotated[str | None, Query(description="text in the id, or in a name or value of the metadata")] = None,
    enabled: Annotated[bool | None, Query(description="false for paused ones; both if not given")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: str = "",
) -> SubscriptionPage:
    wanted = Search(
        _pairs(metadata or []),
        key,
        pattern,
        partial,
        leaf=leaf,
        kind=kind,
        destination=destination,
        text=text,
        enabled=enabled,
    )
    total = None if wanted else len(subscriptions.live)
    page = subscriptions.service.search(wanted, limit=limit, cursor=cursor)
    return SubscriptionPage(
        items=[_model(subscription) for subscription in page.items], cursor=page.cursor, total=total
    )


def _pairs(written: list[str]) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in written]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise ConfigError([Mistake("metadata", f"expected name=value, found {name!r}") for name in wrong])
    return {name: value for name, _, value in pairs}


def _model(subscription: Subscription) -> SubscriptionModel:
    subscription = subscription.hidden()
    route = SubscriptionRoute(destinations=list(subscription.destinations), condition=encode(subscription.condition))
    expires = subscription.expires
    return SubscriptionModel(
        id=subscription.id,
        revision=subscription.revision,
        metadata=dict(subscription.metadata),
        route=route,
        destinations=route.destinations,
        condition=route.condition,
        condition_text=format_condition(subscription.condition),
        enabled=subscription.enabled,
        expires=None if expires is None else ExpiryModel(at=expires.at, by=expires.by),
        delivery={} if subscription.delivery is None else subscription.delivery.to_mapping(),
        start="latest" if subscription.start is None else subscription.start.to_plain(),
        pause=PauseModel(keep=subscription.keep),
        project=subscription.project,
    )


@router.post(
    "",
    status_code=201,
    summary="Store a subscription",
    responses={201: with_headers("ETag", "Location", "Warning"), 409: {}, **_STORED},
)
@writes_store
def create_subscription(
    form: SubscriptionForm, subscriptions: SubscriptionsDep, _: Writes, response: Response
) -> SubscriptionModel:
    stored = form.subscription()
    id_ = subscriptions.create(stored)
    _warn([stored], [id_], response)
    response.headers["Location"] = _location(id_)
    return _tagged(subscriptions.service.read(id_), response)


def _warn(stored: Sequence[Subscription | PlainLine], ids: Sequence[str], response: Response) -> None:
    """Add a header for parts of conditions that are another query language's: JSON takes them as texts."""
    if problems := doubts(stored, ids):
        text = "; ".join(problems)[:_LONGEST_WARNING].encode("unicode_escape").decode()
        quoted = text.replace('"', '\\"')
        response.headers["Warning"] = f'299 turnout "{quoted}"'


_LONGEST_WARNING: Final = 1_000
"""Characters of the warning of a request."""


@router.post(
    "/create-many",
    status_code=201,
    summary="Store many subscriptions, or none",
    responses={201: with_headers("Warning"), 409: {}, **_STORED},
)
@writes_store
def create_subscriptions(
    form: SubscriptionsForm, subscriptions: SubscriptionsDep, _: Writes, response: Response
) -> IdsModel:
    new = [one.subscription() for one in form.subscriptions]
    ids = subscriptions.create_many(new)
    _warn(new, ids, response)
    return IdsModel(ids=ids)


@router.post(
    "/import",
    status_code=201,
    summary="Store the subscriptions of JSON lines, or none",
    responses={201: with_headers("Warning"), 409: {}, **_STORED},
)
@writes_store
def import_subscriptions(
    lines: Annotated[bytes, Body(media_type=JSON_LINES, description="as turnout subscriptions export writes them")],
    subscriptions: SubscriptionsDep,
    _: Writes,
    response: Response,
) -> IdsModel:
    new, ids = subscriptions.create_lines(lines)
    _warn(new, ids, response)
    return IdsModel(ids=ids)


@router.post(
    "/replace",
    summary="Bring the subscriptions that an import owns to the content of JSON lines",
    responses={200: with_headers("Warning"), 409: {}, **_STORED},
)
@writes_store
def replace_subscriptions(
    request: Request,
    subscriptions: SubscriptionsDep,
    _: Writes,
    response: Response,
    set: Annotated[str, Query(description="set that owns what is imported")] = "",  # noqa: A002 - as on the command line
    prefix: Annotated[str | None, Query(description="beginning of the ids that the import owns, without a set")] = None,
    prune: Annotated[bool, Query(description="remove what the import owns and the lines do not have")] = False,
    prune_all: Annotated[bool, Query(description="remove all of it, if the lines have none of it")] = False,
    dry_run: Annotated[bool, Query(description="change nothing")] = False,
    route: Annotated[str | None, Query(description="with dry_run: a route, whose last records are matched")] = None,
    last: Annotated[int, Query(ge=1, le=MAX_COMPARED, description="how many of each stream")] = LAST_RECORDS,
    lines: Annotated[
        bytes, Body(media_type=JSON_LINES, description="as turnout subscriptions export writes them; empty for none")
    ] = b"",
) -> ReplacedModel:
    if route is not None and not dry_run:
        raise ConfigError([Mistake("route", "the effect on its records is compared with dry_run")], what="bad request")
    if route is not None and subscriptions.caller.tenant is not None:
        raise HTTPException(403, "route: this token is for the subscriptions of one tenant")
    parts = parts_of(request)
    entry = None if route is None else parts.routes.entry(route)
    before = None if entry is None else subscriptions.service.store.snapshot()
    new, plan = subscriptions.import_set(lines, ImportSet(set, prefix, prune, prune_all), dry_run=dry_run)
    _warn(new, [one.id for one in new], response)
    effect = None
    if entry is not None and before is not None:
        effect = EffectModel(**asdict(import_effect(entry, parts.matchers, last, before, plan.after(before))))
    return ReplacedModel(
        revision=plan.revision,
        added=list(plan.added),
        changed=[ChangedModel(id=id_, fields=list(names)) for id_, names in plan.fields.items()],
        removed=list(plan.removed),
        adopted=list(plan.adopted),
        unchanged=plan.unchanged,
        kept=plan.kept,
        effect=effect,
    )


@router.post("/edit-many", summary="Pause, resume or edit all subscriptions that a search finds", responses=_STORED)
@writes_store
def edit_subscriptions(form: EditForm, subscriptions: SubscriptionsDep, _: Writes) -> EditedModel:
    wanted = Search(**form.search.model_dump())
    edit = Edit(form.enabled, form.keep, form.metadata, tuple(form.without))
    done = subscriptions.edit_all(wanted, edit, dry_run=form.dry_run, everything=form.everything)
    return EditedModel(ids=list(done.ids), found=done.found, revision=done.revision)


@router.post("/delete-many", summary="Delete many subscriptions, or none", responses=_STORED)
@writes_store
def delete_subscriptions(form: IdsForm, subscriptions: SubscriptionsDep, _: Writes) -> DeletedModel:
    return DeletedModel(deleted=subscriptions.delete_many(form.ids))


@router.post("/match", summary="Every subscription that matches a message", responses=_STORED)
@matches_store
def match_message(form: MatchForm, subscriptions: SubscriptionsDep, _: Matches) -> MatchesModel:
    found = subscriptions.live.match(form.message)
    models = [
        MatchModel(
            subscription_id=match.subscription_id,
            destinations=list(match.destinations),
            condition_ids=list(match.leaf_ids),
        )
        for match in sorted(found.matches, key=lambda match: match.subscription_id)
    ]
    return MatchesModel(matches=models, revision=found.revision)


@router.post("/conditions/validate", summary="Parse a condition, and return it in both forms")
def validate_condition(form: ConditionForm, _: Reads) -> ConditionModel:
    try:
        condition = parse(form.condition_text) if form.condition_text is not None else decode(form.condition)
    except ConditionError as failure:
        return ConditionModel(valid=False, problem=str(failure), position=failure.position)
    return ConditionModel(valid=True, condition=encode(condition), condition_text=format_condition(condition))


@router.get("/{id:path}/history", summary="Every change of a subscription, with its author", responses=_STORED)
@reads_store
def read_subscription_history(id: str, subscriptions: SubscriptionsDep, _: Reads) -> HistoryModel:
    return HistoryModel(
        entries=[
            AuditEntryModel(
                revision=entry.revision,
                at=entry.at,
                actor=entry.actor,
                action=entry.action,
                before=None if entry.before is None else _model(entry.before),
                after=None if entry.after is None else _model(entry.after),
            )
            for entry in subscriptions.service.history(id)
        ]
    )


@router.get("/{id:subscription}", summary="One subscription", responses={304: {}, 412: {}, **_STORED})
@reads_store
def read_subscription(id: str, subscriptions: SubscriptionsDep, _: Reads, response: Response) -> SubscriptionModel:
    return _tagged(subscriptions.service.read(id), response)


@router.put(
    "/{id:subscription}",
    summary="Replace a subscription by a new version, or store it",
    responses={
        200: with_headers("Warning"),
        201: {
            "model": SubscriptionModel,
            "description": "It was stored, as there was none",
            **with_headers("Location", "Warning"),
        },
        412: {},
        **_STORED,
    },
)
@writes_store
def put_subscription(
    id: str,
    form: SubscriptionForm,
    subscriptions: SubscriptionsDep,
    _: Writes,
    response: Response,
    conditions: Conditions,
) -> SubscriptionModel:
    stored, created = subscriptions.put(id, form.subscription(), conditions)
    if created:
        response.status_code = 201
        response.headers["Location"] = _location(id)
    return _warned(stored, response)


def _location(id_: str) -> str:
    return f"/v1/subscriptions/{quote(id_, safe='')}"


@router.patch(
    "/{id:subscription}",
    summary="Change parts of a subscription",
    responses={200: with_headers("Warning"), 412: {}, **_STORED},
)
@writes_store
def change_subscription(
    id: str,
    form: SubscriptionChange,
    subscriptions: SubscriptionsDep,
    _: Writes,
    response: Response,
    conditions: Conditions,
) -> SubscriptionModel:
    return _warned(subscriptions.edit(id, form.of, conditions), response)


def _warned(stored: Subscription, response: Response) -> SubscriptionModel:
    _warn([stored], [stored.id], response)
    return _tagged(stored, response)


def _tagged(subscription: Subscription, response: Response) -> SubscriptionModel:
    """Return a subscription in the form of a response, with its revision as the entity tag."""
    response.headers["ETag"] = f'"{subscription.revision}"'
    return _model(subscription)


@router.delete("/{id:subscription}", status_code=204, summary="Delete a subscription", responses={412: {}, **_STORED})
@writes_store
def delete_subscription(id: str, subscriptions: SubscriptionsDep, _: Writes, conditions: Conditions) -> None:
    subscriptions.delete(id, conditions)
