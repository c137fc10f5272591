"""Turnout's errors ↔ gRPC's status codes, in one table; and the bounds of one call, checked before any work is done.

Bounds of connections are options of `turnout.rpc.server`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from turnout.base.multivalued import Metadata, values_of
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
from turnout.subscriptions.service import PairNotFoundError

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


STATUS_KEY = "grpc-status-details-bin"
"""The trailing metadata with google.rpc.Status, which generated clients of many languages read."""

_FIELD = re.compile(r"([\w.\[\]'\"{}-]+): (.*)", re.DOTALL)
_MAX_STATUS = 6_000
"""Bytes of a message and its details in trailers, of which clients take 8 kB."""


def rich_status(failure: BaseException, code: grpc.StatusCode, message: str) -> tuple[tuple[str, bytes], ...]:
    """Return the trailing metadata with an error as google.rpc.Status, unless it would be too large.

    Args:
        failure: the error; its class is the reason.
        code: status of the call.
        message: details of the call.
    """
    known = isinstance(failure, TurnoutError)
    kind = type(failure).__name__.removesuffix("Error") if known else code.name
    info = error_details_pb2.ErrorInfo(domain="turnout", reason=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).upper())
    details: list[Message] = [info]
    id_ = getattr(failure, "id", None) if known else None
    if isinstance(id_, str):
        name = id_.encode("utf-8", "replace").decode()
        details.append(error_details_pb2.ResourceInfo(resource_type="subscription", resource_name=name))
    if isinstance(failure, SubscriptionConflictError):
        info.metadata.update(expected=f"{failure.expected}", found=f"{failure.found}")
    if isinstance(failure, QuotaExceededError):
        info.metadata.update(quota=failure.quota, limit=f"{failure.limit}", used=f"{failure.used}")
    if isinstance(failure, RefusedError) and failure.retry_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(failure.retry_seconds * 1_000))
        details.append(retry)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        found = _FIELD.fullmatch(message)
        field, text = found.groups() if found else ("", message)
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=text)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        status.details.add().Pack(detail)
    written = status.SerializeToString()
    size = len(quote(message)) + len(written) * 4 // 3
    return () if size > _MAX_STATUS else ((STATUS_KEY, written),)


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


MAX_SEARCHED = 64
"""Pairs of a search by metadata: each is one more condition of the store's query."""

MAX_EXPLAINED = 1_000
"""Matches of one message that are explained: an explanation is as large as its condition."""

MAX_BULK = 100_000
"""Subscriptions of one CreateMany, or ids of one DeleteMany: all of them are held until the last has arrived."""

MAX_BULK_BYTES = 256 << 20

_LARGE = 16_384
"""A message of this many characters or more is large: matching it may take tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """Bounds of a message to match.

    Attributes:
        pairs: largest number of keys, and of values.
        key: characters of a key.
        value: characters of a value.
    """

    pairs: int = 1_000
    key: int = 1_024
    value: int = 65_536

    def check(self, metadata: Metadata) -> None:
        """Refuse a message that is larger.

        Raises:
            SubscriptionInvalidError: the message names the key, or the number of keys.
        """
        if len(metadata) > self.pairs:
            raise SubscriptionInvalidError(f"metadata: {len(metadata)} keys, at most {self.pairs} are taken")
        count = sum(1 for _ in values_of(metadata))
        if count > self.pairs:
            raise SubscriptionInvalidError(f"metadata: {count} values, at most {self.pairs} are taken")
        for key, texts in metadata.items():
            value = texts if isinstance(texts, str) else max(texts, key=len)
            if len(key) > self.key:
                raise SubscriptionInvalidError(
                    f"metadata: a key of {len(key)} characters, at most {self.key} are taken"
                )
            if len(value) > self.value:
                raise SubscriptionInvalidError(
                    f"metadata[{key!r}]: {len(value)} characters, at most {self.value} are taken"
                )


_RETRY_SECONDS = 5.0


class Slots(AbstractContextManager[None]):
    """Limited number of slots; a caller without a slot gets an error immediately and blocks no thread.

    Args:
        count: number of slots.
        full: message of the error if no slot is free.
    """

    def __init__(self, count: int, full: str) -> None:
        self._free = threading.BoundedSemaphore(count)
        self._full = full

    @contextmanager
    def patiently(self) -> Iterator[None]:
        """Wait for a slot; for callers with a thread of their own."""
        with self._free:
            yield

    def __enter__(self) -> None:
        if not self._free.acquire(blocking=False):
            raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, self._full, _RETRY_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._free.release()


def is_large(metadata: Metadata) -> bool:
    """Return True if matching this message may take long enough to be limited."""
    return sum(map(len, values_of(metadata))) > _LARGE
