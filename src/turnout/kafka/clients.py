"""Clients of librdkafka with turnout's settings, its errors as turnout's, and the progress of a partition's records."""

from __future__ import annotations

import logging
import re
import time
import zlib
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice, pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from turnout.base.files import FileChanges
from turnout.base.varint import varint
from turnout.errors import ConfigError, ConnectionLostError, MissingExtraError, Mistake, StreamError, shortened
from turnout.kafka.options import REPORTS, KafkaOptions, tokens_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka import KafkaError as KafkaError
    from confluent_kafka import Message as Message
    from confluent_kafka.admin import AdminClient


_Client = TypeVar("_Client")

GROUP: Final = "turnout"
"""Consumer group that clients name: librdkafka requires one, and nothing is committed to it."""

NOT_FOUND: Final = 404
"""Code of a `StreamError` for a topic, a partition or offsets that do not exist."""

INVALID_TIMESTAMP: Final = 32
INVALID_RECORD: Final = 87
"""Kafka's codes of records that do not fit their topic, which are those of a `StreamError`, too."""

_AWAY: Final = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_MSG_TIMED_OUT", "_DESTROY")
_DENIED: Final = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM")
_NO_RENEWAL: Final = "Request not valid in current SASL state"
"""Answer of a broker without ``connections.max.reauth.ms`` to a renewed token: a new connection takes it."""

_MISSING: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID", "_NOENT")
_PREFETCHED_KBYTES: Final = 32 << 10
"""Most kilobytes of records that a consumer holds in advance; plus the last response to a fetch."""

RETRY_SECONDS: Final = 0.5
"""Seconds until brokers that did not answer are asked again."""

_Result = TypeVar("_Result")

_STATE: Final = re.compile(r" \(after \d+ms in state \w+\)")
"""Part of librdkafka's texts that says nothing to a user."""

_log = logging.getLogger(__name__)
_UNHEARD: Final = logging.Logger("librdkafka", logging.CRITICAL + 1)
"""Logger for librdkafka's standard error; the `ErrorWatch` gets the same."""

_TRANSACTION_MS: Final = 300_000
"""Milliseconds after which brokers abort a transaction by themselves: a task takes less for its split."""

_CONSUMER: Final[Mapping[str, object]] = {
    "group.id": GROUP,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": _PREFETCHED_KBYTES,
    "fetch.message.max.bytes": 4 << 20,
    "fetch.wait.max.ms": 100,
    # Poll interval of a full queue; a second is librdkafka's own.
    "fetch.queue.backoff.ms": 5,
    "check.crcs": True,
}
_PRODUCER: Final[Mapping[str, object]] = {
    "acks": "all",
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    # As Java's client has it, so that one limit holds for both.
    "message.max.bytes": 1 << 20,
    "queue.buffering.max.kbytes": 64 << 10,
    # A topic that is not there is waited for as long as its creation may take.
    "topic.metadata.propagation.max.ms": 10_000,
}


def patiently(options: KafkaOptions, step: Callable[[], _Result]) -> _Result:
    """Return the result of a step, which is repeated for ``patience`` seconds while no broker answers.

    Raises:
        ConnectionLostError: no broker answers in that time.
    """
    deadline = time.monotonic() + options.patience
    while True:
        try:
            return step()
        except ConnectionLostError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


def polled(consumer: Consumer, seconds: float, most: int, gather: float = 0.0) -> list[Message]:
    """Return the messages and events that have arrived, *most* of them, after a wait of *seconds* for the first.

    Messages that come within *gather* seconds after the first are among them.
    """
    first: list[Message] = consumer.consume(1, seconds)
    if gather and first and first[0].error() is None:
        time.sleep(gather)
    return first + consumer.consume(most - 1, 0) if first else first


class ErrorWatch:
    """Last error that a client has reported by itself: the reason behind a timeout.

    Attributes:
        last: the error; None where none was reported.
    """

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Note an error; librdkafka calls this from a poll."""
        # That all brokers are down is said last, and says the least.
        if error.name() != "_ALL_BROKERS_DOWN" or self.last is None:
            self.last = error

    @property
    def denied(self) -> bool:
        """True if credentials or certificates were refused: trying again does not help."""
        return self.last is not None and self.last.name() in _DENIED and _NO_RENEWAL not in self.last.str()

    def heard(self) -> None:
        """Forget the error after an answer of a broker."""
        self.last = None


def client_partition(topic: str, number: int, *offset: int) -> TopicPartition:
    """Return a partition, and an offset in it, as the client takes them."""
    partition: TopicPartition = _library().TopicPartition(topic, number, *offset)
    return partition


def consumer_of(options: KafkaOptions, watch: ErrorWatch) -> Consumer:
    """Return a consumer that commits nothing and begins nowhere by itself.

    Raises:
        ConfigError: a property is wrong.
        MissingExtraError: the client is not installed.
    """
    kind = _library().Consumer
    consumer: Consumer = _client(kind, options, watch, _CONSUMER)
    return consumer


class LastingConsumer:
    """A consumer for questions, which is made anew between two of them after a change of its certificates' files.

    Args:
        options: options of the client.
        watch: watch of the client.
    """

    def __init__(self, options: KafkaOptions, watch: ErrorWatch) -> None:
        self._make = partial(consumer_of, options, watch)
        self._changes = FileChanges(options.files.values())
        self._consumer = self._make()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def current(self) -> Consumer:
        """Return the consumer for one question."""
        if self._changes.found():
            self._consumer.close()
            self._consumer = self._make()
        return self._consumer


def producer_of(options: KafkaOptions, watch: ErrorWatch, transactional_id: str | None = None) -> Producer:
    """Return an idempotent producer, which reports failed messages alone.

    Raises:
        ConfigError: a property is wrong.
        MissingExtraError: the client is not installed.
    """
    own: dict[str, object] = {"enable.idempotence": True, REPORTS: options.properties.get(REPORTS) != "false"}
    defaults = {**_PRODUCER, "message.timeout.ms": int(options.patience * 1000)}
    if transactional_id is not None:
        own["transactional.id"] = transactional_id
        defaults["transaction.timeout.ms"] = _TRANSACTION_MS
    kind = _library().Producer
    producer: Producer = _client(kind, options, watch, defaults, own)
    return producer


def admin_of(options: KafkaOptions, watch: ErrorWatch) -> AdminClient:
    """Return a client for questions about topics and offsets.

    Raises:
        ConfigError: a property is wrong.
        MissingExtraError: the client is not installed.
    """
    _library()
    from confluent_kafka.admin import AdminClient

    admin: AdminClient = _client(AdminClient, options, watch, {})
    return admin


def _library() -> ModuleType:
    try:
        import confluent_kafka
    except ImportError as missing:
        raise MissingExtraError("kafka", "confluent_kafka") from missing
    return confluent_kafka


def _client(
    kind: Callable[..., _Client],
    options: KafkaOptions,
    watch: ErrorWatch,
    defaults: Mapping[str, object],
    own: Mapping[str, object] = {},
) -> _Client:
    properties: dict[str, object] = {
        name: value for name, value in options.properties.items() if not name.startswith("turnout.")
    }
    try:
        tokens = tokens_of(options.properties, options.servers)
    except ValueError as failure:
        raise ConfigError([Mistake("security.sasl.mechanism", str(failure))], what="Kafka client") from None
    if tokens is not None:
        properties |= {"oauth_cb": tokens}
    settings = {
        "client.id": "turnout",
        "socket.timeout.ms": max(1000, int(options.timeout * 1000)),
        "reconnect.backoff.max.ms": 1000,
        **defaults,
        **properties,
        **own,
        "bootstrap.servers": ",".join(options.servers),
        "error_cb": watch,
    }
    renewed = {**settings, **options.renewed()}
    if renewed != settings:
        try:
            return kind(renewed, logger=_UNHEARD)
        except Exception as failure:  # noqa: BLE001 - what the former certificates raise is reported below
            _log.warning(
                "the renewed certificates cannot be used, and the former ones are: %s", _mistake(failure, options)
            )
    try:
        return kind(settings, logger=_UNHEARD)
    except Exception as failure:
        if not isinstance(failure, (ValueError, TypeError)) and type(failure).__name__ != "KafkaException":
            raise
        raise ConfigError([_mistake(failure, options)], what="Kafka client") from None


def _mistake(failure: Exception, options: KafkaOptions) -> Mistake:
    """Return librdkafka's error about a property, without the values of secrets."""
    error = failure.args[0] if failure.args else failure
    text = error.str() if hasattr(error, "str") else str(error)
    for value in sorted(options.properties.values(), key=len, reverse=True):
        if len(value) > 3:
            text = text.replace(value, "***")
    return Mistake("options", shortened(text, 300))


@contextmanager
def kafka_errors(what: str, options: KafkaOptions, watch: ErrorWatch) -> Iterator[None]:
    """Raise librdkafka's errors as turnout's.

    Args:
        what: was to be done, as in "the topic 'orders' cannot be read".
        options: options of the client.
        watch: watch of the client.

    Raises:
        StreamError: a broker refused it.
        ConnectionLostError: no broker answered.
    """
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as failure:
        raise_error(what, failure.args[0], options, watch, cause=failure)


def raise_error(
    what: str,
    error: KafkaError,
    options: KafkaOptions,
    watch: ErrorWatch | None = None,
    cause: BaseException | None = None,
) -> NoReturn:
    """Raise an error of librdkafka as turnout's: see `kafka_errors`."""
    reported = error
    if watch is not None and watch.last is not None and error.name() in _AWAY:
        reported = watch.last
    text = f"{what}: {shortened(_STATE.sub('', reported.str()), 300)} ({reported.name()})"
    if reported.name() in _DENIED:
        raise StreamError(f"{text}, at {', '.join(options.servers)}", code=401) from cause
    if reported.name() in _AWAY:
        raise ConnectionLostError(f"no server of {', '.join(options.servers)} answers: {text}") from cause
    raise StreamError(text, code=code_of(reported)) from cause


def code_of(error: KafkaError) -> int:
    """Return the code of a `StreamError` for an error: `NOT_FOUND`, or Kafka's own."""
    return NOT_FOUND if error.name() in _MISSING else int(error.code())


_FORM: Final = "1:"
_MAX_CHARACTERS: Final = 3_900
"""Longest note: brokers take 4,096 bytes, unless ``offset.metadata.max.bytes`` says else."""

_MAX_NOTED: Final = 20_000
_MAX_BYTES: Final = 10 * (_MAX_NOTED + 1)


class PartitionProgress:
    """Unfinished offsets of one partition; not safe for several threads.

    Args:
        offset: the committed one, or the first to read.
        note: that was committed with it; one that cannot be read is no note.

    Attributes:
        next: the offset behind the last that was read.

    >>> progress = PartitionProgress(10)
    >>> [progress.begin(offset) for offset in (10, 11, 12)]
    [True, True, True]
    >>> progress.end(10), progress.end(12), progress.commit()[0]
    (None, None, 11)
    >>> successor = PartitionProgress(*progress.commit())
    >>> [successor.begin(offset) for offset in (11, 12, 13)]
    [True, False, True]
    """

    def __init__(self, offset: int, note: str = "") -> None:
        until, waiting = _decoded(offset, note)
        self.next = offset
        self._until = until
        self._expected = deque(waiting)
        # In ascending order, as offsets are read.
        self._unfinished = dict.fromkeys(waiting)

    @property
    def unfinished(self) -> int:
        """Number of offsets that are known and not finished."""
        return len(self._unfinished)

    @property
    def bound(self) -> int:
        """The offset from which on no record is known to be finished, or read."""
        return max(self._until, self.next)

    def begin(self, offset: int) -> bool:
        """Note that a record is read; return False if an earlier member of the group has finished it."""
        self.skip(offset)
        self.next = offset + 1
        if offset < self._until:
            if self._expected and self._expected[0] == offset:
                self._expected.popleft()
            return offset in self._unfinished
        self._unfinished[offset] = None
        return True

    def skip(self, offset: int) -> None:
        """Note that no record below an offset is still to come: those that the note names are gone."""
        self.next = max(self.next, offset)
        while self._expected and self._expected[0] < offset:
            self._unfinished.pop(self._expected.popleft(), None)

    def end(self, offset: int) -> None:
        """Note that a record is finished."""
        self._unfinished.pop(offset, None)

    def commit(self) -> tuple[int, str]:
        """Return the offset to commit, and its note; with too many unfinished ones the last are not noted."""
        waiting = list(islice(self._unfinished, _MAX_NOTED + 1))
        until = max(self._until, self.next)
        if not waiting:
            return until, ""
        count = len(waiting)
        while True:
            if count <= _MAX_NOTED:
                note = _encoded(waiting[:count], until if count == len(waiting) else waiting[count])
                if len(note) <= _MAX_CHARACTERS:
                    return waiting[0], note
            count = min(_MAX_NOTED, count * 3 // 4)


def _encoded(waiting: Sequence[int], until: int) -> str:
    """Return the note of unfinished offsets, the first of which is committed, below a bound."""
    steps = [right - left for left, right in pairwise(waiting)]
    numbers = b"".join(varint(number) for number in (until - waiting[0], *steps))
    return _FORM + b64encode(zlib.compress(numbers, 6)).decode()


def _decoded(offset: int, note: str) -> tuple[int, list[int]]:
    """Return the bound and the unfinished offsets below it; no bound beyond the offset for a foreign note."""
    if not note.startswith(_FORM) or len(note) > _MAX_CHARACTERS:
        return offset, []
    try:
        packed = b64decode(note.removeprefix(_FORM), validate=True)
        stream = zlib.decompressobj()
        numbers = list(_numbers(stream.decompress(packed, _MAX_BYTES)))
    except (ValueError, zlib.error):
        return offset, []
    # What is cut off has no end, and would name too few offsets.
    if not stream.eof or not numbers or 0 in numbers[1:]:
        return offset, []
    waiting = [offset]
    for step in numbers[1:]:
        waiting.append(waiting[-1] + step)
    until = offset + numbers[0]
    return (until, waiting) if waiting[-1] < until else (offset, [])


def _numbers(text: Iterable[int]) -> Iterator[int]:
    number = shift = 0
    for byte in text:
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("no number of 64 bits")
        if byte < 0x80:
            yield number
            number = shift = 0
