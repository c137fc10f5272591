"""Turnout's errors ↔ gRPC's status codes: one table, read in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import grpc

from turnout.errors import (
    ConditionError,
    ConfigError,
    HistoryForgottenError,
    QuotaExceededError,
    StoreUnavailableError,
    SubscriptionConflictError,
    SubscriptionError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
    TurnoutError,
)
from turnout.subscriptions.kiwi_tree import PairNotFoundError

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE

_OF_HTTP: dict[int, grpc.StatusCode] = {
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
}


class RefusedError(Exception):
    """Raised inside a call to end it with this status.

    Attributes:
        code: the status.
        details: text for the caller.
        retry_seconds: time after which the caller may try again; None if unknown.
    """

    def __init__(self, code: grpc.StatusCode, details: str, retry_seconds: float | None = None) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.retry_seconds = retry_seconds

    @property
    def is_denied(self) -> bool:
        """True if the caller has no right, so that trying again is of no use."""
        return self.code is grpc.StatusCode.PERMISSION_DENIED

    @classmethod
    def of_http(cls, status: int, details: str, retry_seconds: float | None = None) -> Self:
        """Return the refusal that corresponds to an HTTP status."""
        return cls(_OF_HTTP.get(status, grpc.StatusCode.INTERNAL), details, retry_seconds)


ID_KEY = "turnout-id-bin"
"""The trailing metadata that carries the id an error is about; binary, because ids are any text."""

REVISIONS_KEY = "turnout-revisions"
"""The trailing metadata of a conflict: the revision that was expected, and the one that was found."""

RETRY_KEY = "grpc-retry-pushback-ms"
"""The trailing metadata with the milliseconds after which to try again; gRPC's retry policies obey it (gRFC A6)."""

QUOTA_KEY = "turnout-quota"
"""The trailing metadata of an exceeded quota: its name, its value, and the required amount."""

STATUS: tuple[tuple[type[TurnoutError], grpc.StatusCode], ...] = (
    (SubscriptionNotFoundError, grpc.StatusCode.NOT_FOUND),
    (PairNotFoundError, grpc.StatusCode.NOT_FOUND),
    (SubscriptionExistsError, grpc.StatusCode.ALREADY_EXISTS),
    (SubscriptionConflictError, grpc.StatusCode.ABORTED),
    (SubscriptionInvalidError, grpc.StatusCode.INVALID_ARGUMENT),
    (QuotaExceededError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (HistoryForgottenError, grpc.StatusCode.OUT_OF_RANGE),
    (ConditionError, grpc.StatusCode.INVALID_ARGUMENT),
    (ConfigError, grpc.StatusCode.FAILED_PRECONDITION),
    (StoreUnavailableError, grpc.StatusCode.UNAVAILABLE),
    (TurnoutError, grpc.StatusCode.INTERNAL),
)
"""The first row whose class the error is of."""

_ERRORS: dict[grpc.StatusCode, type[SubscriptionError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: SubscriptionInvalidError,
    grpc.StatusCode.OUT_OF_RANGE: HistoryForgottenError,
    grpc.StatusCode.UNAVAILABLE: StoreUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: StoreUnavailableError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: StoreUnavailableError,
    grpc.StatusCode.ABORTED: StoreUnavailableError,
}

_ABOUT_AN_ID: dict[grpc.StatusCode, Callable[[str], SubscriptionError]] = {
    grpc.StatusCode.NOT_FOUND: SubscriptionNotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: SubscriptionExistsError,
}


_OF_A_REQUEST = (SubscriptionInvalidError, HistoryForgottenError, PairNotFoundError)


def status_of(failure: TurnoutError) -> grpc.StatusCode:
    """The status that an error has on the wire."""
    return next(code for kind, code in STATUS if isinstance(failure, kind))


def trailers_of(failure: BaseException | None) -> tuple[tuple[str, bytes | str], ...]:
    """Return the trailing metadata for an error: its id, the revisions of a conflict, a quota, or a time to retry."""
    if isinstance(failure, RefusedError) and failure.retry_seconds is not None:
        return ((RETRY_KEY, str(round(failure.retry_seconds * 1_000))),)
    if isinstance(failure, QuotaExceededError):
        return ((QUOTA_KEY, f"{failure.quota} {failure.limit} {failure.used}"),)
    id_ = getattr(failure, "id", None)
    if not isinstance(failure, TurnoutError) or not isinstance(id_, str):
        return ()
    about = (ID_KEY, id_.encode("utf-8", "replace"))
    if isinstance(failure, SubscriptionConflictError):
        return about, (REVISIONS_KEY, f"{failure.expected} {failure.found}")
    return (about,)


def error_of(failure: grpc.RpcError) -> SubscriptionError:
    """Return the client's error for a status, of the class that the server raised if it is known."""
    code: grpc.StatusCode = failure.code()
    trailers = dict(failure.trailing_metadata() or ())
    about, revisions = trailers.get(ID_KEY), trailers.get(REVISIONS_KEY)
    if about is not None and code in _ABOUT_AN_ID:
        return _ABOUT_AN_ID[code](about.decode("utf-8", "replace"))
    if about is not None and revisions is not None and code is grpc.StatusCode.ABORTED:
        expected, _, found = revisions.partition(" ")
        return SubscriptionConflictError(about.decode("utf-8", "replace"), int(expected), int(found))
    if QUOTA_KEY in trailers and code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        quota, limit, used = trailers[QUOTA_KEY].split()
        return QuotaExceededError(quota, int(limit), int(used))
    kind = _ERRORS.get(code, SubscriptionError)
    if code is grpc.StatusCode.NOT_FOUND:
        kind = PairNotFoundError
    words = failure.details() or "no details"
    # The server's message about a request is unchanged; other errors need its description.
    return kind(words if kind in _OF_A_REQUEST else f"{code.name}: {words}")


@contextmanager
def translated() -> Iterator[None]:
    """Raise turnout's errors instead of gRPC's, for clients."""
    try:
        yield
    except grpc.RpcError as failure:
        raise error_of(_complete(failure)) from failure


def _complete(failure: grpc.RpcError) -> grpc.Call:
    """An RpcError that was raised by a call is the call itself, with its code; any other one is a bug of ours."""
    if not hasattr(failure, "code"):
        raise TypeError(f"an RpcError without a code: {failure!r}") from failure
    return failure
