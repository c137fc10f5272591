"""Adapters of endpoint formats: all requests to a format's servers without Spark.

A format registers its adapter in `turnout.routes.endpoints.formats`; other modules call `adapter_of` and know no
format. An adapter has operations on an endpoint, and reads streams of a source again by position; the defaults suit a
format without servers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeAlias

import pyarrow as pa

from turnout.base.clocks import parse_time
from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.engine.sample_records import SampleRecord
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.nats import wire
from turnout.nats.wire import Connection
from turnout.records.types import ArrowBatch
from turnout.routes.endpoints import Endpoint, NatsSource, secrets_of
from turnout.routes.endpoints.formats import format_of
from turnout.routes.values import listed
from turnout.subjects.pattern import common

if TYPE_CHECKING:
    from threading import Event

    from turnout.engine import Messages
    from turnout.nats.wire.streams import StreamPosition
    from turnout.records.published import Published, Refuse
    from turnout.records.types import Fields
    from turnout.routes.document import ScheduledPart
    from turnout.routes.endpoints import Source
    from turnout.routes.webhooks import WebhooksPart
    from turnout.runtime.cursors import FeedCursor
    from turnout.runtime.offsets import Offsets


@dataclass(frozen=True, slots=True)
class SourceStreams:
    """The streams that a route reads.

    Attributes:
        subjects: patterns of the subjects read from them.
        created: stream → creation time, which distinguishes it from others of its name.
    """

    subjects: tuple[str, ...] = ()
    created: Mapping[str, str] | None = None

    @classmethod
    def of(cls, connection: Connection, source: NatsSource) -> Self:
        """Return the streams of a source.

        Raises:
            StreamError: one does not exist.
        """
        infos = {name: wire.stream_info(connection, name) for name in source.streams}
        stored = _stored(connection, infos)
        filters = source.filters or (">",)
        read = {common(subject, other) for subject in stored for other in filters} - {None}
        created = {name: str(info["created"]) for name, info in infos.items()}
        return cls(tuple(sorted(subject for subject in read if subject is not None)), created)

    def is_fed_by(self, connection: Connection) -> bool:
        """Return True if messages published over a connection may reach one of these streams.

        An address says little: servers have several, and accounts of one server know nothing of each other.
        """
        return any(_created(connection, name) == created for name, created in (self.created or {}).items())


def _created(connection: Connection, stream: str) -> str | None:
    """Return the creation time of a stream; None if the server of this connection has no stream of that name."""
    try:
        return str(wire.stream_info(connection, stream)["created"])
    except StreamError:
        return None


def _stored(connection: Connection, infos: Mapping[str, JsonMapping]) -> list[str]:
    """Return the subjects that some streams store, also by way of the streams that they mirror or source from."""
    subjects: list[str] = []
    names, waiting = set(infos), [info["config"] for info in infos.values()]
    while waiting:
        config = waiting.pop()
        subjects += config.get("subjects") or ()
        for name in _origins(config):
            if name not in names:
                names.add(name)
                waiting += _config(connection, name)
    return subjects


def _origins(config: JsonMapping) -> Iterable[str]:
    """Return the streams of the same account that a stream copies."""
    copied = [*([config["mirror"]] if config.get("mirror") else ()), *(config.get("sources") or ())]
    return (origin["name"] for origin in copied if not origin.get("external"))


def _config(connection: Connection, stream: str) -> list[JsonMapping]:
    try:
        return [wire.stream_info(connection, stream)["config"]]
    except StreamError:
        # A stream may copy one that is not there, or that this user may not see.
        return []


RecordKey: TypeAlias = tuple[str, int]
"""Stream of a record, of Kafka ``topic:partition``, and its sequence or offset."""


class FeedRecords(Protocol):
    """Records of a source that can be read by their positions."""

    def close(self) -> None:
        """Close the connections."""

    def streams(self, committed: Offsets) -> Sequence[str]:
        """Return the streams, of Kafka the partitions that runs have read, in the order of their turns."""

    def offsets(self, cursor: FeedCursor) -> dict[str, int]:
        """Return the last position read of each stream.

        Raises:
            ConfigError: the cursor is of another kind of source.
        """

    def cursor(self, offsets: Mapping[str, int]) -> FeedCursor:
        """Return the cursor behind these positions."""

    def ends(self, streams: Sequence[str]) -> dict[str, int]:
        """Return the positions behind the last records of streams.

        Raises:
            StreamError: a stream is not there.
            ConnectionLostError: no server answers.
        """

    def start(self, position: StreamPosition) -> FeedCursor:
        """Return the cursor from which a feed begins at ``earliest``, ``latest``, a sequence or a time.

        Raises:
            ConfigError: it is no position of the source.
        """

    def read(self, keys: Sequence[RecordKey], committed: Offsets) -> tuple[list[RecordKey], ArrowBatch]:
        """Return the records that are still held, with their keys, in the order of *keys*.

        Args:
            keys: positions of the records.
            committed: offsets of the route's runs: of another stream of the same name nothing is returned.

        Raises:
            StreamError: the source is not there.
            ConnectionLostError: no server answers.
        """


def by_stream(keys: Sequence[RecordKey]) -> dict[str, list[int]]:
    """Return the positions of some records by stream."""
    wanted: dict[str, list[int]] = {}
    for stream, position in keys:
        wanted.setdefault(stream, []).append(position)
    return wanted


def in_order(
    keys: Sequence[RecordKey], found: Sequence[RecordKey], batches: Sequence[ArrowBatch]
) -> tuple[list[RecordKey], ArrowBatch]:
    """Return the records that were found, whose keys are given, in the order of *keys*."""
    rows = {key: row for row, key in enumerate(found)}
    held = [key for key in keys if key in rows]
    table = pa.Table.from_batches(batches).take(pa.array([rows[key] for key in held], pa.int64())).combine_chunks()
    return held, next(iter(table.to_batches()), batches[0])


def wrong_cursor(cursor: FeedCursor, expected: str) -> ConfigError:
    """Return the error for a cursor of another kind of source."""
    return ConfigError([Mistake("after", f"expected {expected}, found {str(cursor)[:80]!r}")], what="bad cursor")


def rows_of(batch: ArrowBatch) -> list[JsonObject]:
    """Return the rows of a batch, their timestamps as numbers."""
    at = batch.schema.get_field_index("timestamp")
    rows: list[JsonObject] = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()
    return rows


def record_of(row: JsonObject, stream: str | None) -> SampleRecord:
    """Return a row as a record; without a stream for a source that has partitions."""
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    position = row["partition"], row["offset"], row["timestamp"]
    return SampleRecord(row["topic"], row["value"], row["key"], headers, *position, stream)


Verdict = Literal["safe", "needs_new_checkpoint"]


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between two versions of a route.

    Attributes:
        change: the changed setting, by its path in the file.
        verdict: whether the new version can continue from the checkpoint of the old one.
        reason: why, in a sentence.
        uncovers: whether content that was masked or removed may be delivered as it is.
    """

    change: str
    verdict: Verdict
    reason: str
    uncovers: bool = False

    @property
    def safe(self) -> bool:
        """True if the new version can continue from the checkpoint."""
        return self.verdict == "safe"


def unsafe_change(change: str, reason: str) -> Change:
    """Return a change after which positions in the checkpoint mean something else, or nothing."""
    return Change(change, "needs_new_checkpoint", reason)


def safe_change(change: str, reason: str) -> Change:
    """Return a change after which the checkpoint can be used."""
    return Change(change, "safe", reason)


def server_changes(old: Endpoint, new: Endpoint, reason: str) -> Iterator[Change]:
    """Yield the change of the servers; it is safe if an address is common to both versions.

    Args:
        old: the source before.
        new: the source after.
        reason: why positions at other servers mean nothing.
    """
    written = [listed(getattr(source, "servers", None)) for source in (old, new)]
    if written[0] == written[1]:
        return
    before, after = ({host.rstrip("/").lower() for host in source.hosts} for source in (old, new))
    if before & after:
        yield safe_change("source.servers", "at least one address is as before: it is the same cluster")
    else:
        yield unsafe_change("source.servers", reason)


def other_changes(old: Endpoint, new: Endpoint, handled: Collection[str]) -> Iterator[Change]:
    """Yield changes of options that do not affect positions."""
    before, after = (version.model_dump(by_alias=True) for version in (old, new))
    for name in before:
        if name in handled or before[name] == after[name]:
            continue
        if name == "start":
            reason = "it has an effect where there is no checkpoint; reset the offsets to go elsewhere"
            yield safe_change("source.start", reason)
        elif name in secrets_of(type(old)):
            yield safe_change(f"source.{name}", "the reader does not affect the records")
        else:
            yield safe_change(f"source.{name}", "it changes how the source is read, and not where")


class NewLetter(NamedTuple):
    """Message to be added among dead letters."""

    headers: list[tuple[str, bytes]]
    value: bytes
    message_id: str | None = None


class SinkLetters(Protocol):
    """Dead letters on one topic of a sink.

    Attributes:
        stream: stream of the letters; in Kafka the topic itself.
        keeps_keys: True if letters have the keys of their records.
        deletion_problem: reason that single letters cannot be deleted; None if they can.
    """

    @property
    def stream(self) -> str: ...  # noqa: D102 - described above
    @property
    def keeps_keys(self) -> bool: ...  # noqa: D102
    @property
    def deletion_problem(self) -> str | None: ...  # noqa: D102

    def stream_of(self, row: Fields) -> str:
        """Return the stream of a letter, in Kafka ``topic:partition``."""

    def holds(self, stream: str) -> bool:
        """Return True if letters are stored in this stream, or partition."""

    def history(self) -> AbstractContextManager[SourceHistory]:
        """Open a connection to read the letters.

        Raises:
            StreamError: the stream, or the topic, does not exist.
            ConnectionLostError: the server cannot be reached.
        """

    def at(self, sequence: int) -> StreamPosition:
        """Return a sequence of the letters' stream as a position; in Kafka, the offset in each partition."""

    def add(self, letter: NewLetter, stream: str) -> None:
        """Publish a message among the letters of a stream, and wait until it is stored.

        Raises:
            StreamError: the server refuses it.
            ConnectionLostError: the server does not come back in time.
        """

    def exchange(self, added: Sequence[NewLetter], deleted: Sequence[tuple[str, int]]) -> None:
        """Publish letters and, when they are stored, delete those at some positions, as far as they are still there.

        It may be called only if there is no `deletion_problem`.

        Args:
            added: letters to publish.
            deleted: stream and sequence of each letter to delete.

        Raises:
            StreamError: the server refuses to delete, or to store a letter.
            ConnectionLostError: the server does not come back in time.
        """


Start: TypeAlias = str | int | Mapping[str, object]
"""Start position: ``earliest``, ``latest``, a sequence, an ISO time, or positions by stream or topic."""

CheckOutput = Callable[[], str]


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Bounds of a stream: its first sequence, and its next one.

    Attributes:
        created: creation time, which distinguishes it from others of its name; "" without one.
    """

    first: int
    next: int
    created: str = ""


class SourceSession(Protocol):
    """Connection to the server of a source with streams."""

    def ends(self, source: Any) -> dict[str, StreamEnd]:
        """Return the bounds of each stream, or partition, of a source.

        Raises:
            StreamError: a stream does not exist.
            ConnectionLostError: the connection is lost.
        """

    def age(self, stream: str, sequence: int, now: float) -> float | None:
        """Return the seconds since the first message with at least *sequence*; None if none may be read.

        Raises:
            ConnectionLostError: the connection is lost.
        """


class SourceHistory(Protocol):
    """Reading of a source's history beside its runs, over one connection.

    Attributes:
        streams: names of the streams of NATS; of Kafka the partitions, each as ``topic:partition``.
    """

    @property
    def streams(self) -> Sequence[str]:
        """Names of the streams or partitions, each with its own sequences or offsets."""

    def bounds(self, stream: str) -> StreamEnd:
        """Return the bounds of a stream now.

        Raises:
            StreamError: it does not exist.
            ConnectionLostError: the connection is lost.
        """

    def resolve(self, stream: str, position: StreamPosition) -> int:
        """Return the sequence in a stream that a place means now.

        Raises:
            ConfigError: it means none there.
            StreamError: the stream does not exist.
            ConnectionLostError: the connection is lost.
        """

    def read(self, stream: str, start: int, end: int) -> Iterator[ArrowBatch]:
        """Yield the records from *start* up to, not including, *end*, as a run reads them.

        Raises:
            StreamError: the stream does not exist, or may not be read.
            ConnectionLostError: the connection is lost.
        """

    def count(self, stream: str, start: int, end: int, filters: Sequence[str]) -> int:
        """Return about how many records a range holds, on the subjects *filters* if given.

        Raises:
            StreamError: the stream does not exist.
            ConnectionLostError: the connection is lost.
        """

    def wait(self, positions: Mapping[str, int], stop: Event) -> None:
        """Wait for a moment, or until there is a record at one of these positions, or *stop* is set."""


class EndpointProbe:
    """Checks of one endpoint for ``turnout check --connect``, which change nothing."""

    noun: ClassVar[str] = "stream"
    """Word for what `streams` names."""

    def reach(self) -> str:
        """Contact a server, and return a report.

        Raises:
            TurnoutError: no server can be reached, or it refuses the credentials.
        """
        raise NotImplementedError

    def streams(self) -> Sequence[str]:
        """Return the source's streams or topics with readable latest records; none by default.

        Raises:
            TurnoutError: the server cannot be queried.
        """
        return ()

    def latest(self, stream: str, count: int) -> tuple[list[pa.RecordBatch], str]:
        """Return the latest messages of a stream of the source, and a summary.

        Raises:
            TurnoutError: the stream does not exist, or may not be read.
        """
        raise NotImplementedError

    def subjects(self, stream: str) -> Sequence[str]:  # noqa: ARG002 - of NATS
        """Return the subjects that a stream captures; none by default."""
        return ()

    def sink_checks(
        self,
        topics: Sequence[str],  # noqa: ARG002
        messages: Sequence[Messages] = (),  # noqa: ARG002
    ) -> Iterator[tuple[str, CheckOutput]]:
        """Yield more checks of a sink that can be reached, each with its name; none by default.

        Args:
            topics: topics of its messages.
            messages: messages of the sample.
        """
        yield from ()

    def close(self) -> None:
        """Close the connection, if one is open."""


class EndpointAdapter:
    """Requests to one endpoint.

    Args:
        endpoint: the source or the sink.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    @property
    def label(self) -> str:
        """Noun for a source of this format in messages, with its article."""
        return f"an endpoint of format {self.endpoint.format}"

    @property
    def position_label(self) -> str:
        """Noun for a position of this source in messages, without an article."""
        return "sequence"

    # Servers

    @property
    def identity(self) -> tuple[str, ...]:
        """Identity of a connection: endpoints with equal ones can share it."""
        return self.endpoint.hosts

    def ping(self) -> None:
        """Check that a server answers; nothing by default.

        Raises:
            ConnectionLostError: none does.
            StreamError: a server refuses the credentials.
        """

    def probe(self, seconds: float) -> EndpointProbe:  # noqa: ARG002 - for formats with servers
        """Return checks of this endpoint that wait at most so long for an answer."""
        return EndpointProbe()

    # Before a run

    def source_streams(self) -> SourceStreams | None:
        """Check the streams of the source and return them; None for a source without streams.

        Raises:
            ConnectionLostError: the server cannot be reached.
            StreamError: a stream does not exist.
        """
        return None

    def feeds(self, streams: SourceStreams | None) -> bool:  # noqa: ARG002 - for formats with streams
        """Check the sink, and return True if its messages may reach these streams of the route's source.

        Raises:
            ConnectionLostError: the server cannot be reached.
            StreamError: the sink's stream does not exist.
        """
        return False

    def sample(self, count: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - for formats with streams
        """Yield about *count* typical records of the source; none by default.

        Raises:
            StreamError: a stream does not exist, or may not be read.
        """
        yield from ()

    # Positions of a source

    @property
    def fixed_start(self) -> str | None:
        """Reason that the source's position cannot be set; None if it can."""
        return None

    def checked_start(self, start: Start) -> Start:
        """Return the start position if the source can begin there.

        Raises:
            ConfigError: it is no position of this source.
        """
        return start

    def begun_at(self, start: Start) -> Source:
        """Return the source with another start."""
        source: Source = self.endpoint.model_copy(update={"start": start})  # type: ignore[assignment]
        return source

    def resolved(self, start: Start) -> Start:
        """Return the start with a lasting meaning, as ``latest`` and times change theirs.

        Raises:
            ConnectionLostError: the server is away.
            StreamError: a stream does not exist.
        """
        return start

    def sequences(self, start: Start | None = None) -> dict[str, int]:  # noqa: ARG002 - for formats with streams
        """Return the sequence that a start, or the source's own one, means in each stream now.

        Raises:
            ConnectionLostError: the server is away.
            StreamError: a stream does not exist.
        """
        raise self._without("source", "streams")

    def changes(self, new: Any) -> Iterator[Change]:
        """Yield the effects of a new version of the source, of the same format, on the checkpoint."""
        raise NotImplementedError

    # Streams of a source

    reports_ends: ClassVar[bool] = False
    """True if a `session` can report the end of the source."""

    def session(self) -> AbstractContextManager[SourceSession]:
        """Open a connection with short timeouts, as a caller waits for the answer.

        Raises:
            ConfigError: the source has no streams.
            ConnectionLostError: no server answers.
        """
        raise self._without("source", "streams")

    def history(self) -> AbstractContextManager[SourceHistory]:
        """Open a connection to read the source's history.

        Raises:
            ConfigError: the source keeps none.
            ConnectionLostError: no server answers.
            StreamError: a stream does not exist.
        """
        raise self._without("source", "history")

    def feed_records(self) -> FeedRecords:
        """Open a connection to read records by their positions, for feeds.

        Raises:
            ConfigError: the source has no positions.
            ConnectionLostError: no server answers.
        """
        raise self._without("source", "positions for feeds")

    def record_at(self, stream: str, sequence: int) -> pa.RecordBatch:  # noqa: ARG002 - for formats with streams
        """Return a message of a stream as a record batch, as a run reads it.

        Raises:
            StreamError: there is no such message, or no such stream.
            ConnectionLostError: the server is away.
        """
        raise self._without("source", "streams")

    def originals(self, records: Sequence[SampleRecord]) -> Sequence[SampleRecord]:
        """Return records of dead letters as the source has them; those that it no longer has, or never had, as given.

        A letter in NATS lacks the record's key (its message id) and its time, and of a large record the value.

        Raises:
            StreamError: the server refuses to read.
            ConnectionLostError: the server is away.
        """
        return records

    def last_records(self, count: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - for formats with streams
        """Return the last *count* sequences of each stream as record batches, in order.

        Raises:
            StreamError: a stream does not exist.
            ConnectionLostError: the server is away.
        """
        raise self._without("source", "streams")

    # Messages of a sink

    def send(self, messages: Messages, refuse: Refuse, name: str) -> Published:  # noqa: ARG002 - as above
        """Publish messages from this process, and wait until each is stored or refused.

        Args:
            messages: messages of this sink.
            refuse: called with the index of a refused message, and the reason.
            name: name of the sink in the route.

        Raises:
            ConfigError: only Spark can write to this sink.
            StreamError: a server takes no messages at all.
            ConnectionLostError: no reconnection in time.
        """
        problem = f"is {self.endpoint.format}: messages go from this process to sinks of format nats or kafka alone"
        raise ConfigError([Mistake(f"sinks.{name}" if name else "sink", problem)])

    def letters(self, topic: str) -> SinkLetters | None:  # noqa: ARG002 - for formats with streams
        """Return access to the dead letters on a topic of the sink; None if no stream takes them.

        Raises:
            ConfigError: letters in this sink cannot be read again.
            ConnectionLostError: the server cannot be reached.
        """
        expected = "expected a sink of format nats or kafka, whose letters can be read again"
        raise ConfigError([Mistake("deadLetter.topic", f"{expected}, found {self.endpoint.format}")])

    def make_delivery_streams(self, webhooks: WebhooksPart, *, create: bool = True) -> list[str]:  # noqa: ARG002
        """Make the streams of deliveries to webhooks, or their topics, unless they exist.

        Args:
            webhooks: names them.
            create: False to find out whether they could be made, and change nothing.

        Returns:
            The names of those that were missing.

        Raises:
            ConfigError: the sink stores no deliveries.
            StreamError: the server refuses one; another stream may have its subjects, or the one of this name stores
                no deliveries.
            ConnectionLostError: the server cannot be reached.
        """
        raise self._without("webhooks", "deliveries to webhooks")

    def make_delay_stream(self, part: ScheduledPart, *, create: bool = True) -> list[str]:  # noqa: ARG002
        """Make the stream of messages that are delivered later, unless it exists.

        Args:
            part: names it.
            create: False to find out whether it could be made, and change nothing.

        Returns:
            Its name if it was missing.

        Raises:
            ConfigError: the sink has no streams.
            StreamError: the server refuses it; another stream may have its subjects, or an existing one not those.
            ConnectionLostError: the server cannot be reached.
        """
        raise self._without("scheduled.sink", "delay streams")

    def stored_topics(self) -> frozenset[str] | None:
        """Return the topics and patterns of topics that the servers store; None if that is unknown.

        Raises:
            TurnoutError: a server cannot be queried.
        """
        return None

    def _without(self, path: str, ability: str) -> ConfigError:
        return ConfigError([Mistake(path, f"the format {self.endpoint.format} has no {ability}")])


def time_of(start: object, positions: str) -> datetime:
    """Parse an ISO time as a start; without a zone it is in UTC.

    Args:
        start: the text.
        positions: positions that the source accepts besides, for the error.

    Raises:
        ConfigError: it is none.
    """
    try:
        return parse_time(str(start))
    except ValueError:
        problem = f"expected earliest, latest, {positions} or an ISO time, found {start!r}"
        raise ConfigError([Mistake("to", problem)], what="bad offsets") from None


def adapter_of(endpoint: Endpoint) -> EndpointAdapter:
    """Return the adapter of an endpoint, by its format."""
    adapter: EndpointAdapter = resolve_name(format_of(endpoint).adapter)(endpoint)
    return adapter
