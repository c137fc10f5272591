"""Time limits in the URL of a MongoDB store, and the notice while a server is waited for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl

from turnout.base.untrusted import JsonObject

_log = logging.getLogger(__name__)

_WAITS = {
    # The driver would wait half a minute for a server that is not there.
    "serverSelectionTimeoutMS": 5_000,
    "connectTimeoutMS": 5_000,
    # It would wait for ever for the answer of one that has stopped in the middle of it.
    "socketTimeoutMS": 60_000,
}

_MAX_DIGITS = 10

_NOTICE_SECONDS = 1.0
"""Seconds after which the log says that the server is waited for."""


def waits_of(uri: str) -> JsonObject:
    """Return the driver's time limits."""
    return {name: wait for name, wait in _WAITS.items() if f"{name.lower()}=" not in uri.lower()}


def awaited(uri: str) -> str:
    """Describe the servers in a URL, and the seconds for which one of them is waited for.

    >>> awaited("mongodb://ann:pass@a,b:1/db?serverSelectionTimeoutMS=1500")
    'a,b:1 (1.5 s)'
    """
    address, _, query = uri.partition("?")
    hosts = address.partition("://")[2].partition("/")[0].rpartition("@")[2]
    name = "serverSelectionTimeoutMS"
    written = dict(parse_qsl(query.lower())).get(name.lower(), "")
    milliseconds = int(written) if written.isdecimal() and len(written) < _MAX_DIGITS else _WAITS[name]
    return f"{hosts} ({milliseconds / 1e3:g} s)"


@contextmanager
def log_wait(uri: str) -> Iterator[None]:
    """Log the reason for the wait if the block takes more than a second."""
    timer = threading.Timer(_NOTICE_SECONDS, _log.warning, ("waiting for MongoDB at %s…", awaited(uri)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
