"""MongoDB's driver, where it is installed, and its errors as turnout's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnout.errors import MissingExtraError, StoreUnavailableError, SubscriptionError, SubscriptionInvalidError
from turnout.secrets import masked_url

try:
    from pymongo import MongoClient, errors
    from pymongo.uri_parser import parse_uri
except ModuleNotFoundError as missing:
    if missing.name != "pymongo":
        raise
    raise MissingExtraError("mongo", "pymongo") from missing

__all__ = ["MongoClient", "error_of", "errors", "parse_uri", "translated"]

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
    """The driver's errors as turnout's."""
    try:
        yield
    except errors.PyMongoError as failure:
        raise error_of(failure) from failure
    except UnicodeEncodeError as failure:
        raise SubscriptionInvalidError(f"text that is not Unicode cannot be stored: {failure}") from failure


def error_of(failure: errors.PyMongoError) -> SubscriptionError:
    """What turnout raises where the driver raises *failure*; it contains no password."""
    kind, words = next((kind, words) for row, kind, words in _ERRORS if isinstance(failure, row))
    return kind(f"{words}: {masked_url(str(failure))}")
