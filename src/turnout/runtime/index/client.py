"""Client for the driver's process: revisions of the subscriptions, and the files of their index."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError

from turnout.errors import ConnectionLostError

_TIMEOUT_SECONDS = 60.0


@contextmanager
def fetch(url: str, path: str) -> Iterator[Any]:
    """Open *path* of the `turnout.runtime.index.server` at *url* for reading.

    Raises:
        ConnectionLostError: it does not answer, or has no such thing; the message does not repeat the address.
    """
    with _opened(urllib.request.Request(f"{url}/{path}")) as answer:  # noqa: S310 - the driver's own address
        yield answer


def send(url: str, path: str, content: bytes) -> None:
    """Have the server at *url* store *content* at *path*.

    Raises:
        ConnectionLostError: it does not answer, or cannot store it.
    """
    request = urllib.request.Request(f"{url}/{path}", content, method="PUT")  # noqa: S310 - the driver's own address
    with _opened(request):
        pass


@contextmanager
def _opened(request: urllib.request.Request) -> Iterator[Any]:
    # Proxy settings are for other hosts than the cluster's own.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            yield answer
    except OSError as failure:
        if isinstance(failure, HTTPError):
            failure.close()
        reason = getattr(failure, "reason", failure)
        raise ConnectionLostError(f"the driver does not give the subscriptions' index: {reason}") from None


class AskedRevisions:
    """Revision numbers as the source sees them, requested from the process that keeps the index.

    Args:
        url: URL of the index server.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def newest(self) -> int:
        """Return the present revision, which tasks can open from now on."""
        with fetch(self._url, "newest") as answer:
            return int(answer.read())

    def filters(self, revision: int) -> tuple[str, ...] | None:
        """Return the subjects that the subscriptions of a revision can match; None if they can match any."""
        with fetch(self._url, f"filters/{revision}") as answer:
            filters = json.loads(answer.read())
        return None if filters is None else tuple(filters)

    def usable(self, revision: int) -> int:
        """Return *revision* if it is kept, else a later one."""
        with fetch(self._url, f"usable/{revision}") as answer:
            return int(answer.read())
