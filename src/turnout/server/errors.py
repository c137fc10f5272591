"""Errors of requests to the server.

::

    ServerError(TurnoutError)
    ├── RouteNotFoundError(LookupError)   .name       no route has that name
    ├── ConflictError                                 the request does not fit the state that the route is in
    │   └── UnsafeChangeError             .changes    a change needs a new checkpoint and is not confirmed
    ├── StaleError                                    the route was changed concurrently
    ├── NoStoreError                                  the server was started without a store of subscriptions
    ├── TooManyFollowersError                         too many feeds are followed
    └── UnknownPluginError(LookupError)               Kafka Connect's interface knows no such plugin
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from turnout.base.terminal import did_you_mean
from turnout.errors import TurnoutError

if TYPE_CHECKING:
    from turnout.runtime.endpoints.changes import Change


class ServerError(TurnoutError):
    """Raised when the server refuses a request."""


class RouteNotFoundError(ServerError, LookupError):
    """Raised when no route has the requested name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"no route is named {name!r}{did_you_mean(name, known)}")
        self.name = name


class ConflictError(ServerError):
    """Raised when a request does not fit the state that a route is in; nothing has been done."""


class UnsafeChangeError(ConflictError):
    """Raised when a changed route cannot continue from its checkpoint, and a new one is not confirmed.

    Attributes:
        changes: every change, the safe ones included.
    """

    def __init__(self, name: str, changes: Sequence[Change]) -> None:
        reasons = "; ".join(f"{change.change}: {change.reason}" for change in changes if not change.safe)
        super().__init__(f"route {name} cannot continue from its checkpoint: {reasons}")
        self.changes = tuple(changes)


class StaleError(ServerError):
    """Raised when a request names a digest of a route that is not the present one."""


class NoStoreError(ServerError):
    """Raised when subscriptions are requested from a server that was started without a store."""

    def __init__(self) -> None:
        super().__init__("this server has no store of subscriptions: set store in turnout.yaml, or DB_URI")


class TooManyFollowersError(ServerError):
    """Raised when a feed cannot be followed, as too many are; there is room when one of them ends."""

    def __init__(self) -> None:
        super().__init__("too many feeds are followed already: try again later")


class UnknownPluginError(ServerError, LookupError):
    """Raised when a request to Kafka Connect's interface names an unknown plugin."""
