"""What the answers are made from, and who asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, HTTPException, Request

from turnout.server.errors import NoStoreError
from turnout.server.events import Events
from turnout.server.health import Health
from turnout.server.matchers import Matchers
from turnout.server.metrics import Metrics
from turnout.server.routes import Routes
from turnout.server.security import Principal, Right
from turnout.server.state import State
from turnout.server.survey import Survey
from turnout.subscriptions.live import LiveMatcher
from turnout.subscriptions.service import KiwiTrees, SubscriptionService

__all__ = ["Matches", "Parts", "Reads", "Subscriptions", "TheParts", "TheSubscriptions", "Writes", "parts_of"]


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """The subscriptions service, as gRPC offers it: the use cases, and the index."""

    service: SubscriptionService
    live: LiveMatcher
    kiwi_trees: KiwiTrees | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a server that requests are about.

    Attributes:
        subscriptions: None where the server has no store.
        matchers: of the stores that routes match with.
    """

    routes: Routes
    state: State
    events: Events
    survey: Survey
    metrics: Metrics
    health: Health
    subscriptions: Subscriptions | None = None
    matchers: Matchers = field(default_factory=Matchers)


def parts_of(request: Request) -> Parts:
    """The parts of the server that got the request."""
    parts: Parts = request.app.state.parts
    return parts


def _subscriptions_of(request: Request) -> Subscriptions:
    subscriptions = parts_of(request).subscriptions
    if subscriptions is None:
        raise NoStoreError
    return subscriptions


def _with(right: Right) -> Callable[[Request], Principal]:
    def principal_of(request: Request) -> Principal:
        principal: Principal = request.state.principal
        if right not in principal.rights:
            raise HTTPException(403, f"this token does not give the right to {right}")
        return principal

    return principal_of


TheParts = Annotated[Parts, Depends(parts_of)]
TheSubscriptions = Annotated[Subscriptions, Depends(_subscriptions_of)]
Reads = Annotated[Principal, Depends(_with(Right.READ))]
Writes = Annotated[Principal, Depends(_with(Right.WRITE))]
Matches = Annotated[Principal, Depends(_with(Right.MATCH))]
