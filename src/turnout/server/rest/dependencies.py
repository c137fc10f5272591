"""FastAPI dependencies: the server's parts, and the caller."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Annotated, Final, ParamSpec, TypeVar

from fastapi import Depends, HTTPException, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import HTTPConnection

from turnout.base.terminal import did_you_mean
from turnout.base.untrusted import RepeatedKeyError, unique_object
from turnout.errors import (
    StoreUnavailableError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.rpc.caller import Caller, Right, Tenants
from turnout.rpc.status import RefusedError
from turnout.server.deliveries import WebhookDeliveries
from turnout.server.election import Elector
from turnout.server.errors import NoStoreError
from turnout.server.feeds import Feeds
from turnout.server.health import Health, LossMonitor, Survey
from turnout.server.inputs import Intake
from turnout.server.metrics import Metrics
from turnout.server.preconditions import UNCONDITIONAL, Preconditions
from turnout.server.routes.events import Events
from turnout.server.routes.routes import Routes
from turnout.server.routes.state import State
from turnout.server.sandbox import Matchers
from turnout.server.security import Principal
from turnout.subscriptions import Subscription
from turnout.subscriptions.import_set import ImportPlan, ImportSet, import_set
from turnout.subscriptions.lines import PlainLine, read_lines, whole_subscription
from turnout.subscriptions.matcher import LiveMatcher
from turnout.subscriptions.past import acting_as
from turnout.subscriptions.search import Edit, Edited, Search, edit_all
from turnout.subscriptions.service import SubscriptionService
from turnout.subscriptions.store import BoundedPool, ChangeSet, StoreThreads, edit

_ATTEMPTS = 5
"""Attempts of a PUT while others create and delete the same subscription."""


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Subscriptions service as gRPC offers it, limited to the caller's rights: the use cases, and the index.

    Attributes:
        threads: on which it is used, as it waits for the store.
    """

    service: SubscriptionService
    principal: Principal
    threads: StoreThreads
    _tenants: Tenants

    @property
    def caller(self) -> Caller:
        """Tenant and rights of the caller."""
        return self.principal.caller

    @property
    def live(self) -> LiveMatcher:
        """Index of the caller's subscriptions; for a tenant without one, the first access builds it."""
        return self._tenants.live(self.caller)

    def create(self, subscription: Subscription) -> str:
        """Store a subscription; its id.

        Raises:
            HTTPException: the caller may not name its destinations.
        """
        self._check(subscription)
        with self._changing():
            return self.service.create(subscription)

    def edit(self, id_: str, change: Callable[[Subscription], Subscription], conditions: Preconditions) -> Subscription:
        """Update a subscription by a function of its present version, and return the new one.

        Raises:
            HTTPException: the caller may not name its destinations.
            StaleError: a condition is false of the version that would be changed.
        """

        def checked(found: Subscription) -> Subscription:
            conditions.check(f"{found.revision}")
            version = change(found)
            self._check(version)
            return version

        with self._changing():
            edit(self.service, id_, checked)
        return self.service.read(id_)

    def delete(self, id_: str, conditions: Preconditions) -> None:
        """Forget a subscription.

        Raises:
            StaleError: a condition is false of the version that would be deleted.
        """
        with self._changing():
            if conditions == UNCONDITIONAL:
                self.service.delete(id_)
                return
            found = self.service.read(id_)
            conditions.check(f"{found.revision}")
            self.service.delete(id_, found.revision)

    def create_many(self, subscriptions: Sequence[Subscription]) -> list[str]:
        """Store all subscriptions or none; their ids.

        Raises:
            HTTPException: the caller may not name one of their destinations.
        """
        self._check(*subscriptions)
        with self._changing():
            return self.service.create_many(subscriptions)

    def create_lines(self, lines: bytes) -> tuple[list[Subscription | PlainLine], list[str]]:
        """Store the subscriptions of JSON lines, all or none; return them with their ids.

        Raises:
            SubscriptionInvalidError: a line breaks a rule; the message has its number.
            HTTPException: the caller may not name one of their destinations.
        """
        new = self.service.read_lines(lines.splitlines())
        self._check(*new)
        with self._changing():
            return new, self.service.create_read(new)

    def put(self, id_: str, version: Subscription, conditions: Preconditions) -> tuple[Subscription, bool]:
        """Replace a subscription by a new version, or store it if there is none; True for the latter.

        Raises:
            HTTPException: the caller may not name its destinations.
            StaleError: a condition is false of what is there.
            SubscriptionInvalidError: the version has another id.
        """
        if version.id not in ("", id_):
            raise SubscriptionInvalidError(f"id: expected {id_!r}, as in the path, found {version.id!r:.80}")
        for _ in range(_ATTEMPTS):
            try:
                return self.edit(id_, lambda _: version, conditions), False
            except SubscriptionNotFoundError:
                conditions.check(None)
            try:
                self.create(replace(version, id=id_))
            except SubscriptionExistsError:
                # Another caller has stored it since: its version is what the conditions are about now.
                continue
            return self.service.read(id_), True
        raise StoreUnavailableError(f"{id_!r} is created and deleted by others all the time: try again later")

    def import_set(self, lines: bytes, owned: ImportSet, *, dry_run: bool) -> tuple[list[Subscription], ImportPlan]:
        """Bring an import's subscriptions to the content of JSON lines; return the content and what has changed.

        Raises:
            SubscriptionInvalidError: a line breaks a rule, or the import does; see `turnout.subscriptions.import_set`.
            HTTPException: the caller may not name one of their destinations.
        """
        new = list(map(whole_subscription, read_lines(lines.splitlines(), plain=False)))
        self._check(*new)
        with self._changing():
            return new, import_set(self.service.store, new, owned, dry_run=dry_run, by=self._apply)

    def edit_all(self, search: Search, edit_: Edit, *, dry_run: bool, everything: bool) -> Edited:
        """Edit all subscriptions that a search finds, as one change."""
        with self._changing():
            return edit_all(self.service.store, search, edit_, dry_run=dry_run, everything=everything, by=self._apply)

    def _apply(self, changes: ChangeSet) -> int:
        return self.service.apply(changes, planned=True)

    def delete_many(self, ids: Sequence[str]) -> int:
        """Forget all subscriptions or none; their number."""
        with self._changing():
            return self.service.delete_many(ids)

    def _check(self, *subscriptions: Subscription | PlainLine) -> None:
        try:
            self.caller.check_destinations(subscriptions)
        except RefusedError as refused:
            raise HTTPException(403, refused.details) from None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Record changes under the caller's name, and report them to the indexes."""
        with acting_as(self.principal.name), self._tenants.changing():
            yield


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a server that requests are about.

    Attributes:
        subscriptions: by tenant; None where the server has no store.
        matchers: matchers of the stores that routes match with.
        threads: for calls that wait for a store.
        scrapes: for metrics, which others' work is not to delay.
        feeds: readers of the feeds that routes store.
        intake: accepts posts to the server's inputs; None if it has none.
        webhooks: dispatchers of the routes with webhooks.
        elector: election of the leader; None where no other server can lead.
    """

    routes: Routes
    state: State
    events: Events
    survey: Survey
    metrics: Metrics
    health: Health
    losses: LossMonitor
    subscriptions: Tenants | None = None
    matchers: Matchers = field(default_factory=Matchers)
    threads: StoreThreads = field(default_factory=StoreThreads)
    scrapes: BoundedPool = field(default_factory=lambda: BoundedPool("metrics", 2, waiting=16))
    feeds: Feeds = field(default_factory=Feeds)
    intake: Intake | None = None
    webhooks: WebhookDeliveries = field(default_factory=lambda: WebhookDeliveries(dict))
    elector: Elector | None = None


def parts_of(request: Request) -> Parts:
    """Return the parts of the server that got the request."""
    parts: Parts = request.app.state.parts
    return parts


# These are coroutines although they wait for nothing: functions would wait for one of the threads that all share.
async def _whole(request: Request) -> Parts:
    """Return the parts of the server; respond with 403 to a token of one tenant."""
    principal: Principal = request.state.principal
    if principal.caller.tenant is not None:
        raise HTTPException(403, "this token is for the subscriptions of one tenant")
    return parts_of(request)


def is_masked(principal: Principal) -> bool:
    """Return True if masked fields are hidden from the caller."""
    return Right.UNMASKED not in principal.caller.rights


async def known_parameters(connection: HTTPConnection) -> None:
    """Refuse a query with a parameter that the operation does not have, or with two values of one that takes one.

    Raises:
        HTTPException: 400; a search without its condition, say, would have other results without a word.
    """
    route = connection.scope.get("route")
    if not connection.query_params or not isinstance(route, APIRoute | APIWebSocketRoute):
        return
    several = _query_parameters(route)
    for name, _ in connection.query_params.multi_items():
        if name not in several:
            names = ", ".join(sorted(several)) or "none"
            hint = did_you_mean(name, several)
            raise HTTPException(400, f"{name:.60}: no parameter of this path has this name{hint} (there are: {names})")
        if not several[name] and len(connection.query_params.getlist(name)) > 1:
            raise HTTPException(400, f"{name}: occurs twice in the query, and takes one value")


async def _check_body(request: Request) -> None:
    """Refuse a body of another content type, and JSON with a key that occurs twice: one value would count in silence.

    Raises:
        HTTPException: 415, with the expected type; 400, with the key.
    """
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or route.body_field is None:
        return
    body = await request.body()
    if not body:
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    expected = getattr(route.body_field.field_info, "media_type", _JSON)
    if kind != expected and not (expected == _JSON and kind.endswith("+json")):
        raise HTTPException(415, f"Content-Type: expected {expected}, found {kind or 'none':.80}")
    if expected != _JSON:
        return
    if len(body) < _LONG_BODY:
        _check_keys(body)
    else:
        await asyncio.to_thread(_check_keys, body)


_JSON: Final = "application/json"
_LONG_BODY: Final = 64 << 10
"""Bytes of a body that takes long enough to read that others would wait for it."""


def _check_keys(body: bytes) -> None:
    try:
        json.loads(body, object_pairs_hook=unique_object)
    except RepeatedKeyError as problem:
        raise HTTPException(400, f"the body: {problem}, of which one value would count") from None
    except (ValueError, RecursionError):
        # What is no JSON is refused, with the position, by what reads the body.
        return


def _query_parameters(route: APIRoute | APIWebSocketRoute) -> dict[str, bool]:
    """Return the query parameters of an operation, and whether each may have several values."""
    found = [parameter for parameter in get_flat_params(route.dependant) if isinstance(parameter.field_info, Query)]
    return {parameter.alias: "list[" in str(parameter.field_info.annotation) for parameter in found}


async def _subscriptions_of(request: Request) -> Subscriptions:
    parts = parts_of(request)
    tenants = parts.subscriptions
    if tenants is None:
        raise NoStoreError
    principal = request.state.principal
    return Subscriptions(tenants.service(principal.caller), principal, parts.threads, tenants)


def _with(right: Right) -> Callable[[Request], Awaitable[Principal]]:
    async def principal_of(request: Request) -> Principal:
        principal: Principal = request.state.principal
        if right not in principal.caller.rights:
            raise HTTPException(403, f"this token does not give the right to {right}")
        # Who asks comes before what is sent.
        await _check_body(request)
        return principal

    return principal_of


PartsDep = Annotated[Parts, Depends(_whole)]
SubscriptionsDep = Annotated[Subscriptions, Depends(_subscriptions_of)]
Reads = Annotated[Principal, Depends(_with(Right.READ))]
Writes = Annotated[Principal, Depends(_with(Right.WRITE))]
Matches = Annotated[Principal, Depends(_with(Right.MATCH))]


P = ParamSpec("P")
T = TypeVar("T")


async def in_pool(pool: BoundedPool, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run *work* on a thread of the pool, and return its result.

    Raises:
        StoreUnavailableError: too many calls wait already.
    """
    pool.check()
    result: T = await asyncio.wrap_future(pool.submit(partial(work, *args, **named)))
    return result


def reads_store(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that reads the store."""
    return _on_pool(endpoint, lambda threads: threads.reads)


def writes_store(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that changes the store."""
    return _on_pool(endpoint, lambda threads: threads.writes)


def matches_store(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that matches with an index of a store."""
    return _on_pool(endpoint, lambda threads: threads.matches)


def asks_servers(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that queries the servers of a route."""
    return _on_pool(endpoint, lambda threads: threads.servers)


def redrives(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that redrives dead letters."""
    return _on_pool(endpoint, lambda threads: threads.redrives)


def _on_pool(endpoint: Callable[..., T], pool_of: Callable[[StoreThreads], BoundedPool]) -> Callable[..., Awaitable[T]]:
    @wraps(endpoint)
    async def answered(**arguments: object) -> T:
        threads = next(part.threads for part in arguments.values() if isinstance(part, Parts | Subscriptions))
        return await in_pool(pool_of(threads), partial(endpoint, **arguments))

    # The framework reads the parameters' types, which the endpoint's module knows.
    answered.__signature__ = inspect.signature(endpoint, eval_str=True)  # type: ignore[attr-defined]
    return answered
