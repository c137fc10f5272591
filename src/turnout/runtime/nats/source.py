"""The NATS source: its options, from Spark's texts to one checked value, and the state of its stream.

The state has losses and harmless holes, and waiting at the server for the next message.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from turnout.base.options import Option, of_text, option, options_of, read_options
from turnout.base.terminal import guesses
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, decimal
from turnout.errors import ConfigError, ConnectionLostError, Mistake, StreamError
from turnout.nats.protocol.errors import PermissionDeniedError, StreamNotFoundError, StreamReplacedError
from turnout.nats.protocol.frames import ephemeral_config, next_request, pull_body
from turnout.nats.protocol.options import CONNECTION_OPTIONS, FLAG, TEXT
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, ConnectionOptions, create_consumer, delete_consumer, stream_info
from turnout.nats.wire.pull import OpenReader
from turnout.nats.wire.streams import StreamPosition, parse_position, state_of
from turnout.records.batch import ListedRecords
from turnout.records.types import ArrowBatch
from turnout.runtime.driver import tell_loss

_PLACE = "{partition}"
_NAME = re.compile(r"[A-Za-z0-9_-]+")

STAGE = "stageSecret"
"""Option with the encoded stage of a route; Spark redacts the values of such names."""

# Spark hands its own options over as well.
_SPARK_OPTIONS = ("checkpointLocation", "path", "queryName")


def _number(text: str) -> int:
    number = decimal(text.strip(), LARGEST_SEQUENCE)
    if not number:
        raise ValueError(f"is a number above 0, not {text!r}")
    return number


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _position(text: str) -> StreamPosition:
    position = parse_position(text.strip())
    if position is None:
        expected = "earliest, latest, a sequence, an ISO time or {stream: sequence}"
        raise ValueError(f"is {expected}, not {text.strip()!r}")
    return position


def _identity(text: str) -> StreamIdentity | None:
    """Return the identity that a route's own read gives."""
    created, _, token = text.partition(" ")
    return StreamIdentity(created, token) if created else None


_NUMBER: Final = of_text(_number, blank=False)
_NAMES: Final = of_text(_names)
_POSITION: Final = of_text(_position)

_OTHER_NAMES: Final = {
    "start": Option("start", _POSITION),
    "end": Option("end", _POSITION),
    "filters": Option("filterSubjects", _NAMES),
    "partitions": Option("minPartitions", _NUMBER),
}
"""Second names of options, by fields."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of the NATS source: streams, range and batch size.

    Attributes:
        partitions: the most tasks a batch is read by; a small batch has fewer.
        max_records: the most sequences in one micro-batch, over all streams; None for no limit.
        poll_wait: seconds that a poll without news waits at the server.
        pause_file: as long as there is a file of this name, a streaming read finds nothing new.
        ack_consumer: a durable consumer that acknowledges what Spark has committed.
        partition_subject: a filter with ``{partition}`` in it: each number of *subject_partitions* is read by one task.
        splits: rows are no records but splits, see `turnout.spark.formats.nats.reading`.
        revisions_url: URL of the subscriptions' revision, which becomes part of a streaming read's offsets.
        push_down: request from the same URL the subjects that the subscriptions of a revision can match, and read only
            these.
        open_splits: address of the progress of open splits: `turnout.runtime.driver`.
        stays_open: micro-batches are open splits, unless there is much to catch up with.
        stage: encoded stage that tasks run on their splits; None where a next stage reads them.
        identity: identity of the stream of a bounded read: another one is not read; None for any.
        is_anonymous: message ids have no identity, as the positions were planned by an earlier release.
        push_filters: read only what the predicates of a query leave.
        fixed_plan: offsets say into how many splits a micro-batch is divided, so that it is so when it is done again.
    """

    connection: ConnectionOptions
    streams: tuple[str, ...] = option(_NAMES, (), name="stream")
    filters: tuple[str, ...] = option(_NAMES, (), name="filterSubject")
    start: StreamPosition = option(_POSITION, "earliest", name="startingOffsets")
    end: StreamPosition = option(_POSITION, "latest", name="endingOffsets")
    max_records: int | None = option(_NUMBER, None, name="maxRecordsPerTrigger")
    max_bytes: int | None = option(_NUMBER, None, name="maxBytesPerTrigger")
    partitions: int = option(_NUMBER, 1)
    fail_on_data_loss: bool = option(FLAG, True)
    include_stream: bool = option(FLAG, False)
    poll_wait: float = option(_NUMBER, 0.0)
    pause_file: str | None = option(TEXT, None)
    ack_consumer: str | None = option(TEXT, None)
    partition_subject: str | None = option(TEXT, None)
    subject_partitions: int = option(_NUMBER, 0)
    splits: bool = option(FLAG, False)
    revisions_url: str | None = option(TEXT, None)
    push_down: bool = option(FLAG, False)
    open_splits: str | None = option(TEXT, None)
    stays_open: bool = option(FLAG, False)
    fixed_plan: bool = option(FLAG, False)
    push_filters: bool = option(FLAG, False)
    identity: StreamIdentity | None = option(of_text(_identity), None, name="streamIdentity")
    is_anonymous: bool = False
    stage: str | None = option(TEXT, None, name=STAGE, secret=True)

    @classmethod
    def from_mapping(
        cls, options: Mapping[str, str], *, streaming: bool, task_slots: int | None = None
    ) -> SourceOptions:
        """Read and check Spark's options.

        Args:
            options: by name.
            streaming: True for a streaming read.
            task_slots: the most tasks, where no option has them; None for the processors of this machine.

        Raises:
            ConfigError: lists every mistake, with the option's name.
        """
        own = options_of(cls)
        mistakes = check_names(options, (*own.values(), *_OTHER_NAMES.values()))
        connection = read_connection(options, mistakes)
        values, others = read_options(own, options, mistakes), read_options(_OTHER_NAMES, options, mistakes)
        for field in ("start", "end"):
            if field in values and field in others:
                mistakes.append(Mistake(field, f"is another name of {own[field].name!r}: give one of the two"))
        filters = (*values.pop("filters", ()), *others.pop("filters", ()))
        usual: JsonObject = {"partitions": task_slots or os.cpu_count() or 1}
        is_anonymous = options.get("streamIdentity") == ""
        read = cls(connection, filters=filters, is_anonymous=is_anonymous, **usual | others | values)
        mistakes += read._contradictions(options, streaming=streaming)
        if mistakes:
            raise ConfigError(mistakes, what="NATS source")
        return read

    def _contradictions(self, options: Mapping[str, str], *, streaming: bool) -> Iterator[Mistake]:
        """Yield the contradictions between options."""
        if not self.streams:
            yield Mistake("stream", "is missing: the stream to read, or several with commas")
        if len(self.streams) > 1 and not self.splits and not self.include_stream:
            problem = "must be true for several streams: an offset alone does not name a record"
            yield Mistake("includeStream", problem)
        if streaming and (options.get("endingOffsets") or options.get("end")):
            yield Mistake("endingOffsets", "is for batch reads only")
        yield from _partition_mistakes(self.partition_subject, self.subject_partitions, self.filters, self.ack_consumer)
        if self.push_filters and (streaming or self.splits):
            yield Mistake("pushFilters", "is for batch reads: use filterSubject and startingOffsets")
        if self.revisions_url is not None and not (self.splits and streaming):
            yield Mistake("revisionsUrl", "is for streaming reads with splits=true")
        if self.push_down and (self.revisions_url is None or self.ack_consumer is not None or self.subject_partitions):
            problem = "is for a route's own reads, without ackConsumer and partitionSubject"
            yield Mistake("pushDown", problem)
        if self.open_splits is not None and not (self.splits and streaming):
            yield Mistake("openSplits", "is for streaming reads with splits=true")
        if self.stays_open and (self.open_splits is None or len(self.streams) != 1):
            yield Mistake("staysOpen", "is for a route's own reads of one stream")
        if self.ack_consumer is not None:
            yield from _ack_mistakes(self.ack_consumer, self.filters, self.start, streaming=streaming)

    def filters_of(self, partition: int) -> tuple[str, ...]:
        """Return the subjects that a partition's task reads; all filters without partitioning by subject."""
        if self.partition_subject is None:
            return self.filters
        return (self.partition_subject.replace(_PLACE, str(partition)),)


def _partition_mistakes(
    subject: str | None, count: int, filters: tuple[str, ...], ack_consumer: str | None
) -> list[Mistake]:
    """Return the options that exclude reading by subject partition."""
    if subject is None and not count:
        return []
    mistakes = []
    if subject is None or not count:
        mistakes.append(Mistake("partitionSubject", "and subjectPartitions belong together: give both"))
    elif _PLACE not in subject:
        mistakes.append(Mistake("partitionSubject", f"has no {_PLACE}: {subject!r}"))
    if filters:
        mistakes.append(Mistake("filterSubject", "partitionSubject is the filter"))
    if ack_consumer is not None:
        mistakes.append(Mistake("ackConsumer", "does not go with partitionSubject"))
    return mistakes


def _ack_mistakes(consumer: str, filters: tuple[str, ...], start: StreamPosition, *, streaming: bool) -> list[Mistake]:
    """Return the options that exclude acknowledging."""
    mistakes = []
    if not _NAME.fullmatch(consumer):
        mistakes.append(Mistake("ackConsumer", f"{consumer!r} is not a name for a consumer"))
    if not streaming:
        mistakes.append(Mistake("ackConsumer", "is for streaming reads: a batch read has no commit"))
    if len(filters) > 1:
        mistakes.append(Mistake("filterSubjects", "only one filter is possible with ackConsumer"))
    if start != "earliest":
        mistakes.append(Mistake("startingOffsets", "the consumer of ackConsumer has its own position"))
    return mistakes


def read_connection(options: Mapping[str, str], mistakes: list[Mistake]) -> ConnectionOptions:
    """Return the options of the connection; if they cannot be read, ones without servers, and add the mistakes."""
    try:
        return ConnectionOptions.from_mapping(options)
    except ConfigError as wrong:
        mistakes += wrong.mistakes
        return ConnectionOptions(servers=())


def check_names(options: Mapping[str, str], own: Iterable[Option]) -> list[Mistake]:
    """Return a mistake for each option that is neither *own* nor a connection's; case is ignored, as in Spark."""
    known = (*CONNECTION_OPTIONS, *(one.name for one in own), *_SPARK_OPTIONS)
    spelled = {name.lower(): name for name in known}
    unknown = (name for name in options if name.lower() not in spelled)
    return [
        Mistake(name, f"is no option of the format 'nats'{guess}") for name, guess in guesses(unknown, spelled.values())
    ]


_log = logging.getLogger(__name__)

_denied: set[str] = set()
"""Streams at which a warning has said that this user may not wait."""

_DENIED_SECONDS = 0.5
"""Poll interval in seconds of a stream whose consumers this user may not make."""

_POLL_SECONDS = 0.05
"""Poll interval in seconds of a stream without a consumer to wait on."""


def wait_for_more(connection: Connection, positions: dict[str, int], filters: tuple[str, ...], seconds: float) -> None:
    """Return when one of the streams has a message at or after its sequence, or after *seconds*.

    A consumer for each stream hands over the headers of one message. It is a hint only: an error here repeats, and is
    reported, when the state of the stream is requested. A permission that is missing for the consumer alone is not: a
    warning says so, once in a process.
    """
    consumers: list[tuple[str, str]] = []
    try:
        _wait(connection, positions, filters, seconds, consumers)
    except PermissionDeniedError as denied:
        names = ", ".join(positions)
        if names not in _denied:
            _denied.add(names)
            text = "waiting for messages of %s is not permitted, so the state of the stream is requested instead: %s;"
            _log.warning(f"{text} a user who reads needs this subject for short-lived consumers", names, denied)
        time.sleep(min(seconds, _DENIED_SECONDS))
    except StreamError:
        # A stream whose consumers must not overlap has none to wait with.
        time.sleep(min(seconds, _POLL_SECONDS))
    except (ConnectionLostError, TimeoutError):
        pass
    for stream, name in consumers:
        with contextlib.suppress(StreamError, ConnectionLostError):
            delete_consumer(connection, stream, name)


def _wait(
    connection: Connection,
    positions: dict[str, int],
    filters: tuple[str, ...],
    seconds: float,
    consumers: list[tuple[str, str]],
) -> None:
    """Wait for a message in one of the streams; append the consumers to remove afterwards to *consumers*."""
    inbox = connection.new_inbox()
    number = connection.subscribe(inbox)
    try:
        for stream, position in positions.items():
            config = ephemeral_config(position, filters, headers_only=True)
            consumers.append((stream, create_consumer(connection, stream, config)["name"]))
        request = pull_body(1, expires=seconds)
        for stream, name in consumers:
            connection.publish_api(next_request(stream, name), request, inbox)
        for message in connection.messages(time.monotonic() + seconds + 1):
            if message.subject == inbox or message.reply.startswith("$JS.ACK."):
                break
    finally:
        with contextlib.suppress(ConnectionLostError):
            connection.unsubscribe(number)


_CHECK_SECONDS = 1.0
"""Seconds between two looks of a task that reads with filters."""

_LISTED = 10_000
"""Maximum number of deleted sequences to request: the server lists them in one answer."""


def lost_error(stream: str, start: int, end: int) -> StreamError:
    """Return the error for sequences that were to be read and are no longer stored."""
    return StreamError(
        f"stream {stream!r} no longer has the sequences {start:,} to {end - 1:,}: they were removed by its limits, a"
        " purge, or the stream is another one; set failOnDataLoss=false to continue without them",
        code=404,
    )


def report_loss(options: SourceOptions, failure: StreamError) -> None:
    """Warn of a loss that is stepped over, in the log of this process and, where it can be told, in the run's own."""
    _log.warning("%s", failure)
    if options.open_splits is not None:
        try:
            tell_loss(options.open_splits, str(failure))
        except ConnectionLostError as away:
            _log.warning("the run could not be told of the loss: %s", away)


_Batch = TypeVar("_Batch")


def until_replaced(batches: Iterator[_Batch], options: SourceOptions) -> Iterator[_Batch]:
    """Yield batches as long as their stream is there; the next micro-batch reads the one that has replaced it.

    Raises:
        StreamError: the stream is another one now, or has other data, or there is none, and ``failOnDataLoss`` is on.
    """
    try:
        yield from batches
    except (StreamReplacedError, StreamNotFoundError) as failure:
        if options.fail_on_data_loss:
            raise
        report_loss(options, failure)


class LossWatch:
    """Distinguishes the holes in a task's range from messages that the stream dropped before they were read.

    A hole below which the stream still has messages was there before. One that reaches to the stream's beginning
    was not, or cannot be told from such; with a filter, the messages that it passes by make holes as well.
    """

    def __init__(self, options: SourceOptions, stream: str, end: int, *, passing_by: bool = False) -> None:
        self._options = options
        self._stream = stream
        self._end = end
        self._warned = 0
        self._hole: int | None = None
        self._pause = _CHECK_SECONDS if passing_by else 0.0
        self._next_look = time.monotonic() + self._pause
        # The task's own connection is full of messages: a request would wait behind them.
        self._connection = Connection(options.connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def note(self, hole: int) -> None:
        """Check *hole* too: immediately, or, with filters, which make holes everywhere, within a second.

        Raises:
            StreamError: as `look`.
        """
        self._hole = hole if self._hole is None else min(hole, self._hole)
        if time.monotonic() >= self._next_look:
            self.look()

    def look(self) -> None:
        """Check that the stream still has messages below the holes noted since the last check, if any.

        Raises:
            StreamError: when it does not, and ``failOnDataLoss`` is on.
        """
        if self._hole is None:
            return
        hole, self._hole = self._hole, None
        self._next_look = time.monotonic() + self._pause
        try:
            state = stream_info(self._connection, self._stream)["state"]
        except StreamNotFoundError as failure:
            if self._options.fail_on_data_loss:
                raise
            # What follows is reported with the next micro-batch.
            report_loss(self._options, failure)
            return
        # A stream without messages says that its first is one above its last.
        first = min(self._end, state["first_seq"])
        if first <= max(hole, self._warned):
            return
        missing = lost_error(self._stream, max(hole, self._warned), first)
        if self._options.fail_on_data_loss:
            raise missing
        report_loss(self._options, missing)
        self._warned = first


class HoleCounter:
    """Counts the sequences between two offsets that hold no message, for the log and the query's progress.

    Attributes:
        missing: stream → how many there were since the query was started.
    """

    def __init__(self) -> None:
        self.missing: dict[str, int] = {}
        self._silent: set[str] = set()

    def count(self, connection: Connection, stream: str, start: int, end: int, deleted: int) -> int:
        """Count the sequences from *start* up to, not including, *end* that hold no message.

        Args:
            connection: connection for the requests.
            stream: the stream.
            start: the first sequence.
            end: the sequence behind the last.
            deleted: number of holes of the whole stream; the server is queried only if there are some. Where there
                are more than it should list, they are not counted, which is said once.
        """
        if not deleted or start >= end:
            return 0
        if deleted > _LISTED:
            if stream not in self._silent:
                self._silent.add(stream)
                _log.warning("stream %r has %d holes, too many to count", stream, deleted)
            return 0
        listed: list[int] = stream_info(connection, stream, deleted_details=True)["state"].get("deleted") or []
        holes = sum(start <= sequence < end for sequence in listed)
        if holes:
            self.missing[stream] = self.missing.get(stream, 0) + holes
            warning = "%d of the sequences %d to %d of stream %r hold no message: they were deleted one by one"
            _log.warning(warning, holes, start, end - 1, stream)
        return holes


class NatsOpenReader:
    """Records of a stream as they arrive; see `turnout.runtime.open_task.OpenRecords`.

    Attributes:
        next: the next sequence.
        time: time of the message before it, in microseconds since 1970; None if unknown.
    """

    def __init__(self, reader: OpenReader, options: SourceOptions, watch: LossWatch, end: int) -> None:
        self._reader = reader
        self._options = options
        self._watch = watch
        self._end = end
        self.next, self.time = reader.next, reader.time

    @property
    def repeats(self) -> bool:
        """True up to the end that the stream had at the beginning."""
        return self.next < self._end

    @property
    def pending(self) -> int:
        """Number of messages that the server had beyond the last batch."""
        return self._reader.pending

    def batches(self) -> Iterator[ArrowBatch | ListedRecords]:
        """Yield the records as they arrive, and a batch without any when a wait ends.

        Raises:
            StreamError: messages were deleted, or the stream is another one, and ``failOnDataLoss`` is on.
            ConnectionLostError: no reconnection in time.
        """
        for batch in until_replaced(self._reader.batches(), self._options):
            if batch.num_rows and self._reader.hole is not None:
                self._watch.note(self._reader.hole)
            self.next, self.time = self._reader.next, self._reader.time
            yield batch

    def check(self) -> bool:
        """Return True: a stream that is replaced ends its consumer."""
        return True

    def wait_at_most(self, seconds: float) -> None:
        """Set the length of the longest wait."""
        self._reader.tick = seconds


@contextmanager
def opened(
    options: SourceOptions,
    stream: str,
    start: int,
    calls: socket.socket,
    seconds: float,
    time: int | None = None,
    *,
    identity: StreamIdentity | None = None,
) -> Iterator[NatsOpenReader]:
    """Open the reader of a split; its consumer is removed at the end.

    Args:
        options: how the source is read.
        stream: stream to read.
        start: the first sequence.
        calls: bytes on it end a wait for messages.
        seconds: the longest wait.
        time: when the message before *start* was stored, in microseconds since 1970; None if that is unknown.
        identity: identity of the stream; another one of the name is not read. None for any.
    """
    with Connection(options.connection) as connection:
        # A task may begin while the server restarts: it waits as long as a task that is under way.
        connection.reconnect()
        end, filters = state_of(connection, stream).next, options.filters
        reader = OpenReader(connection, stream, start, filters, calls=calls, tick=seconds, identity=identity, time=time)
        with LossWatch(options, stream, LARGEST_SEQUENCE, passing_by=bool(filters)) as watch:
            yield NatsOpenReader(reader, options, watch, end)
            watch.look()
        reader.close()
