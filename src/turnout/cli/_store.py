"""Which store of subscriptions a command uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turnout.subscriptions import Store

__all__ = ["StoreUrl", "opened_store", "store_url_of"]

DEFAULT_STORE = "sqlite:///subscriptions.db"

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", "-s", help=f"sqlite:///…, mongodb://… or grpc://host:port; DB_URI, or {DEFAULT_STORE}."),
]


def store_url_of(url: str | None) -> str:
    """The URL that was given, that of the environment, or the default."""
    if url is not None:
        return url
    from turnout.subscriptions.address import store_url

    return store_url(os.environ, DEFAULT_STORE)


@contextmanager
def opened_store(option: str | None, *, create: bool = False) -> Iterator[Store]:
    """The store, closed at the end of the block; only who writes to it has one made where there is none."""
    from turnout.subscriptions import open_store
    from turnout.subscriptions.address import existing

    url = store_url_of(option)
    store = open_store(url if create else existing(url))
    try:
        yield store
    finally:
        store.close()
