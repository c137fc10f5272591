"""The options of the NATS source, from Spark's texts to one checked value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from turnout.base.options import Option, of_text, option, options_of, read_options
from turnout.base.terminal import guesses
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, decimal
from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.options import CONNECTION_OPTIONS, FLAG, TEXT
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import ConnectionOptions
from turnout.nats.wire.streams import StreamPosition, parse_position

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
