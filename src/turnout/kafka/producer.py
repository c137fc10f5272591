"""Publishing to Kafka: idempotent, with a bounded number of messages in flight, optionally in transactions."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from turnout.base.files import FileChanges
from turnout.base.histogram import Histogram
from turnout.base.untrusted import JsonObject
from turnout.errors import ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin, TopicRules
from turnout.kafka.clients import INVALID_RECORD, NOT_FOUND, ErrorWatch, code_of, kafka_errors, producer_of, raise_error
from turnout.kafka.options import REPORTS, KafkaOptions
from turnout.records.published import TOO_LARGE, Published, Refuse

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer


_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash of some bytes, as ``Utils.murmur2`` does, without its sign.

    >>> murmur2(b"foobar") - (1 << 32)
    -790332482
    """
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_of(data: bytes, partitions: int) -> int:
    """Return the partition that Java's client chooses for a key.

    >>> partition_of(b"foobar", 1000)
    166
    """
    return (murmur2(data) & 0x7FFFFFFF) % partitions


KafkaHeaders = Sequence[tuple[str, bytes | None]]

_log = logging.getLogger(__name__)

_OF_BATCH: Final = frozenset(
    {
        "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "INVALID_MSG",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT", "POLICY_VIOLATION", "_INVALID_DIFFERENT_RECORD",
    }
)  # fmt: skip
"""Refusals of a whole batch for one of its messages, which is found by dividing the batch."""

_OF_TOPIC: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION", "_INVALID_ARG",
    }
)  # fmt: skip
"""Refusals that concern a message's topic or partition, so that messages to others may be sent."""

_FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
_DIVIDED: Final = 1000
"""Most messages of the first parts of refused batches."""
_WAIT_SECONDS: Final = 0.05
_FIRST_WAIT_SECONDS: Final = 0.0005
_ABORT_SECONDS: Final = 2.0
_CREATION_SECONDS: Final = 5.0
_KNOWN_SECONDS: Final = 60.0
_STEPS: Final = 1000
"""Number of messages between two checks of the acknowledgements."""


_PURGED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})


class FencedError(StreamError):
    """Raised when another producer has taken over a transactional id: no transaction of this one can be committed."""


class KafkaMessages(NamedTuple):
    """Messages to send, as parallel sequences of one length.

    Attributes:
        topics: topics of the messages.
        values: values of the messages.
        keys: keys of the messages.
        headers: headers of the messages; None where no message has any.
        timestamps: milliseconds since 1970, None for now; None where no message has one.
        partitions: numbers, or -1 for the partitioner's choice; None where it chooses for all.
    """

    topics: Sequence[str]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    headers: Sequence[KafkaHeaders | None] | None = None
    timestamps: Sequence[int | None] | None = None
    partitions: Sequence[int] | None = None

    def take(self, rows: Sequence[int]) -> KafkaMessages:
        """Return the messages at *rows*, in that order."""
        return KafkaMessages(*(None if part is None else [part[row] for row in rows] for part in self))  # type: ignore[arg-type]


@dataclass(slots=True)
class _Batch:
    """Messages of one call.

    Attributes:
        count: how many they are.
        left: those of which no report says that they are stored, or refused.
        begun: time at which they were handed to the client.
        until: number of messages that were sent until then, with these.
        is_stored: whether all of them, and of every batch before, are stored or refused.
    """

    count: int
    left: int
    begun: float
    until: int = 0
    is_stored: bool = False


class _Message(NamedTuple):
    """Pending message, with the callback for its refusal."""

    topic: str
    arguments: JsonObject
    row: int
    refuse: Refuse
    batch: _Batch


class KafkaProducer:
    """Publishes messages; a message with a key goes to the partition that Java's client would choose (murmur2).

    With ``delivery.report.only.error: false`` in the options it knows of each message that it is stored: see `mark`.

    Args:
        options: options of the client.
        transactional_id: for transactions; every other producer with it is fenced by `begin`. None for none.
    """

    def __init__(self, options: KafkaOptions, transactional_id: str | None = None) -> None:
        self._options = options
        self._watch = ErrorWatch()
        self._transactional_id = transactional_id
        self._changes = FileChanges(options.files.values())
        self._producer: Producer = producer_of(options, self._watch, transactional_id)
        self._is_open = True
        self._in_transaction = False
        self._is_initialized = False
        self._sent = 0
        self._refused = 0
        self._failure: KafkaError | None = None
        self._fatal: KafkaError | None = None
        self._hears_each = options.properties.get(REPORTS) == "false"
        self._under_way: deque[_Batch] = deque()
        self._partitions: dict[str, tuple[int, float]] = {}
        self._suspects: list[tuple[_Message, KafkaError]] = []
        self._rules: dict[str, tuple[TopicRules | None, float]] = {}
        self._is_broken = False
        self._is_incomplete = False
        self._delivery = Histogram()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up messages that are not acknowledged, abort a transaction that is open, and close the connections.

        A second call does nothing.
        """
        if not self._is_open:
            return
        self._is_open = False
        with suppress(Exception):
            # A producer that is fenced, or has failed for good, refuses this too.
            self._producer.purge()
            if self._in_transaction:
                self._in_transaction = False
                # Until it has ended, consumers with read_committed wait; unreachable brokers get a short wait only.
                self._producer.abort_transaction(_ABORT_SECONDS)
        del self._producer

    # -- messages

    def publish(self, messages: KafkaMessages, refuse: Refuse) -> None:
        """Send messages; wait where too many are in flight.

        Args:
            messages: messages to send.
            refuse: called, now or in a later call, with the index of a message that will never be stored.

        Raises:
            StreamError: a broker takes no messages at all.
            ConnectionLostError: no broker takes them for ``options.patience`` seconds.
        """
        # Refused ones first: behind these messages, theirs would be out of order.
        self._divide_suspects()
        headers, times, partitions = messages.headers, messages.timestamps, messages.partitions
        count = len(messages.topics)
        batch = _Batch(count, count, time.monotonic())
        for index in range(count):
            arguments: dict[str, object] = {"value": messages.values[index], "key": messages.keys[index]}
            if headers is not None and headers[index]:
                arguments["headers"] = headers[index]
            if times is not None and times[index] is not None:
                arguments["timestamp"] = times[index]
            if partitions is not None and partitions[index] >= 0:
                arguments["partition"] = partitions[index]
            self._queue(_Message(messages.topics[index], arguments, index, refuse, batch))
            if index % _STEPS == _STEPS - 1:
                self._poll(0)
        self._sent += count
        batch.until = self._sent
        self._under_way.append(batch)
        self._poll(0)

    def mark(self) -> Callable[[], bool] | None:
        """Return a function that says whether all messages until now are stored or refused; None if `flush` alone does.

        What it says may change in each call of this producer.
        """
        if not self._hears_each:
            return None
        batch = self._under_way[-1] if self._under_way else None
        return lambda: batch is None or batch.is_stored

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic, 0 if there is no such topic.

        It is requested at intervals; a topic that brokers create on request is waited for.

        Raises:
            ConnectionLostError: no broker answers.
            StreamError: a broker refuses to say it.
        """
        cached = self._partitions.get(topic)
        if cached is not None and time.monotonic() < cached[1]:
            return cached[0]
        deadline = time.monotonic() + _CREATION_SECONDS
        while True:
            with kafka_errors(f"the topic {topic!r} cannot be described", self._options, self._watch):
                found = self._producer.list_topics(topic, self._options.timeout).topics[topic]
            if found.error is None or time.monotonic() > deadline:
                break
            if code_of(found.error) != NOT_FOUND and not found.error.retriable():
                raise_error(f"the topic {topic!r} cannot be described", found.error, self._options)
            time.sleep(_WAIT_SECONDS)
        count = 0 if found.error is not None else len(found.partitions)
        self._partitions[topic] = count, time.monotonic() + _KNOWN_SECONDS
        return count

    def collect(self) -> Histogram:
        """Process the acknowledgements that have arrived, and return their delivery times; wait only after a refusal.

        Raises:
            StreamError: as `publish`.
            ConnectionLostError: as `publish`.
        """
        self._poll(0)
        self._divide_suspects()
        delivery, self._delivery = self._delivery, Histogram()
        return delivery

    def flush(self) -> Published:
        """Wait until every message is stored or refused, and return the results since the last call.

        Raises:
            StreamError: as `publish`.
            ConnectionLostError: as `publish`.
        """
        self._wait()
        self._divide_suspects()
        published = Published(self._sent - self._refused, 0, self._delivery)
        self._sent = self._refused = 0
        for batch in self._under_way:
            batch.is_stored = True
        self._under_way.clear()
        self._delivery = Histogram()
        if self._transactional_id is None and self._changes.found():
            self._producer = producer_of(self._options, self._watch)
        return published

    def _wait(self) -> None:
        # A poll ends with the reports of some messages.
        seconds = _FIRST_WAIT_SECONDS
        while len(self._producer):
            if self._is_broken:
                # Nothing of the transaction will be committed.
                self._producer.purge()
            self._poll(seconds)
            seconds = min(seconds * 1.5, _WAIT_SECONDS)
        self._poll(0)

    def _queue(self, message: _Message) -> None:
        """Hand a message to the client, as soon as that has room for it, unless its topic is known to refuse it."""
        from confluent_kafka import KafkaException

        problem = self._problem(message) if self._rules else None
        if problem is not None:
            self._refuse(message, problem)
            return
        report = partial(self._reported, message)
        while True:
            try:
                self._producer.produce(message.topic, on_delivery=report, **message.arguments)
            except BufferError:
                self._poll(_WAIT_SECONDS)
            except KafkaException as failure:
                error = failure.args[0]
                if error.name() in _OF_BATCH and not error.fatal():
                    # The client itself refuses a message alone.
                    self._refuse(message, _refusal(error))
                else:
                    self._reported(message, error, None, is_sent=False)
                self._check()
                return
            else:
                return

    def _reported(self, message: _Message, error: KafkaError | None, _report: object, *, is_sent: bool = True) -> None:
        """Take the report of a message: of one that is stored, or not."""
        if error is None:
            message.batch.left -= 1
            return
        name = error.name()
        # Of a transaction with a refused batch the client takes no messages any more, and purges those that it has,
        # perhaps before it reports the refusal.
        is_late = self._transactional_id is not None and (self._is_broken or name == "_STATE" or name in _PURGED)
        if error.fatal() or name in _FENCED:
            self._failure = self._failure or error
        elif name in _OF_BATCH or (is_late and name not in _OF_TOPIC):
            self._suspects.append((message, error))
        elif name in _OF_TOPIC:
            self._refuse(message, _refusal(error))
        elif name not in _PURGED:
            self._failure = self._failure or error
            return
        if self._transactional_id is not None and (is_sent or name == "_STATE") and name not in _PURGED:
            self._is_broken = self._is_incomplete = True

    def _refuse(self, message: _Message, reason: StreamError) -> None:
        self._refused += 1
        message.batch.left -= 1
        message.refuse(message.row, reason)

    # -- refused batches

    def _divide_suspects(self) -> None:
        """Send the messages of refused batches in smaller and smaller parts, until those that are refused are found.

        Of *n* messages with *k* bad ones these are at most some 2 k log n parts. A transaction with a refused batch can
        only be aborted: the parts are sent in one that will be aborted, too.
        """
        if not self._suspects and not self._is_broken:
            return
        self._wait()
        parts = self._parts()
        while parts or self._is_broken:
            if self._is_broken:
                self._renew()
                continue
            part = parts.pop()
            for message in part:
                self._queue(message)
            self._wait()
            if len(part) > 1:
                parts += self._parts(halves=True)
            elif self._suspects:
                message, error = self._suspects.pop()
                if error.name() not in _OF_BATCH:
                    self._raise("messages cannot be stored", error)
                self._refuse(message, _refusal(error))

    def _parts(self, *, halves: bool = False) -> list[list[_Message]]:
        """Return the messages of refused batches in parts, the first last, without those that a topic's rules forbid.

        Args:
            halves: divide by two; if not, into parts of one topic.
        """
        suspects, self._suspects = self._suspects, []
        by_topic: dict[str, list[_Message]] = {}
        for message, error in suspects:
            self._learn_rules(message.topic)
            problem = self._problem(message)
            if problem is None or error.name() in _TOO_LARGE:
                by_topic.setdefault(message.topic, []).append(message)
            else:
                self._refuse(message, problem)
        parts = []
        for messages in by_topic.values():
            size = max(1, (len(messages) + 1) // 2) if halves else _DIVIDED
            parts += [messages[begin : begin + size] for begin in range(0, len(messages), size)]
        return parts[::-1]

    def _learn_rules(self, topic: str) -> None:
        """Request the settings by which a topic refuses records, unless they are known."""
        known = self._rules.get(topic)
        if known is not None and time.monotonic() < known[1]:
            return
        rules = None
        try:
            with KafkaAdmin(self._options) as admin:
                rules = admin.topic_rules([topic]).get(topic)
        except (StreamError, ConnectionLostError) as failure:
            text = "the settings of the topic %r are not known, so that refused batches are divided into more parts: %s"
            _log.warning(text, topic, failure)
        self._rules[topic] = rules, time.monotonic() + _KNOWN_SECONDS

    def _problem(self, message: _Message) -> StreamError | None:
        """Return the reason that a message's topic refuses it, as far as its rules are known."""
        rules, until = self._rules.get(message.topic, (None, 0.0))
        if rules is None or time.monotonic() > until:
            return None
        problem = rules.problem(message.arguments["key"], message.arguments.get("timestamp"))
        return None if problem is None else StreamError(f"the topic {message.topic!r} {problem}", code=INVALID_RECORD)

    def _renew(self) -> None:
        """Continue in another transaction; what was in the last one is not stored."""
        self.close()
        # After a refused batch a client of its own does not find the sequence numbers again in every case.
        self._producer = producer_of(self._options, self._watch, self._transactional_id)
        self._is_open = True
        self._is_broken = False
        self._fatal = None
        self._begin()

    def _poll(self, seconds: float) -> None:
        """Poll for reports for at most *seconds*, and record the delivery times of acknowledged messages."""
        from confluent_kafka import KafkaException

        try:
            self._producer.poll(seconds)
        except KafkaException as failure:
            # A producer that is fenced says so here, too.
            self._failure = self._failure or failure.args[0]
        self._check()
        done, now = self._sent - len(self._producer), time.monotonic()
        while self._under_way:
            batch = self._under_way[0]
            if batch.left if self._hears_each else batch.until > done:
                break
            self._under_way.popleft()
            batch.is_stored = True
            self._delivery += Histogram.of(now - batch.begun, batch.count)

    def _check(self) -> None:
        if self._failure is not None:
            self._raise("messages cannot be stored", self._failure)
        if self._watch.denied and self._watch.last is not None:
            self._raise("messages cannot be stored", self._watch.last)

    def _raise(self, what: str, error: KafkaError) -> None:
        from confluent_kafka import KafkaException

        if error.name() == "_FATAL":
            # The client has failed for good; it has given the reason with an answer before, or reports it.
            with suppress(KafkaException):
                self._producer.poll(0)
            error = self._fatal or self._watch.last or error
        if error.name() in _FENCED:
            self._fatal = error
            text = f"{what}: another task has taken over the transactional id {self._transactional_id!r}"
            raise FencedError(text, code=code_of(error))
        raise_error(what, error, self._options, self._watch)

    # -- transactions

    def begin(self) -> None:
        """Fence earlier producers with this transactional id, end their transactions, and begin one.

        Raises:
            StreamError: a broker refuses it.
            ConnectionLostError: no broker answers.
        """
        self._failure = None
        if self._is_initialized:
            # A client can fence others only once.
            self._renew()
        else:
            self._begin()
        # What the last transaction has purged is given up with it.
        self._suspects.clear()
        self._under_way.clear()
        self._sent = self._refused = 0
        self._failure = None
        self._is_incomplete = False

    @property
    def is_incomplete(self) -> bool:
        """True if a refused message has broken the transaction: all of it has to be sent again, without that one."""
        return self._is_incomplete

    def _begin(self) -> None:
        seconds = self._options.timeout
        self._is_initialized = True
        self._transact("a transaction cannot begin", lambda: self._producer.init_transactions(seconds))
        self._transact("a transaction cannot begin", self._producer.begin_transaction)
        self._in_transaction = True

    def begin_next(self) -> None:
        """Begin another transaction after one that is committed.

        Raises:
            FencedError: another producer has taken over.
            StreamError: the producer has failed.
        """
        self._transact("a transaction cannot begin", self._producer.begin_transaction)
        self._in_transaction = True

    def commit(self) -> None:
        """Commit the transaction: from now on consumers with ``read_committed`` see its messages.

        Raises:
            FencedError: another producer has taken over; nothing is committed.
            StreamError: a broker refuses it; nothing is committed.
            ConnectionLostError: no broker answers: it is not known whether it is committed.
        """
        self._transact(
            "a transaction cannot be committed", lambda: self._producer.commit_transaction(self._options.timeout)
        )
        self._in_transaction = False

    def abort(self) -> None:
        """Abort the transaction, as far as a broker answers; another `begin` would do so too."""
        self._producer.purge()
        self._failure = None
        self._transact(
            "a transaction cannot be aborted", lambda: self._producer.abort_transaction(self._options.timeout)
        )

    def _transact(self, what: str, step: Callable[[], None]) -> None:
        """Do one step of a transaction, again as long as that may help."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._options.patience
        while True:
            try:
                step()
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if error.retriable() and not self._watch.denied and time.monotonic() < deadline:
                    time.sleep(_WAIT_SECONDS)
                    continue
                if error.retriable() and self._watch.last is None:
                    raise ConnectionLostError(
                        f"{what}: {', '.join(self._options.servers)} does not answer"
                    ) from failure
                self._raise(what, error)
            else:
                self._watch.heard()
                return


def _refusal(error: KafkaError) -> StreamError:
    """Return the refusal of a message for a client's or a broker's error."""
    return StreamError(error.str(), code=TOO_LARGE if error.name() in _TOO_LARGE else code_of(error))
