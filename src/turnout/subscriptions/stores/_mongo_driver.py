"""MongoDB's driver, where it is installed, and its errors as turnout's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from turnout.errors import MissingExtraError, StoreUnavailableError, SubscriptionError, SubscriptionInvalidError
from turnout.secrets import masked_url
from turnout.subscriptions.deadline import remaining

try:
    import pymongo
    from pymongo import MongoClient, ReplaceOne, errors
    from pymongo.uri_parser import parse_uri
except ModuleNotFoundError as missing:
    if missing.name != "pymongo":
        raise
    raise MissingExtraError("mongo", "pymongo") from missing

__all__ = ["MongoClient", "ReplaceOne", "error_of", "errors", "in_time", "parse_uri", "soon", "translated"]

_FOREVER = float("inf")
_SOON_SECONDS = 2.0
_SERVER = re.compile(r"<ServerDescription \('([^']+)', ([0-9]+)\)")

_ERRORS: tuple[tuple[type[Exception], type[SubscriptionError], str], ...] = (
    (errors.ConnectionFailure, StoreUnavailableError, "MongoDB is away"),
    (errors.WaitQueueTimeoutError, StoreUnavailableError, "MongoDB has too many connections"),
    (errors.ExecutionTimeout, StoreUnavailableError, "MongoDB took too long"),
    (errors.WTimeoutError, StoreUnavailableError, "MongoDB took too long"),
    (errors.DocumentTooLarge, SubscriptionInvalidError, "MongoDB takes no subscription of this size"),
    (errors.PyMongoError, SubscriptionError, "MongoDB failed"),
)


@contextmanager
def translated() -> Iterator[None]:
    """Raise the driver's errors as turnout's."""
    try:
        yield
    except errors.PyMongoError as failure:
        raise error_of(failure) from failure
    except UnicodeEncodeError as failure:
        raise SubscriptionInvalidError(f"text that is not Unicode cannot be stored: {failure}") from failure


@contextmanager
def in_time() -> Iterator[None]:
    """Raise the driver's errors as turnout's, and bound all its waits together by the caller's deadline.

    For what takes a moment where the server answers; the time of a whole snapshot is not bounded by a deadline.
    """
    left = remaining(_FOREVER)
    with translated(), pymongo.timeout(None if left == _FOREVER else left):
        yield


@contextmanager
def soon() -> Iterator[None]:
    """Bound the waits for a server that may have just failed; a lease that is not given back expires."""
    with pymongo.timeout(_SOON_SECONDS):
        yield


def error_of(failure: errors.PyMongoError) -> SubscriptionError:
    """Translate the driver's *failure* into turnout's error; it contains no password."""
    kind, words = next((kind, words) for row, kind, words in _ERRORS if isinstance(failure, row))
    # The driver appends its state of each server, which does not help a reader.
    problem = str(failure).partition(", Timeout:")[0].partition(" (configured timeouts:")[0]
    if problem == "No servers found yet":
        servers = ", ".join(f"{host}:{port}" for host, port in _SERVER.findall(str(failure)))
        problem = f"{servers} does not answer"
    return kind(f"{words}: {masked_url(problem)}")
