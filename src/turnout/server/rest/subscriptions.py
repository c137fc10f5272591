"""``/v1/subscriptions``: subscriptions of the store. Conditions are accepted and returned as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Body, Query, Response

from turnout.conditions import decode, encode, format_condition, parse
from turnout.errors import ConditionError, ConfigError, Mistake
from turnout.server.preconditions import Conditions
from turnout.server.rest.dependencies import Matches, Reads, SubscriptionsDep, Writes
from turnout.server.rest.store_calls import matches_store, reads_store, writes_store
from turnout.server.rest.subscription_forms import (
    AuditEntryModel,
    ConditionForm,
    ConditionModel,
    DeletedModel,
    ExpiryModel,
    HistoryModel,
    IdsForm,
    IdsModel,
    MatchesModel,
    MatchForm,
    MatchModel,
    PauseModel,
    SubscriptionChange,
    SubscriptionForm,
    SubscriptionModel,
    SubscriptionPage,
    SubscriptionRoute,
    SubscriptionsForm,
)
from turnout.server.security import JSON_LINES
from turnout.subscriptions import Subscription
from turnout.subscriptions.lines import doubts
from turnout.subscriptions.plain_lines import PlainLine

router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])

_STORED: dict[int | str, dict[str, object]] = {404: {}, 503: {}}
"""There may be no store, and it may be away."""


@router.get("", summary="All subscriptions, or the results of a search", responses=_STORED)
@reads_store
def search(
    subscriptions: SubscriptionsDep,
    _: Reads,
    metadata: Annotated[
        list[str] | None, Query(description="name=value that a subscription's own metadata has")
    ] = None,
    key: Annotated[str | None, Query(description="with pattern: of a leaf of the condition")] = None,
    pattern: Annotated[str | None, Query(description="the leaf's pattern, letter by letter")] = None,
    partial: Annotated[bool, Query(description="the leaf tests single words")] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: str = "",
) -> SubscriptionPage:
    service = subscriptions.service
    if (key is None) != (pattern is None) or (key is not None and metadata):
        raise ConfigError([Mistake("key", "search by key and pattern, or by metadata")], what="bad search")
    if key is not None and pattern is not None:
        matches = service.search_by_condition(key, pattern, partial, limit=limit, cursor=cursor)
        items = [_model(match.subscription) for match in matches.items]
        return SubscriptionPage(items=items, cursor=matches.cursor, total=None)
    total = None if metadata else len(subscriptions.live)
    page = service.search_by_metadata(_pairs(metadata or []), limit=limit, cursor=cursor)
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


@router.post("", status_code=201, summary="Store a subscription", responses={409: {}, **_STORED})
@writes_store
def create(form: SubscriptionForm, subscriptions: SubscriptionsDep, _: Writes, response: Response) -> SubscriptionModel:
    stored = form.subscription()
    id_ = subscriptions.create(stored)
    _warn([stored], [id_], response)
    response.headers["Location"] = f"/v1/subscriptions/{quote(id_, safe='')}"
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
    "/create-many", status_code=201, summary="Store many subscriptions, or none", responses={409: {}, **_STORED}
)
@writes_store
def create_many(form: SubscriptionsForm, subscriptions: SubscriptionsDep, _: Writes, response: Response) -> IdsModel:
    new = [one.subscription() for one in form.subscriptions]
    ids = subscriptions.create_many(new)
    _warn(new, ids, response)
    return IdsModel(ids=ids)


@router.post(
    "/import", status_code=201, summary="Store the subscriptions of JSON lines, or none", responses={409: {}, **_STORED}
)
@writes_store
def import_lines(
    lines: Annotated[bytes, Body(media_type=JSON_LINES, description="as turnout subscriptions export writes them")],
    subscriptions: SubscriptionsDep,
    _: Writes,
    response: Response,
) -> IdsModel:
    new, ids = subscriptions.create_lines(lines)
    _warn(new, ids, response)
    return IdsModel(ids=ids)


@router.post("/delete-many", summary="Delete many subscriptions, or none", responses=_STORED)
@writes_store
def delete_many(form: IdsForm, subscriptions: SubscriptionsDep, _: Writes) -> DeletedModel:
    return DeletedModel(deleted=subscriptions.delete_many(form.ids))


@router.post("/match", summary="Every subscription that matches a message", responses=_STORED)
@matches_store
def match(form: MatchForm, subscriptions: SubscriptionsDep, _: Matches) -> MatchesModel:
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
def validate(form: ConditionForm, _: Reads) -> ConditionModel:
    try:
        condition = parse(form.condition_text) if form.condition_text is not None else decode(form.condition)
    except ConditionError as failure:
        return ConditionModel(valid=False, problem=str(failure), position=failure.position)
    return ConditionModel(valid=True, condition=encode(condition), condition_text=format_condition(condition))


@router.get("/{id:path}/history", summary="Every change of a subscription, with its author", responses=_STORED)
@reads_store
def history(id: str, subscriptions: SubscriptionsDep, _: Reads) -> HistoryModel:  # noqa: A002 - the field's own name
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
def read(id: str, subscriptions: SubscriptionsDep, _: Reads, response: Response) -> SubscriptionModel:  # noqa: A002 - the field's own name
    return _tagged(subscriptions.service.read(id), response)


@router.put("/{id:subscription}", summary="Replace a subscription by a new version", responses={412: {}, **_STORED})
@writes_store
def replace_version(
    id: str,  # noqa: A002 - the field's own name
    form: SubscriptionForm,
    subscriptions: SubscriptionsDep,
    _: Writes,
    response: Response,
    conditions: Conditions,
) -> SubscriptionModel:
    new = form.subscription()
    return _warned(subscriptions.edit(id, lambda _: new, conditions), response)


@router.patch("/{id:subscription}", summary="Change parts of a subscription", responses={412: {}, **_STORED})
@writes_store
def change(
    id: str,  # noqa: A002 - the field's own name
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
def delete(id: str, subscriptions: SubscriptionsDep, _: Writes, conditions: Conditions) -> None:  # noqa: A002 - the field's own name
    subscriptions.delete(id, conditions)
