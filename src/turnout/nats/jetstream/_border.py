"""Boundary to nats-py: its exceptions become errors of turnout's tree, and none of them escapes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import nats.errors

from turnout.errors import ConnectionLostError, StreamError, TurnoutError
from turnout.nats.jetstream.errors import (
    NoRespondersError,
    NotJetStreamMessageError,
    PermissionDeniedError,
    RequestTimeoutError,
    SubscriptionClosedError,
)


def _lost(failure: BaseException) -> TurnoutError:
    return ConnectionLostError(_words(failure))


def _timed_out(failure: BaseException) -> TurnoutError:
    return RequestTimeoutError(_words(failure), code=408)


def _refused(failure: BaseException) -> TurnoutError:
    return StreamError(_words(failure))


def _closed(failure: BaseException) -> TurnoutError:
    return SubscriptionClosedError(_words(failure))


def _unanswered(failure: BaseException) -> TurnoutError:  # noqa: ARG001 - one signature for the table
    return NoRespondersError("the subject asked")


def _not_jetstream(failure: BaseException) -> TurnoutError:
    return NotJetStreamMessageError("", _words(failure))


_PERMISSION = re.compile(r'permissions violation for (publish|subscription)\s{1,8}to\s{1,8}"([^"]+)"', re.IGNORECASE)


def _server_error(failure: BaseException) -> TurnoutError:
    """nats-py raises its base class with the text of the server's ``-ERR`` line, in lower case."""
    match = _PERMISSION.search(str(failure))
    return PermissionDeniedError(match[1], match[2]) if match else ConnectionLostError(_words(failure))


def _words(failure: BaseException) -> str:
    return str(failure).removeprefix("nats: ") or type(failure).__name__


_TABLE: Mapping[type[BaseException], Callable[[BaseException], TurnoutError]] = {
    nats.errors.AuthorizationError: _lost,
    nats.errors.BadHeaderError: _refused,
    nats.errors.BadSubjectError: _refused,
    nats.errors.BadSubscriptionError: _closed,
    nats.errors.BadTimeoutError: _refused,
    nats.errors.ConnectionClosedError: _lost,
    nats.errors.ConnectionDrainingError: _lost,
    nats.errors.ConnectionReconnectingError: _lost,
    nats.errors.InvalidCallbackTypeError: _refused,
    nats.errors.InvalidUserCredentialsError: _lost,
    nats.errors.JsonParseError: _lost,
    nats.errors.MaxPayloadError: _refused,
    nats.errors.MsgAlreadyAckdError: _refused,
    nats.errors.NoRespondersError: _unanswered,
    nats.errors.NoServersError: _lost,
    nats.errors.NotJSMessageError: _not_jetstream,
    nats.errors.OutboundBufferLimitError: _lost,
    nats.errors.ProtocolError: _lost,
    nats.errors.SecureConnFailedError: _lost,
    nats.errors.SecureConnRequiredError: _lost,
    nats.errors.SecureConnWantedError: _lost,
    nats.errors.ServerNotInPoolError: _lost,
    nats.errors.SlowConsumerError: _refused,
    nats.errors.StaleConnectionError: _lost,
    nats.errors.TimeoutError: _timed_out,
    nats.errors.Error: _server_error,
    asyncio.TimeoutError: _timed_out,
    OSError: _lost,
}


def translate(failure: BaseException) -> TurnoutError | None:
    """Turnout's error for one that the connection raised; None if it is not the connection's (a cancellation)."""
    if isinstance(failure, TurnoutError):
        return failure
    for kind in type(failure).__mro__:
        make = _TABLE.get(kind)
        if make is not None:
            return make(failure)
    return None


@contextmanager
def translated() -> Iterator[None]:
    """The border: what nats-py raises inside the block leaves it as an error of turnout's tree."""
    try:
        yield
    except Exception as failure:
        known = translate(failure)
        if known is None or known is failure:
            raise
        raise known from failure
