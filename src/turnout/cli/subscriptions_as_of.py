"""A route's subscriptions as they are, or as they were."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from turnout.errors import ConfigError, Mistake
from turnout.untrusted import decimal

if TYPE_CHECKING:
    from turnout.routes import Route
    from turnout.subscriptions import Subscription
    from turnout.subscriptions.past import Moment

AsOf: TypeAlias = Annotated[
    str,
    typer.Option("--subscriptions-as-of", metavar="TIME|REVISION", help="Match with the subscriptions of then."),
]
"""The option, for commands that match."""


def moment_of(text: str, option: str) -> Moment | None:
    """Return the revision or time in a text; None for ``now``.

    Raises:
        ConfigError: it names neither.
    """
    if text == "now":
        return None
    revision = decimal(text)
    if revision is not None:
        return revision
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        problem = f"expected a revision, an ISO 8601 time or now, found {text!r}"
        raise ConfigError([Mistake(option, problem)]) from None


def moments_of(text: str, option: str) -> tuple[Moment | None, Moment | None]:
    """Parse two moments, ``THEN..NOW``; a single moment is both. None for ``now`` and for an empty part.

    Raises:
        ConfigError: a part names no moment.
    """
    first, dots, second = text.partition("..")
    parts = (first, second) if dots else (first, first)
    old, new = (moment_of(part or "now", option) for part in parts)
    return old, new


def subscriptions_of(
    route: Route, as_of: str = "now", option: str = "--subscriptions-as-of"
) -> tuple[Subscription, ...]:
    """Return the subscriptions of the route's store, now or at a past moment; none for a route without subscriptions.

    Raises:
        ConfigError: *as_of* is no moment.
        HistoryForgottenError: the store does not remember so far back.
    """
    moment = moment_of(as_of, option)
    if route.subscriptions is None:
        return ()
    from turnout.subscriptions.as_of import snapshot_of

    return snapshot_of(route.subscriptions.store, moment).subscriptions
