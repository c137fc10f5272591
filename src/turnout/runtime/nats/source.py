"""The options of the NATS source, from Spark's texts to one checked value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from turnout.base.terminal import guesses
from turnout.base.untrusted import LARGEST_SEQUENCE, decimal
from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.options import CONNECTION_OPTIONS
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import ConnectionOptions
from turnout.nats.wire.positions import StreamPosition, parse_position

_PLACE = "{partition}"
_NAME = re.compile(r"[A-Za-z0-9_-]+")

STAGE = "stageSecret"
"""Option with the encoded stage of a route; Spark redacts the values of such names."""

_READ_OPTIONS = (
    "stream", "filterSubject", "filterSubjects", "startingOffsets", "start", "endingOffsets", "end",
    "maxRecordsPerTrigger", "maxBytesPerTrigger", "partitions", "minPartitions", "failOnDataLoss",
    "includeStream", "pollWait", "pauseFile", "ackConsumer", "partitionSubject", "subjectPartitions",
    "splits", "revisionsUrl", "pushDown", "openSplits", "staysOpen", "fixedPlan", "streamIdentity", "pushFilters",
    STAGE,
)  # fmt: skip

# Spark hands its own options over as well.
_SPARK_OPTIONS = ("checkpointLocation", "path", "queryName")


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
    streams: tuple[str, ...]
    filters: tuple[str, ...] = ()
    start: StreamPosition = "earliest"
    end: StreamPosition = "latest"
    max_records: int | None = None
    max_bytes: int | None = None
    partitions: int = 1
    fail_on_data_loss: bool = True
    include_stream: bool = False
    poll_wait: float = 0.0
    pause_file: str | None = None
    ack_consumer: str | None = None
    partition_subject: str | None = None
    subject_partitions: int = 0
    splits: bool = False
    revisions_url: str | None = None
    push_down: bool = False
    open_splits: str | None = None
    stays_open: bool = False
    fixed_plan: bool = False
    push_filters: bool = False
    identity: StreamIdentity | None = None
    is_anonymous: bool = False
    stage: str | None = field(default=None, repr=False)

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
        mistakes = check_names(options, (*CONNECTION_OPTIONS, *_READ_OPTIONS))
        # If it cannot be read, the options made with it are not used.
        connection = ConnectionOptions(servers=())
        try:
            connection = ConnectionOptions.from_mapping(options)
        except ConfigError as wrong:
            mistakes += wrong.mistakes
        values, usual = _Values(options, mistakes), task_slots or os.cpu_count() or 1
        read = cls(
            connection,
            streams=values.names("stream"),
            filters=(*values.names("filterSubject"), *values.names("filterSubjects")),
            start=values.offset(("startingOffsets", "start"), "earliest"),
            end=values.offset(("endingOffsets", "end"), "latest"),
            max_records=values.number("maxRecordsPerTrigger"),
            max_bytes=values.number("maxBytesPerTrigger"),
            partitions=values.number("partitions") or values.number("minPartitions") or usual,
            fail_on_data_loss=values.flag("failOnDataLoss", usual=True),
            include_stream=values.flag("includeStream", usual=False),
            poll_wait=values.number("pollWait") or 0,
            pause_file=options.get("pauseFile") or None,
            ack_consumer=options.get("ackConsumer") or None,
            partition_subject=options.get("partitionSubject") or None,
            subject_partitions=values.number("subjectPartitions") or 0,
            splits=values.flag("splits", usual=False),
            revisions_url=options.get("revisionsUrl") or None,
            push_down=values.flag("pushDown", usual=False),
            open_splits=options.get("openSplits") or None,
            stays_open=values.flag("staysOpen", usual=False),
            fixed_plan=values.flag("fixedPlan", usual=False),
            push_filters=values.flag("pushFilters", usual=False),
            identity=_identity(options.get("streamIdentity")),
            is_anonymous=options.get("streamIdentity") == "",
            stage=options.get(STAGE) or None,
        )
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


def _identity(text: str | None) -> StreamIdentity | None:
    """Return the identity that a route's own read gives."""
    created, _, token = (text or "").partition(" ")
    return StreamIdentity(created, token) if created else None


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


def check_names(options: Mapping[str, str], known: tuple[str, ...]) -> list[Mistake]:
    """Return a mistake for each option whose name is not *known*; case is ignored, as in Spark."""
    spelled = {name.lower(): name for name in (*known, *_SPARK_OPTIONS)}
    unknown = (name for name in options if name.lower() not in spelled)
    return [
        Mistake(name, f"is no option of the format 'nats'{guess}") for name, guess in guesses(unknown, spelled.values())
    ]


class _Values:
    """Reads single options and collects their mistakes."""

    def __init__(self, options: Mapping[str, str], mistakes: list[Mistake]) -> None:
        self._options = options
        self._mistakes = mistakes

    def names(self, option: str) -> tuple[str, ...]:
        return tuple(filter(None, (part.strip() for part in (self._options.get(option) or "").split(","))))

    def number(self, option: str) -> int | None:
        text = self._options.get(option)
        if text is None:
            return None
        number = decimal(text.strip(), LARGEST_SEQUENCE)
        if not number:
            self._mistakes.append(Mistake(option, f"is a number above 0, not {text!r}"))
            return None
        return number

    def flag(self, option: str, *, usual: bool) -> bool:
        text = (self._options.get(option) or str(usual)).lower()
        if text not in ("true", "false"):
            self._mistakes.append(Mistake(option, f"is true or false, not {text!r}"))
        return text == "true"

    def offset(self, options: tuple[str, str], usual: str) -> StreamPosition:
        present = [name for name in options if self._options.get(name)]
        if not present:
            return usual
        option, *others = present
        self._mistakes += [Mistake(name, f"is another name of {option!r}: give one of the two") for name in others]
        text = self._options[option].strip()
        position = parse_position(text)
        if position is None:
            expected = "earliest, latest, a sequence, an ISO time or {stream: sequence}"
            self._mistakes.append(Mistake(option, f"is {expected}, not {text!r}"))
            return usual
        return position
