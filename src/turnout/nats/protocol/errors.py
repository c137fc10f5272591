"""Errors of NATS servers, shared by both clients and independent of either.

::

    StreamError                          .code .err_code
    ├── StreamNotFoundError(LookupError)             10059
    ├── StreamReplacedError                          a position is in another stream of the name, or in other data
    ├── StreamNameInUseError                         10058
    ├── ConsumerNotFoundError(LookupError)           10014
    ├── ConsumerExistsError                          10013, 10105, 10148
    ├── MessageNotFoundError(LookupError)            10037
    ├── WrongLastSequenceError                       10071, 10164
    ├── JetStreamNotEnabledError                     10039, 10076
    ├── JetStreamUnavailableError                    10008, 10023: a retry may help
    ├── ConsumerResetError                           10204
    ├── BatchPublishError                            10174 to 10177, 10179, 10200, 10201, 10205 to 10207
    │   ├── BatchIncompleteError                     10176, 10208: messages are missing, or it was abandoned
    │   ├── BatchTooLargeError                       10199
    │   └── TooManyBatchesError                      10210, 10211: a retry may help
    ├── ScheduleError                                10188 to 10192, 10203, 10212, 10223
    ├── MessageTtlError                              10165, 10166
    ├── CounterError                                 10168 to 10172
    ├── NoMatchingStreamError(LookupError)           no stream, or more than one, takes the subject
    ├── NoRespondersError                            status 503: the subject has no subscribers
    ├── RequestTimeoutError(TimeoutError)            no answer in time
    ├── PermissionDeniedError(PermissionError)       .operation .subject
    └── NotJetStreamMessageError(ValueError)         .reply

    ConnectionLostError
    └── BrokenFrameError                             .kind .problem .head: the server sent no NATS protocol
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnout.errors import ConnectionLostError, StreamError

_SHOWN_BYTES = 60


class BrokenFrameError(ConnectionLostError):
    """Raised when a server violates the NATS protocol; the connection is closed, as nothing behind it can be read.

    Attributes:
        kind: the kind of frame: ``INFO``, ``MSG``, ``line``.
        problem: the violation.
        head: its first bytes.
    """

    def __init__(self, kind: str, problem: str, head: bytes, server: object = None) -> None:
        self.kind = kind
        self.problem = problem
        self.head = bytes(head[:_SHOWN_BYTES])
        sender = f"{server} sent" if server is not None else "the server sent"
        super().__init__(f"{sender} a broken {kind} frame: {problem}; it begins {self.head!r}")

    def sent_by(self, server: object) -> BrokenFrameError:
        """Return a copy of this error with the server's address."""
        return BrokenFrameError(self.kind, self.problem, self.head, server)


class StreamNotFoundError(StreamError, LookupError):
    """Raised when no stream has the requested name."""


class StreamReplacedError(StreamError):
    """Raised when a position is in another stream of the same name, or in data that the server has no more."""


class StreamNameInUseError(StreamError):
    """Raised when a stream of that name exists with another configuration; it is left as it was."""


class ConsumerNotFoundError(StreamError, LookupError):
    """Raised when the stream has no consumer of the requested name."""


class ConsumerExistsError(StreamError):
    """Raised when a consumer of that name differs or is bound by another client; it is left unchanged."""


class MessageNotFoundError(StreamError, LookupError):
    """Raised when the stream holds no message with that sequence or subject."""


class WrongLastSequenceError(StreamError):
    """Raised when a publish expected another last sequence than the stream has; nothing was stored."""


class JetStreamNotEnabledError(StreamError):
    """Raised when JetStream is not enabled for the account."""


class JetStreamUnavailableError(StreamError):
    """Raised when JetStream is there but cannot serve now; the same request may work later."""


class ConsumerResetError(StreamError):
    """Raised when a consumer cannot deliver from a sequence: it is before its start, or its policy has no start."""


class BatchPublishError(StreamError):
    """Raised when a stream refuses a batch, or a message of it (ADR-50); nothing of an atomic batch is stored."""


class BatchIncompleteError(BatchPublishError):
    """Raised when messages of a batch are missing, or the server gave it up: it was silent for 10 seconds."""


class BatchTooLargeError(BatchPublishError):
    """Raised when an atomic batch has more messages than the server takes, 1,000 unless it is set otherwise."""


class TooManyBatchesError(BatchPublishError):
    """Raised when a stream (50) or a server (1,000) has too many open batches; the same one may work later."""


class ScheduleError(StreamError):
    """Raised when a stream takes no schedules, or not this one (ADR-51)."""


class MessageTtlError(StreamError):
    """Raised when a stream takes no TTL on a message, or not this one (ADR-43)."""


class CounterError(StreamError):
    """Raised when a counter's stream refuses a message: no number to add, a payload, a broken counter (ADR-49)."""


class NoMatchingStreamError(StreamError, LookupError):
    """Raised when no stream takes a subject, or more than one does (ADR-15, "Stream name")."""


class NoRespondersError(StreamError):
    """Raised when the subject of a request has no subscriber.

    No stream takes the subject, the consumer does not exist, the domain is unknown, or an import of the account is
    missing.
    """

    def __init__(self, subject: str) -> None:
        super().__init__(f"no responders on {subject!r}: no such stream, consumer, domain or import", code=503)
        self.subject = subject


class RequestTimeoutError(StreamError, TimeoutError):
    """Raised when no answer arrives in time; the request may have been executed."""


_VIOLATION = re.compile(
    r'Permissions Violation for (Publish|Subscription)(?: to| with Reply of)\s{1,8}"((?:[^"\\]|\\.)+)"', re.IGNORECASE
)


class PermissionDeniedError(StreamError, PermissionError):
    """Raised when the server does not let this user publish or subscribe.

    Attributes:
        operation: ``publish`` or ``subscription``.
        subject: the subject that was refused.
    """

    def __init__(self, operation: str, subject: str, message: str = "") -> None:
        super().__init__(message or f"permission denied: {operation} {subject!r}", code=403)
        self.operation = operation
        self.subject = subject

    @classmethod
    def of(cls, text: str, message: str = "") -> PermissionDeniedError | None:
        """Return the error, with *message*, for the text of an ``-ERR`` line; None if it is about something else.

        >>> PermissionDeniedError.of('Permissions Violation for Publish to "$JS.API.INFO"').subject
        '$JS.API.INFO'
        """
        match = _VIOLATION.search(text)
        if match is None:
            return None
        # The server writes the subject as Go quotes a text.
        return cls(match[1].lower(), re.sub(r"\\(.)", r"\1", match[2]), message)


class NotJetStreamMessageError(StreamError, ValueError):
    """Raised when a message has no JSAck in its reply (ADR-15, "JSAck"), so that it cannot be acknowledged.

    Attributes:
        reply: the actual reply subject.
    """

    def __init__(self, reply: str, reason: str) -> None:
        super().__init__(f"not a JetStream message: the reply {reply!r} {reason}")
        self.reply = reply


_BY_ERR_CODE: Mapping[int, type[StreamError]] = {
    10008: JetStreamUnavailableError,
    10013: ConsumerExistsError,
    10014: ConsumerNotFoundError,
    10023: JetStreamUnavailableError,
    10037: MessageNotFoundError,
    10039: JetStreamNotEnabledError,
    10058: StreamNameInUseError,
    10059: StreamNotFoundError,
    10071: WrongLastSequenceError,
    10076: JetStreamNotEnabledError,
    10105: ConsumerExistsError,
    10148: ConsumerExistsError,
    10164: WrongLastSequenceError,
    10165: MessageTtlError,
    10166: MessageTtlError,
    **dict.fromkeys(range(10168, 10173), CounterError),
    **dict.fromkeys((10174, 10175, 10177, 10179, 10200, 10201, 10205, 10206, 10207), BatchPublishError),
    10176: BatchIncompleteError,
    **dict.fromkeys((*range(10188, 10193), 10203, 10212, 10223), ScheduleError),
    10199: BatchTooLargeError,
    10204: ConsumerResetError,
    10208: BatchIncompleteError,
    10210: TooManyBatchesError,
    10211: TooManyBatchesError,
}


def api_error(error: object, *, request: str = "") -> StreamError:
    """Return the error for the ``error`` object of an API answer.

    Args:
        error: the object, with code, err_code and description; anything else is named as it is.
        request: the request, for the error's text.
    """
    facts: Mapping[str, object] = error if isinstance(error, dict) else {"description": f"{error!r:.{_SHOWN_BYTES}}"}
    code, err_code = (value if type(value) is int else 0 for value in (facts.get("code"), facts.get("err_code")))
    prefix = f"{request}: " if request else ""
    kind = _BY_ERR_CODE.get(err_code, StreamError)
    text = f"{prefix}{facts.get('description') or 'no description'} ({code}, err_code {err_code})"
    return kind(text, code=code, err_code=err_code)
