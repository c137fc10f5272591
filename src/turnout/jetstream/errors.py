"""What JetStream and its connection can refuse, in turnout's words, and the border where nats-py's words end.

::

    StreamError                          .code .err_code
    ├── StreamNotFoundError(LookupError)             10059
    ├── StreamNameInUseError                         10058
    ├── ConsumerNotFoundError(LookupError)           10014
    ├── ConsumerExistsError                          10013, 10105, 10148
    ├── MessageNotFoundError(LookupError)            10037
    ├── WrongLastSequenceError                       10071, 10164
    ├── JetStreamNotEnabledError                     10039, 10076
    ├── JetStreamUnavailableError                    10008, 10023: a retry may help
    ├── NoMatchingStreamError(LookupError)           no stream, or more than one, takes the subject
    ├── NoRespondersError                            status 503: nobody listens on the subject
    ├── RequestTimeoutError(TimeoutError)            no answer in time
    ├── PermissionDeniedError(PermissionError)       .operation .subject
    ├── NotJetStreamMessageError(ValueError)         .reply
    ├── StatusError                                  .status: a status that is an error
    │   └── ConsumerDeletedError                     409 Consumer Deleted
    ├── ConsumerMismatchError                        the consumer is not what was asked for
    │   ├── ConsumerBoundError                       ADR-15: a duplicate subscription
    │   ├── QueueRequiredError                       the consumer belongs to a queue group
    │   ├── QueueMismatchError                       ... to another one
    │   ├── NoDeliverGroupError                      ... to none
    │   ├── FilterMismatchError                      another filter subject
    │   ├── PushConsumerError                        a pull subscription to a push consumer
    │   ├── PullConsumerError                        the other way round
    │   ├── QueueFlowControlError                    heartbeats or flow control, and a queue
    │   └── ConfigDriftError                         .differences
    ├── SubscriptionClosedError                      it was unsubscribed or drained
    └── reported to the error callback:
        ├── HeartbeatMissedError                     .idle
        ├── SequenceGapError                         .expected .got .resume_from
        ├── FlowControlLostError                     answers to flow control do not arrive
        └── SlowConsumerError                        .dropped

`turnout.errors.ConfigError` is what a request that cannot be sent raises, with all its mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turnout.errors import StreamError

if TYPE_CHECKING:
    from turnout.jetstream.status import Status

__all__ = [
    "ConfigDriftError",
    "ConsumerBoundError",
    "ConsumerDeletedError",
    "ConsumerExistsError",
    "ConsumerMismatchError",
    "ConsumerNotFoundError",
    "FilterMismatchError",
    "FlowControlLostError",
    "HeartbeatMissedError",
    "JetStreamNotEnabledError",
    "JetStreamUnavailableError",
    "MessageNotFoundError",
    "NoDeliverGroupError",
    "NoMatchingStreamError",
    "NoRespondersError",
    "NotJetStreamMessageError",
    "PermissionDeniedError",
    "PullConsumerError",
    "PushConsumerError",
    "QueueFlowControlError",
    "QueueMismatchError",
    "QueueRequiredError",
    "RequestTimeoutError",
    "SequenceGapError",
    "SlowConsumerError",
    "StatusError",
    "StreamError",
    "StreamNameInUseError",
    "StreamNotFoundError",
    "SubscriptionClosedError",
    "WrongLastSequenceError",
    "api_error",
]


class StreamNotFoundError(StreamError, LookupError):
    """Raised when no stream has the name asked for."""


class StreamNameInUseError(StreamError):
    """Raised when a stream of that name exists with another configuration; it is left as it was."""


class ConsumerNotFoundError(StreamError, LookupError):
    """Raised when the stream has no consumer of the name asked for."""


class ConsumerExistsError(StreamError):
    """Raised when a consumer of that name exists and differs, or is bound by somebody else; it is left as it was."""


class MessageNotFoundError(StreamError, LookupError):
    """Raised when the stream holds no message with that sequence or subject."""


class WrongLastSequenceError(StreamError):
    """Raised when a publish expected another last sequence than the stream has; nothing was stored."""


class JetStreamNotEnabledError(StreamError):
    """Raised when the account that was asked has no JetStream."""


class JetStreamUnavailableError(StreamError):
    """Raised when JetStream is there but cannot serve now; the same request may work later."""


class NoMatchingStreamError(StreamError, LookupError):
    """Raised when the streams that take a subject are none, or more than one (ADR-15, "Stream name")."""


class NoRespondersError(StreamError):
    """Raised when nobody listens on the subject of a request.

    No stream takes the subject, the consumer is gone, the domain is unknown, or an import of the account is missing.
    """

    def __init__(self, subject: str) -> None:
        super().__init__(f"nobody answers on {subject!r}: no such stream, consumer, domain or import", code=503)
        self.subject = subject


class RequestTimeoutError(StreamError, TimeoutError):
    """Raised when no answer came in time; what was asked may have been done."""


class PermissionDeniedError(StreamError, PermissionError):
    """Raised when the server does not let this user publish or subscribe.

    Attributes:
        operation: ``publish`` or ``subscription``.
        subject: the subject that was refused.
    """

    def __init__(self, operation: str, subject: str) -> None:
        super().__init__(f"permission denied: {operation} {subject!r}", code=403)
        self.operation = operation
        self.subject = subject


class NotJetStreamMessageError(StreamError, ValueError):
    """Raised when a message has no JSAck in its reply (ADR-15, "JSAck"), so that it cannot be acknowledged.

    Attributes:
        reply: what the message has instead.
    """

    def __init__(self, reply: str, reason: str) -> None:
        super().__init__(f"not a JetStream message: the reply {reply!r} {reason}")
        self.reply = reply


class StatusError(StreamError):
    """Raised, or reported, when the server sends a status that means trouble (ADR-15, "Error statuses").

    Attributes:
        status: the whole of it, with its headers.
    """

    def __init__(self, status: Status, *, asked: str = "") -> None:
        place = f" ({asked})" if asked else ""
        super().__init__(f"status {status.code} {status.description}".rstrip() + place, code=status.code)
        self.status = status


class ConsumerDeletedError(StatusError):
    """Raised when the consumer, or its stream, is deleted while messages are awaited."""


class ConsumerMismatchError(StreamError):
    """Raised when an existing consumer is not what the subscription asks for; nothing was changed."""


class ConsumerBoundError(ConsumerMismatchError):
    """Raised when somebody is subscribed to the push consumer already: a duplicate subscription."""


class QueueRequiredError(ConsumerMismatchError):
    """Raised when a plain subscription asks for a consumer that was made for a queue group."""


class QueueMismatchError(ConsumerMismatchError):
    """Raised when a queue subscription asks for a consumer that was made for another queue group."""


class NoDeliverGroupError(ConsumerMismatchError):
    """Raised when a queue subscription asks for a consumer that was made without a deliver group."""


class FilterMismatchError(ConsumerMismatchError):
    """Raised when the consumer's filter is not the subject of the subscription."""


class PushConsumerError(ConsumerMismatchError):
    """Raised when a pull subscription asks for a push consumer."""


class PullConsumerError(ConsumerMismatchError):
    """Raised when a push subscription asks for a pull consumer: a pull subscription is required."""


class QueueFlowControlError(ConsumerMismatchError):
    """Raised when a queue subscription asks for a consumer with heartbeats or flow control.

    The server would send those to a random member.
    """


class ConfigDriftError(ConsumerMismatchError):
    """Raised when the caller's configuration differs from the consumer's; the caller's is not applied.

    Attributes:
        differences: (field, asked, actual) for each field that the caller set and that differs.
    """

    def __init__(self, consumer: str, differences: Sequence[tuple[str, object, object]]) -> None:
        told = ", ".join(f"{name} is {actual!r} and not {asked!r}" for name, asked, actual in differences)
        super().__init__(f"the consumer {consumer!r} has another configuration: {told}")
        self.differences = tuple(differences)


class SubscriptionClosedError(StreamError):
    """Raised when a message is asked of a subscription that has ended."""


class HeartbeatMissedError(StreamError):
    """Reported when neither a message nor a status came for too long (ADR-15, "Heartbeats").

    Attributes:
        idle: seconds since the last sign of life.
    """

    def __init__(self, consumer: str, idle: float) -> None:
        super().__init__(f"the consumer {consumer!r} has been silent for {idle:.3g} s: its heartbeats do not arrive")
        self.idle = idle


class SequenceGapError(StreamError):
    """Reported when consumer sequences are missing (ADR-15, "Messages Gaps").

    Attributes:
        expected: the consumer sequence that should have come.
        got: the one that came, or that a heartbeat names as the last.
        resume_from: the stream sequence after the last message received.
    """

    def __init__(self, consumer: str, *, expected: int, got: int, resume_from: int) -> None:
        super().__init__(
            f"messages of the consumer {consumer!r} are missing: expected its sequence {expected}, got {got}; "
            f"resume from stream sequence {resume_from}"
        )
        self.expected = expected
        self.got = got
        self.resume_from = resume_from


class FlowControlLostError(StreamError):
    """Reported when the server goes on naming a stall that was answered: ``$JS.FC.>`` is not imported."""


class SlowConsumerError(StreamError):
    """Reported when messages were dropped because the subscription's buffer is full.

    Attributes:
        dropped: how many, since the subscription began.
    """

    def __init__(self, subject: str, *, dropped: int) -> None:
        super().__init__(f"slow consumer: {dropped} messages of {subject!r} were dropped, the buffer is full")
        self.dropped = dropped


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
}


def api_error(error: Mapping[str, Any], *, asked: str = "") -> StreamError:
    """The error that an API answer's ``error`` object stands for.

    Args:
        error: the object, with code, err_code and description.
        asked: what was asked, to be named in the message.
    """
    code, err_code = int(error.get("code", 0)), int(error.get("err_code", 0))
    place = f"{asked}: " if asked else ""
    kind = _BY_ERR_CODE.get(err_code, StreamError)
    text = f"{place}{error.get('description') or 'no description'} ({code}, err_code {err_code})"
    return kind(text, code=code, err_code=err_code)
