"""Choice of a command's subscription store, and of the time that it is waited for."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turnout.routes import Route
    from turnout.subscriptions import Store

DEFAULT_STORE = "sqlite:///subscriptions.db"

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        help=f"sqlite:///…, postgresql://…, mongodb://… or grpc://host:port; DB_URI, or {DEFAULT_STORE}.",
    ),
]

StoreTimeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0.001, help="Seconds to wait for the store. [5; 30 for a locked SQLite file, gRPC]"),
]


def store_url_of(url: str | None, timeout: float | None = None) -> str:
    """Return the given URL, the environment's or the default, with *timeout* as its timeout."""
    from turnout.subscriptions.store_url import store_url, with_timeout

    url_or_default = store_url(os.environ, DEFAULT_STORE) if url is None else url
    return url_or_default if timeout is None else with_timeout(url_or_default, timeout)


def loaded_route(file: Path, timeout: float | None) -> Route:
    """Load a route whose store is waited for as long as *timeout* says."""
    from turnout.routes import Route

    return in_time(Route.load(file), timeout)


def in_time(route: Route, timeout: float | None) -> Route:
    """Return the route with *timeout* as the timeout of its store."""
    part = route.subscriptions
    if part is None or timeout is None:
        return route
    return replace(route, subscriptions=part.model_copy(update={"store": store_url_of(part.store, timeout)}))


def check_store(route: Route) -> None:
    """Open the route's store and close it: before Spark is started, which takes seconds.

    Raises:
        TurnoutError: the store cannot be opened.
    """
    if route.subscriptions is not None:
        with opened_store(route.subscriptions.store):
            pass


@contextmanager
def opened_store(option: str | None, timeout: float | None = None, *, create: bool = False) -> Iterator[Store]:
    """Open the store, and close it at the end of the block; a missing store is created only with *create*."""
    from turnout.subscriptions import open_store
    from turnout.subscriptions.actor import acting_as
    from turnout.subscriptions.store_url import existing

    url = store_url_of(option, timeout)
    store = open_store(url if create else existing(url))
    try:
        with acting_as(_user()):
            yield store
    finally:
        store.close()


def _user() -> str:
    """Return the name of the user who runs the command; "" in a container without users."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
