"""Choice of a command's subscription store."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl

import typer

if TYPE_CHECKING:
    from turnout.subscriptions import Store

DEFAULT_STORE = "sqlite:///subscriptions.db"
_NOTICE_SECONDS = 1.0

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", "-s", help=f"sqlite:///…, mongodb://… or grpc://host:port; DB_URI, or {DEFAULT_STORE}."),
]

StoreTimeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0.001, help="Seconds to wait for the store. [5; 30 for a locked SQLite file, gRPC]"),
]


def store_url_of(url: str | None, timeout: float | None = None) -> str:
    """Return the given URL, the environment's or the default, with *timeout* as its timeout."""
    from turnout.subscriptions.address import store_url, with_timeout

    known = store_url(os.environ, DEFAULT_STORE) if url is None else url
    return known if timeout is None else with_timeout(known, timeout)


@contextmanager
def opened_store(option: str | None, timeout: float | None = None, *, create: bool = False) -> Iterator[Store]:
    """Open the store, and close it at the end of the block; a missing store is created only with *create*."""
    from turnout.subscriptions import open_store
    from turnout.subscriptions.address import existing

    url = store_url_of(option, timeout)
    with _notice(url):
        store = open_store(url if create else existing(url))
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _notice(url: str) -> Iterator[None]:
    """Print a notice if opening a MongoDB store takes more than a second."""
    if not url.startswith("mongodb"):
        yield
        return
    place, _, query = url.partition("?")
    host = place.partition("://")[2].rpartition("@")[2].partition("/")[0]
    waits = dict(parse_qsl(query.lower())).get("serverselectiontimeoutms", "5000")
    seconds = float(waits) / 1e3 if waits.isdecimal() else 5.0
    timer = threading.Timer(
        _NOTICE_SECONDS, lambda: typer.echo(f"waiting for MongoDB at {host} ({seconds:g} s)…", err=True)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
