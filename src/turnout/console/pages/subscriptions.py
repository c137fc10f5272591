"""``/subscriptions``: searching, writing, trying and deleting subscriptions, with conditions from parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlencode

import numpy as np
from fastapi import Query, Request
from fastapi.responses import HTMLResponse, JSONResponse
from markupsafe import Markup
from pydantic import field_validator

from turnout.base.clocks import seconds_of_millis
from turnout.base.multivalued import ANY_KEY, leaf_key, readable_texts
from turnout.base.untrusted import is_whole
from turnout.conditions import Condition, Group, Logic, encode, format_condition, keys_of, not_, parse
from turnout.conditions.anchor import Anchor
from turnout.conditions.leaves import LEAVES
from turnout.console.charts import bars, counted, moment, pretty
from turnout.console.pages.route import tabs_of
from turnout.console.render import ShownStore, page, page_router, routes_with_stores, shown_store, store_name
from turnout.engine import Program
from turnout.engine.messages import origins
from turnout.engine.metadata import texts_of
from turnout.errors import ConditionError, ConfigError, HistoryForgottenError, Mistake, SubscriptionNotFoundError
from turnout.history.masking import check_condition
from turnout.routes import Route
from turnout.rpc.caller import Right
from turnout.runtime.cursors import FeedCursor, cursor_among
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.offsets import Offsets
from turnout.server.errors import ConflictError
from turnout.server.rest.dependencies import Parts, PartsDep, Reads, asks_servers, is_masked, reads_store
from turnout.server.rest.models import RequestForm
from turnout.server.sandbox import route_of
from turnout.server.security import Principal
from turnout.subscriptions import Page, Subscription
from turnout.subscriptions.index import Index
from turnout.subscriptions.past import AuditEntry
from turnout.subscriptions.service import SubscriptionService

Join: TypeAlias = Literal["and", "or", "and not", "or not"]

TESTS: Final = {name: choice for spec in LEAVES for name, choice in spec.choices.items()}
"""Title and leaf by name of a test."""


def extended(text: str, join: Join, key: str, test: str, value: str) -> str:
    """Return a condition with one more leaf as text.

    Args:
        text: the condition so far; blank for none.
        join: relation of the leaf to the others.
        key: name of a metadata key, or ``*`` for any value.
        test: one of `TESTS`.
        value: what the test compares with.

    Raises:
        ConditionError: the text or the value cannot be read.

    >>> extended("", "or", "city", "begins", "New York")
    'city:"New York*"'
    >>> extended("a:1 OR b:2", "and not", "total", ">", "5")
    '(a:1 OR b:2) AND NOT total>5'
    """
    leaf = TESTS[test].leaf(key if key == ANY_KEY else leaf_key(key), value)
    word, _, negation = join.partition(" ")
    logic = Logic(word.capitalize())
    leaf = not_(leaf) if negation else leaf
    if not text.strip():
        return format_condition(leaf)
    before = parse(text)
    is_open = isinstance(before, Group) and before.logic == logic and not before.negated
    children = before.children if isinstance(before, Group) and is_open else (before,)
    return format_condition(Group(logic, (*children, leaf)))


def offered_keys(parts: Parts) -> list[str]:
    """Return the keys that routes define for conditions, and those that every record has."""
    versions = [entry.version for entry in parts.routes.entries()]
    documents = [version.route.subscriptions for version in versions if version and version.route.subscriptions]
    names = {name for document in documents for name in document.metadata if "*" not in name}
    return ["topic", "key", *sorted(names - {"topic", "key"})]


_SHOWN_HITS = 10


@dataclass(frozen=True, slots=True)
class Hit:
    """Record that matches the condition: its position, and the metadata that was tested."""

    position: str
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class Trial:
    """Matches of a condition among recent records.

    Attributes:
        records: number of tested records.
        dropped: number of records that were filtered, lost or failed before they were matched.
        matched: number of records that match.
        hits: the last of them.
        times: times of the tested records that have one, in seconds since the epoch.
        matched_times: likewise of those that match.
    """

    records: int
    dropped: int
    matched: int
    hits: tuple[Hit, ...]
    times: Sequence[float] = ()
    matched_times: Sequence[float] = ()


def trial_of(route: Route, condition: Condition, count: int, *, masked: bool = False) -> Trial:
    """Try a condition on the last *count* sequences of each stream or partition of a route, after its transforms.

    Raises:
        ConfigError: with *masked*, the condition tests masked fields.
        ConflictError: the source keeps no history.
        StreamError: a stream is not there.
        ConnectionLostError: the server is away.
    """
    if not route.source.keeps_history:
        raise ConflictError(f"route {route.name} does not read a stream or topics: it has no last records to try")
    if masked:
        check_condition(route, len(route.chain.stages), condition)
    program = Program.of(route)
    index = Index.of([Subscription(["trial"], condition, {}, "trial")])
    keys = sorted(keys_of(condition))
    records = dropped = matched = 0
    hits: list[Hit] = []
    times: list[float] = []
    matched_times: list[float] = []
    for batch in adapter_of(route.source).last_records(count):
        transformed = program.transformed(batch)
        alive = transformed.alive
        columns = program.metadata.columns(transformed, alive, keys)
        rows = index.match(columns, len(alive)).rows.tolist()
        records, dropped, matched = records + len(batch), dropped + len(batch) - len(alive), matched + len(rows)
        # Of the whole batch, whose first and last record bound the picture.
        stored = [
            None if at is None else seconds_of_millis(at)
            for at in transformed.by_row(transformed.timestamps, np.arange(len(batch)))
        ]
        times += [at for at in stored if at is not None]
        matched_times += [at for at in (stored[int(alive[row])] for row in rows) if at is not None]
        record_origins = origins(batch)
        for row in rows[-_SHOWN_HITS:]:
            at = int(alive[row])
            hits.append(Hit(str(record_origins[at]), readable_texts(texts_of(columns, row))))
    return Trial(records, dropped, matched, tuple(reversed(hits[-_SHOWN_HITS:])), times, matched_times)


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
    id: str = "",
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
    id: str = "",
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
def subscription(id: str, request: Request, parts: PartsDep, principal: Reads, of: str = "") -> HTMLResponse:
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
