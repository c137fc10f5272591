"""``/subscriptions``: searching, writing, trying and deleting subscriptions."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, JSONResponse
from markupsafe import Markup
from pydantic import field_validator

from turnout.base.untrusted import is_whole
from turnout.conditions import Condition, encode, format_condition, parse
from turnout.conditions.anchor import Anchor
from turnout.console.conditions import TESTS, Join, Trial, extended, offered_keys, trial_of
from turnout.console.figures import bars, counted, moment, pretty
from turnout.console.pages.route import tabs_of
from turnout.console.render import page, page_router
from turnout.console.shown_store import ShownStore, routes_with_stores, shown_store, store_name
from turnout.errors import ConditionError, ConfigError, HistoryForgottenError, Mistake, SubscriptionNotFoundError
from turnout.rpc.caller import Right
from turnout.runtime.cursors import FeedCursor, cursor_among
from turnout.runtime.offsets import Offsets
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, asks_servers, is_masked, reads_store
from turnout.server.rest.models import RequestForm
from turnout.server.sandbox import route_of
from turnout.server.security import Principal
from turnout.subscriptions import Page, Subscription
from turnout.subscriptions.past import AuditEntry
from turnout.subscriptions.service import SubscriptionService

router = page_router()

_ON_PAGE = 50
_MOST_RECORDS = 100_000
_HOTTEST = 20
_CHANGES = 50
_FEED_REACH = 1000
"""Sequences before a route's position, or offsets of each partition, at which its feeds are shown from."""
_KINDS = {
    "=": "is {}",
    "^": "begins with {}",
    "$": "ends with {}",
    "~": "has {} in it",
    "has": "is there",
    "cell": "is in the range {}",
    "span": "is in the range {}",
}


class TrialForm(RequestForm):
    """A condition, and the records to try it on."""

    condition_text: str
    route: str
    count: Annotated[int, Query(ge=1, le=_MOST_RECORDS)] = 10_000


class PartForm(RequestForm):
    """A condition, and one more test that joins it."""

    text: str
    join: Join
    key: str
    test: str
    value: str

    @field_validator("test")
    @classmethod
    def _known(cls, test: str) -> str:
        if test not in TESTS:
            raise ValueError(f"expected one of {', '.join(TESTS)}")
        return test


class IndexForm(RequestForm):
    """The store whose index is looked into."""

    of: str = ""


@router.get("/subscriptions")
@reads_store
def subscriptions(
    request: Request,
    parts: PartsDep,
    principal: Reads,
    of: str = "",
    metadata: str = "",
    key: str = "",
    pattern: str = "",
    partial: bool = False,
    id: str = "",  # noqa: A002 - the field's own name
    cursor: str = "",
) -> HTMLResponse:
    query = {"metadata": metadata, "key": key, "pattern": pattern, "id": id, "partial": "true" if partial else ""}
    return page(request, "subscriptions.html", _list(parts, shown_store(parts, principal, of), query, cursor))


@router.get("/routes/{name}/subscriptions")
@reads_store
def of_route(
    name: str,
    request: Request,
    parts: PartsDep,
    principal: Reads,
    metadata: str = "",
    key: str = "",
    pattern: str = "",
    partial: bool = False,
    id: str = "",  # noqa: A002 - the field's own name
    cursor: str = "",
) -> HTMLResponse:
    """Render the subscriptions of a route's store as a tab of its page."""
    query = {"metadata": metadata, "key": key, "pattern": pattern, "id": id, "partial": "true" if partial else ""}
    entry = parts.routes.entry(name)
    store = shown_store(parts, principal, store_name(parts, route_of(entry)))
    found = _list(parts, store, query, cursor)
    return page(request, "subscriptions.html", found, tabs_of(entry, "subscriptions"))


def _list(parts: Parts, store: ShownStore, query: dict[str, str], cursor: str) -> dict[str, object]:
    """Return the context of a page of the list."""
    result = _search(store.service, query, cursor)
    filters = {name: value for name, value in {"of": store.of, **query}.items() if value}
    return {
        "query": query,
        "rows": [(subscription, format_condition(subscription.condition)) for subscription in result.items],
        "total": len(store.live),
        "cursor": cursor,
        "first": urlencode(filters),
        "next": urlencode({**filters, "cursor": result.cursor}) if result.cursor else "",
        "of": store.of,
        "stores": [*([""] if parts.subscriptions else []), *routes_with_stores(parts)],
        "keys": offered_keys(parts),
    }


@router.get("/new-subscription")
@reads_store
def new_subscription(request: Request, parts: PartsDep, principal: Reads, of: str = "") -> HTMLResponse:
    """Render the form of a new subscription; for callers who may not write, and stores of routes, of its trial."""
    store = shown_store(parts, principal, of)
    return page(request, "new_subscription.html", _form(parts, principal, store))


def _form(parts: Parts, principal: Principal, store: ShownStore) -> dict[str, object]:
    """Return the context of ``_subscription_form.html``."""
    return {
        "of": store.of,
        "changes": Right.WRITE in principal.caller.rights and not store.of,
        "names": _matching_routes(parts, store.of),
        "keys": offered_keys(parts),
        "tests": TESTS,
    }


@router.get("/subscriptions/{id:id}")
@reads_store
def subscription(
    id: str,  # noqa: A002 - the field's own name
    request: Request,
    parts: PartsDep,
    principal: Reads,
    of: str = "",
) -> HTMLResponse:
    store = shown_store(parts, principal, of)
    subscription = store.service.read(id).hidden()
    return page(
        request,
        "subscription.html",
        _form(parts, principal, store),
        subscription=subscription,
        text=format_condition(subscription.condition),
        condition=pretty(encode(subscription.condition)),
        delivery=None if subscription.delivery is None else pretty(subscription.delivery.to_mapping()),
        history=_history(store.service, id),
        feeds=_feeds(parts),
    )


def _feeds(parts: Parts) -> list[tuple[str, FeedCursor]]:
    """Return the routes that store feeds, each with a cursor shortly before its position."""
    having = [
        entry.name
        for entry in parts.routes.entries()
        if entry.version and (part := entry.version.route.subscriptions) and part.feeds
    ]
    return [(name, _shortly_before(parts.routes.offsets(name))) for name in having]


def _shortly_before(offsets: Offsets) -> FeedCursor:
    """Return a cursor before the next positions of streams, or of topics by partition."""
    begins = {stream: at - _FEED_REACH for stream, at in offsets.by_stream.items() if is_whole(at)}
    only = next(iter(offsets.next)) if len(offsets.next) == 1 else None
    return cursor_among({stream: at for stream, at in begins.items() if at >= 0}, only)


def _history(service: SubscriptionService, id_: str) -> list[tuple[AuditEntry, str]]:
    """Return the last changes of a subscription with its condition after each, newest first; none without a history."""
    try:
        entries = service.history(id_)
    except HistoryForgottenError:
        return []
    latest = entries[: -_CHANGES - 1 : -1]
    return [
        (entry, format_condition(version.condition))
        for entry in latest
        if (version := entry.after or entry.before) is not None
    ]


@router.post("/fragments/index")
@reads_store
def index(form: IndexForm, request: Request, parts: PartsDep, principal: Reads) -> HTMLResponse:
    """Render the statistics of the index; it walks all of it, on request only."""
    store = shown_store(parts, principal, form.of)
    stats = store.live.stats(_HOTTEST)
    hottest = [(anchor.key, _by(anchor), count) for anchor, count in stats.hottest]
    return page(request, "_index.html", stats=stats, hottest=hottest, of=store.of)


@router.get("/fragments/condition")
def condition(request: Request, _: Reads, condition_text: str = "") -> HTMLResponse:
    """Render the meaning of a condition, or its mistake and offset, while it is typed."""
    if not condition_text.strip():
        return page(request, "_condition.html", text="", condition=None, failure=None)
    try:
        read = parse(condition_text)
    except ConditionError as failure:
        return page(request, "_condition.html", text=condition_text, condition=None, failure=_placed(failure))
    text, as_json = format_condition(read), pretty(encode(read))
    return page(request, "_condition.html", text=text, condition=as_json, failure=None)


@router.post("/fragments/condition/extended")
def extended_condition(form: PartForm, _: Reads) -> JSONResponse:
    """Return a condition with one more test as text, for its field."""
    try:
        return JSONResponse({"text": extended(form.text, form.join, form.key, form.test, form.value)})
    except ConditionError as failure:
        raise ConfigError([Mistake("", str(failure))], what="bad condition") from failure


@router.post("/fragments/trial")
@asks_servers
def trial(form: TrialForm, request: Request, parts: PartsDep, principal: Reads) -> HTMLResponse:
    """Count the matches of a condition among the last records of a route's source."""
    entry = parts.routes.entry(form.route)
    result = trial_of(route_of(entry), _read(form.condition_text), form.count, masked=is_masked(principal))
    return page(request, "_trial.html", trial=result, route=entry.name, over_time=_over_time(result))


def _over_time(trial: Trial) -> tuple[float, float, Markup] | None:
    """Return the matches over the time of the tested records, with its bounds; None if they have no times."""
    if not trial.times:
        return None
    begin, end = min(trial.times), max(trial.times)
    counts = counted(trial.matched_times, begin, end)
    return begin, end, bars(counts, max(counts), f"matches between {moment(begin)} and {moment(end)}")


def _by(anchor: Anchor) -> str:
    """Describe an anchor in words."""
    is_part = anchor.kind.op == "part"
    op, text = (anchor.text[0], anchor.text[1:]) if is_part else (anchor.kind.op, anchor.text)
    text = _KINDS.get(op, f"{anchor.kind} {{}}").format(text)
    return f"a word {text}" if anchor.kind.lexeme else text


def _read(text: str) -> Condition:
    try:
        return parse(text)
    except ConditionError as failure:
        raise ConfigError([Mistake("condition", str(failure))], what="bad condition") from failure


def _placed(failure: ConditionError) -> dict[str, object]:
    """Return the problem, its line, and a caret below the column of the mistake."""
    position = min(max(0, failure.position or 0), len(failure.text))
    begun = failure.text.rfind("\n", 0, position) + 1
    line = failure.text[begun:].partition("\n")[0]
    return {"problem": str(failure), "line": line, "caret": " " * (position - begun) + "^"}


def _search(service: SubscriptionService, query: dict[str, str], cursor: str) -> Page[Subscription]:
    if query["id"]:
        try:
            return Page((service.read(query["id"].strip()),))
        except SubscriptionNotFoundError:
            return Page(())
    if query["key"]:
        matches = service.search_by_condition(
            query["key"], query["pattern"], bool(query["partial"]), limit=_ON_PAGE, cursor=cursor
        )
        return Page(tuple(match.subscription for match in matches.items), matches.cursor)
    pairs = {}
    for pair in filter(None, map(str.strip, query["metadata"].split(","))):
        name, sign, value = pair.partition("=")
        if not sign:
            raise ConfigError([Mistake("metadata", f"expected name=value, found {pair!r}")], what="bad search")
        pairs[name] = value
    return service.search_by_metadata(pairs, limit=_ON_PAGE, cursor=cursor)


def _matching_routes(parts: Parts, of: str) -> list[str]:
    """Return the routes with records to try a condition on: that of the store, others with subscriptions, the rest."""
    routes = [entry.version.route for entry in parts.routes.entries() if entry.version is not None]
    readable = [route for route in routes if route.source.keeps_history]
    return [
        route.name
        for route in sorted(readable, key=lambda route: (route.name != of, route.subscriptions is None, route.name))
    ]
