"""Total time limit of a store call: for threads, for locks and for servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from turnout.errors import StoreUnavailableError


class _Deadline(threading.local):
    """Deadline of the call on this thread, by `time.monotonic`.

    Of the thread and not of the context, as gRPC runs its calls in contexts of their own.
    """

    at: float | None = None


_deadline = _Deadline()


@contextmanager
def within(seconds: float | None, *, since: float | None = None) -> Iterator[None]:
    """Give all calls of stores inside of the block *seconds* together; an earlier deadline around it stays.

    >>> with within(5.0), within(60.0):
    ...     remaining(30.0) <= 5.0
    ...
    True
    >>> remaining(30.0)
    30.0

    Args:
        seconds: how long; None for no limit of its own.
        since: when the waiting began, by `time.monotonic`; now if not given.
    """
    before = _deadline.at
    own = None if seconds is None else (time.monotonic() if since is None else since) + seconds
    _deadline.at = min((end for end in (before, own) if end is not None), default=None)
    try:
        yield
    finally:
        _deadline.at = before


def remaining(most: float) -> float:
    """Return the seconds left to wait, at most *most*.

    Raises:
        StoreUnavailableError: none are left.
    """
    if _deadline.at is None:
        return most
    seconds = _deadline.at - time.monotonic()
    if seconds <= 0:
        raise StoreUnavailableError("the store was not free before the caller's deadline; nothing was changed")
    return min(most, seconds)
