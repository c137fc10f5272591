"""Adapter of NATS: streams of JetStream, read and published to without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final, cast

from turnout.base.untrusted import JsonMapping, JsonObject, is_whole
from turnout.errors import ConfigError, ConnectionLostError, Mistake, StreamError
from turnout.nats import wire
from turnout.nats.protocol.errors import StreamNotFoundError
from turnout.nats.protocol.options import CONNECTION_OPTIONS
from turnout.nats.wire import Connection
from turnout.routes.endpoints import NatsSink, NatsSource
from turnout.runtime.endpoints import (
    Change,
    EndpointAdapter,
    EndpointProbe,
    SourceStreams,
    Start,
    StreamEnd,
    other_changes,
    safe_change,
    server_changes,
    time_of,
    unsafe_change,
)
from turnout.subjects import is_subset

if TYPE_CHECKING:
    import pyarrow as pa

    from turnout.engine import Messages
    from turnout.engine.sample_records import SampleRecord
    from turnout.nats.wire.streams import StreamPosition
    from turnout.records.published import Published, Refuse
    from turnout.routes.document import ScheduledPart
    from turnout.routes.webhooks import WebhooksPart
    from turnout.runtime.nats.history import NatsFeedRecords, NatsHistory, NatsLetters

_SECONDS: Final = 3.0
_DUPLICATE_WINDOW_NANOSECONDS: Final = 3_600 * 10**9
_DELAY_STREAM: Final = {
    "retention": "limits",
    "max_msgs_per_subject": 1,
    "discard": "old",
    "duplicate_window": _DUPLICATE_WINDOW_NANOSECONDS,
}


class NatsAdapter(EndpointAdapter):
    """Access to a nats-server."""

    endpoint: NatsSource | NatsSink

    @property
    def label(self) -> str:
        """Noun for a source of this format in messages."""
        return "a stream"

    @property
    def identity(self) -> tuple[str, ...]:
        """Addresses, credentials, and everything else of the connection."""
        options = self.endpoint.options()
        return tuple(f"{name}={value}" for name, value in sorted(options.items()) if name in CONNECTION_OPTIONS)

    def _opened(self) -> Connection:
        """Open a connection with short timeouts."""
        options = self.endpoint.connection
        return Connection.open(replace(options, timeout=_SECONDS, connect_timeout=_SECONDS, reconnect_timeout=_SECONDS))

    def ping(self) -> None:
        """Check that a server answers, and accepts the credentials.

        Raises:
            ConnectionLostError: none does.
            StreamError: a server refuses the credentials.
        """
        with self._opened() as connection:
            if not connection.ping(_SECONDS):
                raise ConnectionLostError(f"no server of {', '.join(self.endpoint.hosts)} answers")

    def probe(self, seconds: float) -> EndpointProbe:
        """Return checks of the server, its streams and permissions."""
        from turnout.runtime.nats.probe import NatsProbe

        return NatsProbe(self.endpoint, seconds)

    # Before a run

    def source_streams(self) -> SourceStreams:
        """Return the source's streams."""
        source = self._source
        with Connection.open(source.connection) as connection:
            return SourceStreams.of(connection, source)

    def feeds(self, streams: SourceStreams | None) -> bool:
        """Check the sink's stream, and return True if its messages may reach these streams."""
        with Connection.open(self.endpoint.connection) as connection:
            if isinstance(self.endpoint.stream, str):
                wire.stream_info(connection, self.endpoint.stream)
            return streams is not None and streams.is_fed_by(connection)

    def sample(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield a batch of each stream, its records from places of their own."""
        from turnout.nats.wire.streams import sample

        source = self._source
        # Of several subjects any may be typical, and one question to the server names one.
        subject = source.filters[0] if len(source.filters) == 1 else ">"
        with Connection.open(source.connection) as connection:
            for stream in source.streams:
                batch = sample(connection, stream, count // len(source.streams), subject)
                if batch.num_rows:
                    yield batch

    # Positions

    @property
    def _source(self) -> NatsSource:
        return cast("NatsSource", self.endpoint)

    @property
    def fixed_start(self) -> str | None:
        """Reason that a consumer which acknowledges determines the start."""
        consumer = self._source.ack_consumer
        return None if consumer is None else f"the consumer {consumer} has its own position"

    def checked_start(self, start: Start) -> Start:
        """Return the start position if the streams can be read from there.

        Raises:
            ConfigError: it is no such position.
        """
        if isinstance(start, Mapping):
            mistakes = list(_wrong_sequences(start, self._source.streams))
            if mistakes:
                raise ConfigError(mistakes, what="bad offsets")
            return start
        if start in ("earliest", "latest") or is_whole(start, 1):
            return start
        return time_of(start, "a sequence, {stream: sequence}").isoformat()

    def resolved(self, start: Start) -> Start:
        """Return the start as sequences."""
        return self.sequences(start)

    def sequences(self, start: Start | None = None) -> dict[str, int]:
        """Return the sequence of each stream that a start means now."""
        from turnout.nats.wire.streams import position_of, resolve

        position = position_of("start", cast("StreamPosition", self._source.start if start is None else start))
        with self._opened() as connection:
            return {stream: resolve(connection, stream, position) for stream in self._source.streams}

    def changes(self, new: NatsSource) -> Iterator[Change]:
        """Yield the effects of a new version on the sequences in the checkpoint."""
        old = self._source
        yield from server_changes(old, new, "sequences of another server's stream are not those of this one")
        if (old.api_prefix, old.domain) != (new.api_prefix, new.domain):
            reason = "another JetStream answers under another prefix, with other sequences"
            yield unsafe_change("source.apiPrefix", reason)
        removed = [name for name in old.streams if name not in new.streams]
        added = [name for name in new.streams if name not in old.streams]
        if removed:
            reason = f"the checkpoint holds the place in {', '.join(removed)}, which would be forgotten"
            yield unsafe_change("source.stream", reason)
        if added and not removed:
            reason = f"{', '.join(added)} begins at {new.start}; the others continue"
            yield safe_change("source.stream", reason)
        if old.filters != new.filters:
            reason = "the place is a sequence: the filter holds for messages behind it"
            yield safe_change("source.filterSubject", reason)
        yield from other_changes(old, new, {"servers", "apiPrefix", "domain", "stream", "filterSubject"})

    # Streams

    reports_ends: ClassVar[bool] = True

    @contextmanager
    def session(self) -> Iterator[NatsSession]:
        """Open a connection with short timeouts."""
        with self._opened() as connection:
            yield NatsSession(connection)

    @contextmanager
    def history(self) -> Iterator[NatsHistory]:
        """Open a connection to read the streams."""
        from turnout.runtime.nats.history import NatsHistory

        source = self._source
        with Connection.open(source.connection) as connection:
            yield NatsHistory(connection, source.streams, source.filters)

    def feed_records(self) -> NatsFeedRecords:
        """Open a connection to read messages of the streams by their sequences."""
        from turnout.runtime.nats.history import NatsFeedRecords

        return NatsFeedRecords(self._source)

    def record_at(self, stream: str, sequence: int) -> pa.RecordBatch:
        """Return a message of a stream, which may be named with its identity, as in origins.

        Raises:
            StreamReplacedError: the identity is that of another stream.
        """
        from turnout.nats.protocol.positions import Origin, StreamIdentity, replaced_origin_error
        from turnout.nats.wire.records import with_stream
        from turnout.nats.wire.streams import state_of, stored_message

        origin = Origin.of(stream, sequence)
        with self._opened() as connection:
            batch = stored_message(connection, origin.stream, sequence)
            created = state_of(connection, origin.stream).created
        if not origin.is_of(created):
            raise replaced_origin_error(origin, created)
        identity = StreamIdentity.of(created)
        return with_stream(batch, origin.stream, replace(identity, token=origin.token or identity.token))

    def originals(self, records: Sequence[SampleRecord]) -> Sequence[SampleRecord]:
        """Return records as their streams have them; deleted and replaced ones as given."""
        from turnout.runtime.nats.history import nats_originals

        with Connection.open(self.endpoint.connection) as connection:
            return nats_originals(connection, records)

    def last_records(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the last sequences of each stream."""
        from turnout.runtime.nats.history import NatsHistory

        source = self._source
        with self._opened() as connection:
            history = NatsHistory(connection, source.streams, source.filters)
            for stream in source.streams:
                end = history.bounds(stream)
                if (start := max(end.first, end.next - count)) < end.next:
                    yield from history.read(stream, start, end.next)

    # Messages

    def send(self, messages: Messages, refuse: Refuse, name: str) -> Published:  # noqa: ARG002
        """Publish messages, and wait until each is stored or refused."""
        from turnout.runtime.nats.sink import SinkOptions

        publisher = SinkOptions.of(cast("NatsSink", self.endpoint)).publisher()
        with closing(publisher):
            publisher.send(messages, refuse)
            return publisher.flush()

    def letters(self, topic: str) -> NatsLetters | None:
        """Return access to the dead letters on a subject; None if no stream takes it."""
        from turnout.runtime.nats.history import NatsLetters

        return NatsLetters.find(self.endpoint.connection, cast("NatsSink", self.endpoint).stream, topic)

    def make_delivery_streams(self, webhooks: WebhooksPart, *, create: bool = True) -> list[str]:
        """Make the stream of waiting deliveries and that of dead letters, unless they exist."""
        from turnout.runtime.nats.probe import NatsProbe

        missing = []
        with Connection.open(self.endpoint.connection) as connection:
            source, target = webhooks.division
            queue: JsonObject = {"retention": "workqueue", "subject_transform": {"src": source, "dest": target}}
            subjects, settings = (webhooks.subject, webhooks.dead_subject), (queue, {"retention": "limits"})
            for name, subject, own in zip(webhooks.streams, subjects, settings, strict=True):
                wanted = source if own is queue else f"{subject}.>"
                try:
                    config = wire.stream_info(connection, name)["config"]
                except StreamNotFoundError:
                    missing.append(name)
                    config = {
                        "name": name,
                        "subjects": [wanted],
                        "duplicate_window": _DUPLICATE_WINDOW_NANOSECONDS,
                        "allow_direct": True,
                        **own,
                    }
                    if create:
                        wire.create_stream(connection, config)
                    else:
                        _check_free(connection, name, wanted)
                        probe = NatsProbe(self.endpoint, _SECONDS, connection)
                        probe.may_publish([connection.api_subject(f"STREAM.CREATE.{name}")])
                else:
                    # The subject of a delivery has two more tokens: its endpoint and its subscription.
                    _check_stores(name, f"{subject}.*.*", config)
        return missing

    def make_delay_stream(self, part: ScheduledPart, *, create: bool = True) -> list[str]:
        """Make the stream of messages that are delivered later, unless it exists."""
        from turnout.runtime.nats.probe import NatsProbe

        name, wanted = str(part.stream), f"{part.subject}.>"
        with Connection.open(self.endpoint.connection) as connection:
            try:
                config = wire.stream_info(connection, name)["config"]
            except StreamNotFoundError:
                if create:
                    wire.create_stream(connection, {"name": name, "subjects": [wanted], **_DELAY_STREAM})
                else:
                    _check_free(connection, name, wanted)
                    probe = NatsProbe(self.endpoint, _SECONDS, connection)
                    probe.may_publish([connection.api_subject(f"STREAM.CREATE.{name}")])
                return [name]
        _check_stores(name, f"{part.subject}.*.*", config)
        from turnout.nats.wire.streams import removing_problem

        problem = removing_problem(config)
        if config.get("retention") != "limits" or config.get("max_msgs_per_subject") != 1:
            problem = "needs retention: limits and max_msgs_per_subject: 1"
        if problem is not None:
            raise StreamError(f"the stream {name!r} cannot keep messages that wait: it {problem}")
        return []

    def stored_topics(self) -> frozenset[str]:
        """Return the subjects of the stream that must take messages, or of all streams of the server."""
        with Connection.open(self.endpoint.connection) as connection:
            if isinstance(self.endpoint.stream, str):
                return frozenset(wire.stream_info(connection, self.endpoint.stream)["config"].get("subjects") or ())
            return stored_subjects(connection)


def _check_stores(name: str, wanted: str, config: JsonMapping) -> None:
    """Check that an existing stream stores and acknowledges what is published to some subjects.

    Raises:
        StreamError: it does not.
    """
    subjects = config.get("subjects") or ()
    if not any(is_subset(wanted, subject) for subject in subjects):
        found = ", ".join(subjects) or "none"
        raise StreamError(
            f"the stream {name} exists and does not take {wanted}, as its deliveries need; it has {found}"
        )
    for setting in ("no_ack", "sealed"):
        if config.get(setting):
            raise StreamError(f"the stream {name} exists with {setting}: true, and confirms no deliveries")


def _check_free(connection: Connection, name: str, wanted: str) -> None:
    """Check that no stream has a subject that another one is to be made for, as the server does then.

    Raises:
        StreamError: one has.
    """
    others = connection.api("STREAM.NAMES", {"subject": wanted}).get("streams") or ()
    if others:
        raise StreamError(f"a run would make the stream {name} of {wanted}, but {', '.join(others)} has such subjects")


@dataclass(frozen=True, slots=True)
class NatsSession:
    """Requests over one connection."""

    connection: Connection

    def ends(self, source: NatsSource) -> dict[str, StreamEnd]:
        """Return the bounds of each stream."""
        from turnout.nats.wire.streams import state_of

        states = {stream: state_of(self.connection, stream) for stream in source.streams}
        return {name: StreamEnd(state.first, state.next, state.created) for name, state in states.items()}

    def age(self, stream: str, sequence: int, now: float) -> float | None:
        """Return the seconds since the first message with at least *sequence* was stored."""
        try:
            answer = self.connection.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": ">"})
        except StreamError:
            return None
        message = answer.get("message")
        if message is None:
            return None
        # Truncated from nanoseconds.
        stored = datetime.fromisoformat(str(message["time"])[:26].rstrip("Z") + "+00:00")
        return max(0.0, now - stored.timestamp())


def stored_subjects(connection: Connection) -> frozenset[str]:
    """Return the subjects and patterns of subjects that the server's streams capture."""
    subjects: set[str] = set()
    offset = 0
    while True:
        answer = connection.api("STREAM.LIST", {"offset": offset})
        streams = answer.get("streams") or []
        offset += len(streams)
        for stream in streams:
            subjects.update(stream["config"].get("subjects") or ())
        if not streams or offset >= answer.get("total", 0):
            return frozenset(subjects)


def _wrong_sequences(start: Mapping[str, object], streams: Sequence[str]) -> Iterator[Mistake]:
    for name in start:
        if name not in streams:
            yield Mistake(f"to.{name}", f"the route reads {', '.join(streams)}")
    for name in streams:
        if name not in start:
            yield Mistake(f"to.{name}", "a sequence is missing")
    for name, value in start.items():
        if not is_whole(value, 1):
            yield Mistake(f"to.{name}", f"expected a sequence above 0, found {value!r}")
