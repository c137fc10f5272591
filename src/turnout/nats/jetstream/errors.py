"""Errors of this client, in addition to the refusals of any NATS server (`turnout.nats.protocol.errors`).

::

    StreamError
    ├── … those of turnout.nats.protocol.errors, importable from here as well:
    │   StreamNotFoundError, StreamNameInUseError, ConsumerNotFoundError, ConsumerExistsError, MessageNotFoundError,
    │   WrongLastSequenceError, JetStreamNotEnabledError, JetStreamUnavailableError, NoMatchingStreamError,
    │   NoRespondersError, RequestTimeoutError, PermissionDeniedError, NotJetStreamMessageError, ConsumerResetError,
    │   BatchPublishError (BatchIncompleteError, BatchTooLargeError, TooManyBatchesError), ScheduleError,
    │   MessageTtlError, CounterError
    ├── StatusError                                  .status: a status that is an error
    │   ├── ConsumerDeletedError                     409 Consumer Deleted
    │   └── PinLostError                             423: another client of the priority group has the pin
    ├── ConsumerMismatchError                        the consumer differs from the requested one
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
    ├── StreamReplacedError                          .stream .sequence: another stream, or an older state, has the name
    └── reported to the error callback:
        ├── HeartbeatMissedError                     .idle
        ├── SequenceGapError                         .expected .got .resume_from
        ├── FlowControlLostError                     answers to flow control do not arrive
        └── SlowConsumerError                        .dropped

A request that cannot be sent raises `turnout.errors.ConfigError` with all its mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.errors import StreamError
from turnout.nats.protocol.errors import (
    BatchIncompleteError,
    BatchPublishError,
    BatchTooLargeError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    ConsumerResetError,
    CounterError,
    JetStreamNotEnabledError,
    JetStreamUnavailableError,
    MessageNotFoundError,
    MessageTtlError,
    NoMatchingStreamError,
    NoRespondersError,
    NotJetStreamMessageError,
    PermissionDeniedError,
    RequestTimeoutError,
    ScheduleError,
    StreamNameInUseError,
    StreamNotFoundError,
    TooManyBatchesError,
    WrongLastSequenceError,
    api_error,
)

if TYPE_CHECKING:
    from turnout.nats.protocol.headers import Status

__all__ = [
    "BatchIncompleteError",
    "BatchPublishError",
    "BatchTooLargeError",
    "ConfigDriftError",
    "ConsumerBoundError",
    "ConsumerDeletedError",
    "ConsumerExistsError",
    "ConsumerMismatchError",
    "ConsumerNotFoundError",
    "ConsumerResetError",
    "CounterError",
    "FilterMismatchError",
    "FlowControlLostError",
    "HeartbeatMissedError",
    "JetStreamNotEnabledError",
    "JetStreamUnavailableError",
    "MessageNotFoundError",
    "MessageTtlError",
    "NoDeliverGroupError",
    "NoMatchingStreamError",
    "NoRespondersError",
    "NotJetStreamMessageError",
    "PermissionDeniedError",
    "PinLostError",
    "PullConsumerError",
    "PushConsumerError",
    "QueueFlowControlError",
    "QueueMismatchError",
    "QueueRequiredError",
    "RequestTimeoutError",
    "ScheduleError",
    "SequenceGapError",
    "SlowConsumerError",
    "StatusError",
    "StreamError",
    "StreamNameInUseError",
    "StreamNotFoundError",
    "StreamReplacedError",
    "SubscriptionClosedError",
    "TooManyBatchesError",
    "WrongLastSequenceError",
    "api_error",
]


class StatusError(StreamError):
    """Raised, or reported, when the server sends a status that means trouble (ADR-15, "Error statuses").

    Attributes:
        status: the whole of it, with its headers.
    """

    def __init__(self, status: Status, *, request: str = "") -> None:
        suffix = f" ({request})" if request else ""
        super().__init__(f"status {status.code} {status.description}".rstrip() + suffix, code=status.code)
        self.status = status


class ConsumerDeletedError(StatusError):
    """Raised when the consumer, or its stream, is deleted while messages are awaited."""


class PinLostError(StatusError):
    """Raised, or reported by a continuous pull, when another client of a priority group has the pin (ADR-42).

    The id is forgotten: the next request makes this client one of those that wait for the pin.
    """


class ConsumerMismatchError(StreamError):
    """Raised when an existing consumer does not fit the subscription; nothing was changed."""


class ConsumerBoundError(ConsumerMismatchError):
    """Raised when the push consumer already has a subscriber: a duplicate subscription."""


class QueueRequiredError(ConsumerMismatchError):
    """Raised when a plain subscription requests a consumer created for a queue group."""


class QueueMismatchError(ConsumerMismatchError):
    """Raised when a queue subscription requests a consumer created for another queue group."""


class NoDeliverGroupError(ConsumerMismatchError):
    """Raised when a queue subscription requests a consumer created without a deliver group."""


class FilterMismatchError(ConsumerMismatchError):
    """Raised when the consumer's filter is not the subject of the subscription."""


class PushConsumerError(ConsumerMismatchError):
    """Raised when a pull subscription requests a push consumer."""


class PullConsumerError(ConsumerMismatchError):
    """Raised when a push subscription requests a pull consumer: a pull subscription is required."""


class QueueFlowControlError(ConsumerMismatchError):
    """Raised when a queue subscription requests a consumer with heartbeats or flow control.

    The server would send those to a random member.
    """


class ConfigDriftError(ConsumerMismatchError):
    """Raised when the caller's configuration differs from the consumer's; the caller's is not applied.

    Attributes:
        differences: (field, requested, actual) for each field that the caller set and that differs.
    """

    def __init__(self, consumer: str, differences: Sequence[tuple[str, object, object]]) -> None:
        details = ", ".join(f"{name} is {actual!r} and not {requested!r}" for name, requested, actual in differences)
        super().__init__(f"the consumer {consumer!r} has another configuration: {details}")
        self.differences = tuple(differences)


class SubscriptionClosedError(StreamError):
    """Raised when a message is requested from a subscription that has ended."""


class StreamReplacedError(StreamError):
    """Raised when a position is not one of the stream: it was deleted and made again, or restored to an older state.

    A sequence means another message there. Nothing was skipped: begin again from the first message, or from a position
    that belongs to this stream.

    Attributes:
        stream: the stream's name.
        sequence: the position.
    """

    def __init__(self, stream: str, sequence: int, why: str) -> None:
        super().__init__(f"the stream {stream!r} is not the one of the position {sequence}: {why}")
        self.stream = stream
        self.sequence = sequence


class HeartbeatMissedError(StreamError):
    """Reported when neither a message nor a status arrives for too long (ADR-15, "Heartbeats").

    Attributes:
        idle: seconds since the last sign of life.
    """

    def __init__(self, consumer: str, idle: float) -> None:
        super().__init__(f"the consumer {consumer!r} has been silent for {idle:.3g} s: its heartbeats do not arrive")
        self.idle = idle


class SequenceGapError(StreamError):
    """Reported when consumer sequences are missing (ADR-15, "Messages Gaps").

    Attributes:
        expected: the expected consumer sequence.
        got: the received one, or the last one of a heartbeat.
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
    """Reported when a stall persists after its answer: ``$JS.FC.>`` is not imported."""


class SlowConsumerError(StreamError):
    """Reported when messages were dropped because the subscription's buffer is full.

    Attributes:
        dropped: how many, since the subscription began.
    """

    def __init__(self, subject: str, *, dropped: int) -> None:
        super().__init__(f"slow consumer: {dropped} messages of {subject!r} were dropped, the buffer is full")
        self.dropped = dropped
