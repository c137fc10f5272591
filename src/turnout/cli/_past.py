"""A route's subscriptions as they are, or as they were."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from turnout.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from turnout.routes import Route
    from turnout.subscriptions import Subscription
    from turnout.subscriptions.past import Moment

__all__ = ["moment_of", "subscriptions_of"]


def moment_of(text: str, option: str) -> Moment | None:
    """The revision or the time that a text names; None for ``now``.

    Raises:
        ConfigError: it names neither.
    """
    if text == "now":
        return None
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        problem = f"expected a revision, an ISO 8601 time or now, found {text!r}"
        raise ConfigError([Mistake(option, problem)]) from None


def subscriptions_of(
    route: Route, as_of: str = "now", option: str = "--subscriptions-as-of"
) -> tuple[Subscription, ...]:
    """What the route's store holds, or held; nothing where the route has no subscriptions.

    Raises:
        ConfigError: *as_of* is no moment.
        HistoryForgottenError: the store does not remember so far back.
    """
    moment = moment_of(as_of, option)
    if route.subscriptions is None:
        return ()
    from turnout.subscriptions import open_store
    from turnout.subscriptions.address import existing

    store = open_store(existing(route.subscriptions.store))
    try:
        return (store if moment is None else store.as_of(moment)).snapshot().subscriptions
    finally:
        store.close()
